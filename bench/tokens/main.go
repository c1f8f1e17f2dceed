// Tokens fits the weights of EstimateTokens to the real o200k tokenizer and
// prints them as Go code:
//
//	go run ./tokens -joins ../internal/tokencost/joins.go
//	go run ./tokens -o ../internal/tokencost/weights.go testdata/fit folder...
//
// The first writes what the model knows of single CJK characters, which the second
// then builds on.
//
// Each folder has a folder of text files for each class of text. The kinds that
// machines make (hex, base64, JSON, logs, emoji, numbers) are generated as well.
// Every class counts the same, whatever its size.
package main

import (
	"flag"
	"fmt"
	"io/fs"
	"log"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"unicode/utf8"

	"github.com/teamchan/team/internal/tokencost"
	"github.com/tiktoken-go/tokenizer/codec"
)

func main() {
	log.SetFlags(0)
	out := flag.String("o", "", "the file to write the weights to")
	perClass := flag.Int("n", 2500, "samples for each class")
	lists := flag.String("joins", "", "the file to write the lists of CJK characters to, instead of a fit")
	flag.Parse()
	if *lists != "" {
		text, err := joins(codec.NewO200kBase())
		if err == nil {
			err = os.WriteFile(*lists, text, 0o666)
		}
		if err != nil {
			log.Fatal(err)
		}
		return
	}
	samples, err := collect(flag.Args(), *perClass)
	if err != nil {
		log.Fatal(err)
	}
	weights := fit(samples)
	report(samples, weights)
	if *out != "" {
		if err := os.WriteFile(*out, code(weights), 0o666); err != nil {
			log.Fatal(err)
		}
	}
}

const (
	sampleBytes = 768
	fewest      = 100 // a class of fewer samples counts less
)

// collect takes samples of every class, from all places of its files.
func collect(folders []string, perClass int) ([]sample, error) {
	pieces := map[string][]string{}
	for _, folder := range folders {
		err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			class := filepath.Base(filepath.Dir(path))
			for _, piece := range split(string(text), sampleBytes) {
				pieces[class] = append(pieces[class], piece)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	for class, generate := range generators {
		for range perClass / 2 {
			pieces[class] = append(pieces[class], generate(r))
		}
	}
	real := codec.NewO200kBase()
	var samples []sample
	classes := make([]string, 0, len(pieces))
	for class := range pieces {
		classes = append(classes, class)
	}
	slices.Sort(classes)
	for _, class := range classes {
		all := pieces[class]
		r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		all = all[:min(len(all), perClass)]
		for _, text := range all {
			n, err := real.Count(text)
			if err != nil {
				return nil, err
			}
			s := sample{class: class, tokens: float64(n), weight: 1 / float64(max(len(all), fewest)), features: map[tokencost.Feature]float64{}}
			tokencost.Features(text, func(f tokencost.Feature) { s.features[f]++ })
			samples = append(samples, s)
		}
	}
	return samples, nil
}

// split cuts a text into pieces of about size bytes, between characters.
func split(text string, size int) []string {
	var pieces []string
	for len(text) >= size {
		n := size
		for n < len(text) && !utf8.RuneStart(text[n]) {
			n++
		}
		pieces = append(pieces, text[:n])
		text = text[n:]
	}
	return pieces
}

func report(samples []sample, weights map[tokencost.Feature]float64) {
	type sum struct{ n, signed, absolute float64 }
	sums := map[string]*sum{}
	var classes []string
	for _, s := range samples {
		got := 0.0
		for f, n := range s.features {
			got += weights[f] * n
		}
		e := got/s.tokens - 1
		if sums[s.class] == nil {
			sums[s.class] = &sum{}
			classes = append(classes, s.class)
		}
		sums[s.class].n++
		sums[s.class].signed += e
		sums[s.class].absolute += math.Abs(e)
	}
	fmt.Fprintf(os.Stderr, "%d samples, %d weights; error of a sample of %d bytes:\n", len(samples), len(weights), sampleBytes)
	for _, class := range classes {
		s := sums[class]
		fmt.Fprintf(os.Stderr, "%-10s %5.0f samples  mean %+5.1f %%  absolute %4.1f %%\n", class, s.n, 100*s.signed/s.n, 100*s.absolute/s.n)
	}
}

func sortedFeatures(weights map[tokencost.Feature]float64) []tokencost.Feature {
	order := make([]tokencost.Feature, 0, len(weights))
	for f := range weights {
		order = append(order, f)
	}
	slices.Sort(order)
	return order
}
