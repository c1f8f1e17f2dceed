package team_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
	"github.com/teamchan/team/memstore"
)

// previewOf returns what is shown of a text, without the line behind it.
func previewOf(t *testing.T, text string, class team.Class) string {
	t.Helper()
	o := newOffload(t, &team.OffloadOptions{PreviewTokens: 600})
	body, _ := parts(t, shorten(t, o, text, team.Source{Class: class}))
	return body
}

// Levels are found as loggers, compilers and test runners write them, and nowhere
// else: the count is exact, and the first bad line is told with its number.
func TestOffloadCountsLevels(t *testing.T) {
	for line, want := range map[string]string{
		`time="2026-08-01T10:00:00Z" level=error msg="no such file"`:            "ERROR",
		`{"level":"error","msg":"no such file"}`:                                "ERROR",
		`{"ts":1,"error":null,"level":"info"}`:                                  "INFO",
		"E0801 10:00:00.000000       1 reconciler.go:12] no such pod":           "ERROR",
		"I0801 10:00:00.000000       1 reconciler.go:12] all is well":           "INFO",
		"[10:00:00 ERR] no such file":                                           "ERROR",
		"[10:00:00 DBG] a look at it":                                           "DEBUG",
		"2026/08/01 10:00:00 [crit] 12#12: *1 no space":                         "FATAL",
		"CRITICAL:root:no space":                                                "FATAL",
		"panic: runtime error: index out of range":                              "FATAL",
		"src/a.ts(1,2): error TS2304: Cannot find name":                         "ERROR",
		"error[E0308]: mismatched types":                                        "ERROR",
		"main.c:12:5: warning: unused variable":                                 "WARN",
		"npm error code ERESOLVE":                                               "ERROR",
		"  12:5  error  'x' is not defined  no-undef":                           "ERROR",
		"make: *** [Makefile:12: all] Error 1":                                  "ERROR",
		"java.lang.IllegalStateException: closed":                               "ERROR",
		"ValueError: bad payload":                                               "ERROR",
		"E       assert 0 == 400":                                               "ERROR",
		"--- FAIL: TestX (0.01s)":                                               "FAIL",
		"tests/test_a.py::test_b FAILED   [ 14%]":                               "FAIL",
		"2026-08-01 10:00:00 INFO a request failed with ERROR 5":                "INFO",
		"an error occurred, and that was no failure: the errors were a warning": "",
		"GET /ERROR/x.html with ERROR_COUNT and TerrorError, logs/debug.log":    "",
		"the information is in err.go; error handling follows":                  "",
	} {
		text := strings.Repeat("2026-08-01 10:00:00 a line like any other\n", 700) + line + "\n" + strings.Repeat("2026-08-01 10:00:01 a line like any other\n", 700)
		body := previewOf(t, text, team.ClassLog)
		_, structure, _ := strings.Cut(body[strings.LastIndex(body, "any other")+len("any other"):], "\n")
		switch want {
		case "":
			require.Empty(t, structure, line)
		case "FATAL", "ERROR", "FAIL":
			require.Equal(t, want+" 1\n701: "+strings.TrimSpace(line), structure)
		default:
			require.Equal(t, want+" 1", structure, line)
		}
	}
}

// What failed in a text that is no log is told with its lines, the first ones first.
func TestOffloadTellsWhatFailedInAText(t *testing.T) {
	var b strings.Builder
	for i := range 900 {
		if i == 77 || i == 301 || i > 500 && i%50 == 0 {
			fmt.Fprintf(&b, "=== RUN   Test%d\n    x_test.go:%d: got 1, want 2\n--- FAIL: Test%d (0.01s)\n", i, i, i)
			continue
		}
		fmt.Fprintf(&b, "=== RUN   Test%d\n--- PASS: Test%d (0.00s)\n", i, i)
	}
	b.WriteString("FAIL\nFAIL\texample.com/app\t3.210s\n")
	body := previewOf(t, b.String(), "")
	require.True(t, strings.HasSuffix(body, "\nFAIL 11\n157: --- FAIL: Test77 (0.01s)\n606: --- FAIL: Test301 (0.01s)\n1105: --- FAIL: Test550 (0.01s)"), body)
	require.NotContains(t, previewOf(t, logLines(3000)+"INFO: all is well\n", team.ClassText), "INFO 1")
}

