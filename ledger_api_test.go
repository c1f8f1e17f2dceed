package team_test

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// No call of the exported API returns several values of records. The test reads
// the API as the compiler does, so that a new method is looked at without
// being listed.

// Types that are one record's value, anywhere in the package.
var recordTypes = []string{"Fact", "Record"}

// Types whose methods deal in nothing but records: here bare bytes and JSON
// are values too.
var recordAPIs = []string{"Ledger", "Records", "Committer", "Meter", "Watcher", "Storage"}

// bulk returns what is wrong with the exported API of pkg.
func bulk(pkg *types.Package) []string {
	var wrong []string
	check := func(name string, sig *types.Signature, raw bool) {
		look := func(tuple *types.Tuple) {
			for v := range tuple.Variables() {
				if several(v.Type(), raw, false, nil) {
					wrong = append(wrong, fmt.Sprintf("%s gives %s", name, types.TypeString(v.Type(), types.RelativeTo(pkg))))
				}
			}
		}
		look(sig.Results())
		for p := range sig.Params().Variables() {
			if f, ok := p.Type().Underlying().(*types.Signature); ok {
				look(f.Params()) // what a callback gets was given out as well
			}
		}
	}
	for _, name := range pkg.Scope().Names() {
		obj := pkg.Scope().Lookup(name)
		if !obj.Exported() {
			continue
		}
		switch obj := obj.(type) {
		case *types.Func:
			check(name, obj.Signature(), false)
		case *types.TypeName:
			raw := slices.Contains(recordAPIs, name)
			for _, t := range []types.Type{obj.Type(), types.NewPointer(obj.Type())} {
				for m := range types.NewMethodSet(t).Methods() {
					if _, pointer := t.(*types.Pointer); m.Obj().Exported() && (pointer || types.IsInterface(t)) {
						check(name+"."+m.Obj().Name(), m.Obj().(*types.Func).Signature(), raw)
					}
				}
			}
		}
	}
	return wrong
}

// several reports whether t can hold more than one value of a record. In says
// that t is an element of something that has several; raw that bytes are a value.
func several(t types.Type, raw, in bool, seen []types.Type) bool {
	for _, s := range seen {
		if types.Identical(s, t) {
			return false
		}
	}
	again := func(u types.Type, in bool) bool { return several(u, raw, in, append(seen, t)) }
	if named, ok := types.Unalias(t).(*types.Named); ok {
		obj := named.Obj()
		if obj.Pkg() != nil && strings.HasSuffix(obj.Pkg().Path(), "teamchan/team") && slices.Contains(recordTypes, obj.Name()) {
			return in
		}
		if obj.Pkg() != nil && obj.Pkg().Path() == "encoding/json" && obj.Name() == "RawMessage" {
			return in && raw
		}
	}
	switch u := t.Underlying().(type) {
	case *types.Slice:
		if b, ok := u.Elem().Underlying().(*types.Basic); ok && b.Kind() == types.Byte {
			return in && raw
		}
		return again(u.Elem(), true)
	case *types.Array:
		return again(u.Elem(), true)
	case *types.Map:
		return again(u.Elem(), true) || again(u.Key(), true)
	case *types.Chan:
		return again(u.Elem(), true)
	case *types.Pointer:
		return again(u.Elem(), in)
	case *types.Struct:
		for f := range u.Fields() {
			if f.Exported() && again(f.Type(), in) {
				return true
			}
		}
	case *types.Signature: // an iterator, or something like it
		for _, tuple := range []*types.Tuple{u.Params(), u.Results()} {
			for v := range tuple.Variables() {
				if again(v.Type(), true) {
					return true
				}
			}
		}
	case *types.Interface:
		return in && raw && u.Empty() // an any can be a value
	}
	return false
}

func TestNoCallReturnsValuesInBulk(t *testing.T) {
	// The compiled API of the package, by way of the build cache.
	cmd := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-json=ImportPath,Export", "github.com/teamchan/team/memstore", "github.com/teamchan/team/sqlitestore")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	exports := map[string]string{}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct{ ImportPath, Export string }
		if err := d.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		exports[p.ImportPath] = p.Export
	}
	imp := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	for _, path := range []string{"github.com/teamchan/team", "github.com/teamchan/team/memstore", "github.com/teamchan/team/sqlitestore"} {
		pkg, err := imp.Import(path)
		require.NoError(t, err)
		require.Empty(t, bulk(pkg), path)
		if path == "github.com/teamchan/team" {
			for _, name := range append(recordTypes, recordAPIs...) {
				require.NotNil(t, pkg.Scope().Lookup(name), name)
			}
		}
	}

	// And it does find what is wrong.
	const code = `package team
import ("encoding/json"; "iter")
type Fact struct { Key string; Value json.RawMessage }
type Record struct { Value []byte }
type Page struct { Facts []Fact }
type Ledger struct{}
func (*Ledger) All() []Fact { return nil }
func (*Ledger) Map() (map[string]json.RawMessage, error) { return nil, nil }
func (*Ledger) Iter() iter.Seq2[Fact, error] { return nil }
func (*Ledger) Names() iter.Seq2[string, error] { return nil }
func (*Ledger) Page() (*Page, error) { return nil, nil }
func (*Ledger) Chan() <-chan *Record { return nil }
func (*Ledger) Bytes() [][]byte { return nil }
func (*Ledger) Any() []any { return nil }
func (*Ledger) Each(func([]Fact)) { }
func (*Ledger) Update(func(Fact) (json.RawMessage, error)) (Fact, error) { return Fact{}, nil }
func (*Ledger) Apply(...Fact) ([]string, error) { return nil, nil }
func (*Ledger) hidden() []Fact { return nil }
type Records interface { Get() (Record, error); Scan() [][]byte }
type Board struct{}
func (Board) Bytes() [][]byte { return nil }
func (Board) Facts() [2]Fact { return [2]Fact{} }
func Dump() []Record { return nil }
`
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "team.go", code, 0)
	require.NoError(t, err)
	bad, err := (&types.Config{Importer: imp}).Check("example.org/teamchan/team", fset, []*ast.File{file}, nil)
	require.NoError(t, err)
	var found []string
	for _, w := range bulk(bad) {
		name, _, _ := strings.Cut(w, " ")
		found = append(found, name)
	}
	require.ElementsMatch(t, []string{"Ledger.All", "Ledger.Map", "Ledger.Iter", "Ledger.Page", "Ledger.Chan", "Ledger.Bytes", "Ledger.Any", "Ledger.Each",
		"Records.Scan", "Board.Facts", "Dump"}, found)
}
