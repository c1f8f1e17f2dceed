package main

import (
	"encoding/json"
	"flag"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/teamchan/team"
	"github.com/teamchan/team/internal/tokencost"
	"github.com/tiktoken-go/tokenizer/codec"
)

var update = flag.Bool("update", false, "write the true counts of the corpus")

const (
	corpus     = "../testdata/tokens"
	pieceBytes = 6 << 10
)

// measure returns the mean error and the mean absolute error of texts.
func measure(t *testing.T, real *codec.Codec, texts []string) (mean, absolute float64) {
	t.Helper()
	require.NotEmpty(t, texts)
	for _, text := range texts {
		n, err := real.Count(text)
		require.NoError(t, err)
		e := float64(team.EstimateTokens(text))/float64(n) - 1
		mean += e
		absolute += math.Abs(e)
	}
	return mean / float64(len(texts)), absolute / float64(len(texts))
}

// The corpus was not in the fit.
func TestEstimateIsWithinFivePercentOnTheCorpus(t *testing.T) {
	real := codec.NewO200kBase()
	classes := map[string][]string{}
	counts := map[string]int{}
	var all []string
	err := filepath.WalkDir(corpus, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		require.LessOrEqual(t, len(text), pieceBytes, path)
		name, err := filepath.Rel(corpus, path)
		if err != nil {
			return err
		}
		class := filepath.Base(filepath.Dir(path))
		classes[class] = append(classes[class], string(text))
		all = append(all, string(text))
		counts[filepath.ToSlash(name)], err = real.Count(string(text))
		return err
	})
	require.NoError(t, err)
	for _, class := range []string{"prose", "md", "ts", "py", "json", "logs", "hex", "base64", "zh", "ja", "ko", "emoji"} {
		mean, absolute := measure(t, real, classes[class])
		t.Logf("%-7s %2d pieces  mean %+5.1f %%  absolute %4.1f %%", class, len(classes[class]), 100*mean, 100*absolute)
		require.LessOrEqual(t, absolute, 0.10, class)
		if class == "zh" || class == "ja" || class == "ko" {
			require.GreaterOrEqual(t, mean, -0.05, class)
		}
	}
	mean, absolute := measure(t, real, all)
	t.Logf("%-7s %2d pieces  mean %+5.1f %%  absolute %4.1f %%", "all", len(all), 100*mean, 100*absolute)
	require.LessOrEqual(t, absolute, 0.05)

	if *update {
		text, err := json.MarshalIndent(counts, "", "\t")
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(corpus+".json", append(text, '\n'), 0o666))
	}
	text, err := os.ReadFile(corpus + ".json")
	require.NoError(t, err)
	var kept map[string]int
	require.NoError(t, json.Unmarshal(text, &kept))
	require.Equal(t, counts, kept, "go test ./tokens -update writes the counts that the root's tests compare with")
}

// Texts that are not ours and so not in the repository: Go's own sources, and this
// module's, which change with every commit.
func TestEstimateIsWithinFivePercentOnGo(t *testing.T) {
	real := codec.NewO200kBase()
	for _, folder := range []string{filepath.Join(runtime.GOROOT(), "src", "net", "http"), filepath.Join(runtime.GOROOT(), "src", "strconv"), "../.."} {
		paths, err := filepath.Glob(filepath.Join(folder, "*.go"))
		require.NoError(t, err)
		var texts []string
		for _, path := range paths {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			texts = append(texts, split(string(text), pieceBytes)...)
		}
		texts = texts[:min(len(texts), 60)]
		mean, absolute := measure(t, real, texts)
		t.Logf("%-30s %2d pieces  mean %+5.1f %%  absolute %4.1f %%", folder, len(texts), 100*mean, 100*absolute)
		require.LessOrEqual(t, absolute, 0.05, folder)
	}
}

// The fit sees what Count adds up, or it would fit another model.
func TestCountIsTheSumOfItsFeatures(t *testing.T) {
	err := filepath.WalkDir(corpus, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		sum := 0.0
		tokencost.Features(string(text)+"\xff\x80", func(f tokencost.Feature) { sum += f.Weight() })
		require.Equal(t, int(math.Ceil(sum)), tokencost.Count(string(text)+"\xff\x80"), path)
		return err
	})
	require.NoError(t, err)
}

// A fit of a few weights that are known must find them.
func TestFitFindsWeights(t *testing.T) {
	words := strings.Fields("alpha beta, 12 gamma_delta 4567 {x} \"y\": z;")
	truth := func(f tokencost.Feature) float64 { return 0.25 + float64(f%5)/4 }
	var samples []sample
	for i := range 400 {
		var text string
		for j := range 5 {
			text += words[(i*7+j*j*3+i/8)%len(words)] + " "
		}
		s := sample{class: "made", weight: 1, features: map[tokencost.Feature]float64{}}
		tokencost.Features(text, func(f tokencost.Feature) {
			s.features[f]++
			s.tokens += truth(f)
		})
		samples = append(samples, s)
	}
	weights := fit(samples)
	for _, s := range samples {
		got := 0.0
		for f, n := range s.features {
			require.GreaterOrEqual(t, weights[f], f.Least())
			got += n * weights[f]
		}
		require.InEpsilon(t, s.tokens, got, 0.01)
	}
}

func TestCodeOfTheListsIsCurrent(t *testing.T) {
	want, err := joins(codec.NewO200kBase())
	require.NoError(t, err)
	got, err := os.ReadFile("../../internal/tokencost/joins.go")
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
}