// A signature is told with its line, and what only looks like one is not counted.
func TestOffloadFindsSignatures(t *testing.T) {
	is := []string{
		"func (c *conn) hijacked() bool {", "func Max[T any](a, b T) T {", "type Handler interface {", "package http",
		"class Pool(Base):", "class Pool:", "    def run(self, a: int) -> int:", "async def fetch(url):",
		"export interface Cache {", "export const make = async (id: number): Promise<Cache> => {", "export default function App() {",
		"export type Name = string;", "  async load(id: number): Promise<void> {", "  size(): number {", "const twice = (a) => a * 2;",
		"pub struct User<T> {", "impl<T: Clone> User<T> {", "impl Display for User {", "    pub fn new(inner: T) -> Self {",
		"    pub(crate) async fn go(&self) {", "    const fn k() -> u32 { 1 }", "mod tests {", "pub struct Unit;",
		"public final class Pool extends Base {", "    protected static <T> List<T> all(Class<T> c) {", "    public void run() {",
		"int main(int argc, char **argv)", "static void release(void) {", "struct page {", "struct page *find(int n)", "enum class Color : int {",
		"namespace a::b {", "data class P(val x: Int)", "suspend fun load(): Int {", "fun <T> first(l: List<T>): T {", "object App extends Base {",
		"module Foo::Bar", "build() {", "function build {", "CREATE TABLE orders (", "service Greeter {", "message Hello {",
	}
	isNot := []string{
		"class of things that we do.", "type of value", "message from the server", "package the results", "class names are sorted here",
		"    message = \"x\"", "    record = {\"a\": a}", "    object = await get(url)", "    type = 5", "    module = load(name)",
		"    struct page *p = find(3);", "    struct page p;", "async with session.get(url) as r:", "async for x in rows():",
		"function (err) {", "describe('it works', () => {", "setTimeout(() => {", "if (x) {", "  while (i < 3) {", "return run(x)", "foo(bar)",
		"const x = (a + b) * 2;", "    private final int size = compute(3);", "Copyright (c) of the authors (all of them)", "default: run(x)",
	}
	var b strings.Builder
	for i, line := range append(is, isNot...) {
		fmt.Fprintf(&b, "%s\n# %d\n", line, i)
	}
	filler := strings.Repeat("        x += 1 # as before\n", 600)
	body := previewOf(t, filler+b.String()+filler, team.ClassCode)
	for _, line := range isNot {
		require.NotContains(t, previewOf(t, filler+line+"\n"+filler, team.ClassCode), "signatures", line)
	}
	for i, line := range is {
		require.Contains(t, previewOf(t, filler+line+"\n"+filler, team.ClassCode), "1 signatures: 601: "+strings.TrimRight(strings.TrimSpace(line), " {:"), "%d: %s", i, line)
	}
	require.Contains(t, body, fmt.Sprintf("\n%d signatures: 601: %s\n603: ", len(is), strings.TrimRight(is[0], " {")))
}

// JSON keys are told with types, sizes and how many elements: the largest first, and
// of many the largest only.
func TestOffloadTellsJSONKeys(t *testing.T) {
	long := strings.Repeat("x", 9000)
	require.Contains(t, previewOf(t, `[{"id": 1, "roles": ["a","b"], "none": [], "p": {"q": [1,2,3]}}, {"other": "`+long+`"}]`, team.ClassJSON),
		"array of 2, the first: id scalar (1 B), roles array (2 items, 9 B), none array (0 items, 2 B), p object (14 B)")
	require.Contains(t, previewOf(t, `{"a": 1, "b": {"deep": ["`+long+`"]}, "c": [[1],[2]]}`, team.ClassJSON),
		"object of 3 keys: b object (9014 B), c array (2 items, 9 B), a scalar (1 B)")
	require.Contains(t, previewOf(t, `["`+long+`", 2]`, team.ClassJSON), "array of 2, the first: string")
	require.Contains(t, previewOf(t, `{"a": 1, "b": ["`+long, team.ClassJSON), "object of 2 keys: a scalar (1 B), b array")
	var b strings.Builder
	for i := range 500 {
		fmt.Fprintf(&b, `"k%d": %d, `, i, i)
	}
	require.Contains(t, previewOf(t, `{`+b.String()+`"big": "`+long+`", "last": 1}`, team.ClassJSON), "object of 502 keys: big string (9002 B), ")
}

// Of a table, the whole head is shown before anything else.
func TestOffloadShowsTheHeadOfATable(t *testing.T) {
	var b strings.Builder
	b.WriteString("id,name,\"note, free\",amount,when\n")
	for i := range 900 {
		fmt.Fprintf(&b, "%d,\"some words\",\"line one of %d\nline \"\"two\"\"\",%d,2026-08-01\n", i, i, i*3)
	}
	o := openOffload(t, shortDir(t), new(memstore.Store), &team.OffloadOptions{PreviewTokens: 90, Tools: fetchTool})
	s := shorten(t, o, b.String(), team.Source{Name: "x.csv"})
	require.Contains(t, s.Text, "id,name,\"note, free\",amount,when\n")
	require.Contains(t, s.Text, "\n900 rows x 5 columns\n")
}

// Nothing of a preview is spent on empty lines at its end, and they count as cut.
func TestOffloadLeavesOutEmptyLinesAtTheEnd(t *testing.T) {
	text := logLines(3000) + "the end" + strings.Repeat("\n", 40)
	s := shorten(t, newOffload(t, nil), text, team.Source{Class: team.ClassText})
	body, _ := parts(t, s)
	head, tail, ok := strings.Cut(body, "\n[... cut ...]\n")
	require.True(t, ok)
	require.True(t, strings.HasSuffix(tail, "the end"), body)
	require.InDelta(t, len(head)+len(tail), s.Shown, 1, "a line end before the mark may be shown")
}
