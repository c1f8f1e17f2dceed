package main

import (
	"math"

	"github.com/teamchan/team/internal/tokencost"
)

// A sample is a piece of text, as how often it adds which weight, and what it
// costs in truth.
type sample struct {
	class    string
	features map[tokencost.Feature]float64
	tokens   float64
	weight   float64
}

// fit returns the weights that make the squares of the relative errors least,
// none of them below its least, so that a longer text never costs less. What the samples
// say little about stays near the prior.
func fit(samples []sample) map[tokencost.Feature]float64 {
	type entry struct {
		sample int
		count  float64
	}
	columns := map[tokencost.Feature][]entry{}
	weights := map[tokencost.Feature]float64{}
	residual := make([]float64, len(samples)) // of the relative value
	scale := make([]float64, len(samples))
	for i, s := range samples {
		residual[i] = 1
		scale[i] = 1 / s.tokens
		for f, n := range s.features {
			columns[f] = append(columns[f], entry{i, n})
			if _, ok := weights[f]; !ok {
				weights[f] = f.Prior()
			}
			residual[i] -= weights[f] * n / s.tokens
		}
	}
	// Coordinate descent: one weight after the other to its best value, until
	// none moves much.
	order := sortedFeatures(weights)
	for range sweeps {
		moved := 0.0
		for _, f := range order {
			up, down := 0.0, ridge
			old := weights[f]
			for _, e := range columns[f] {
				x := e.count * scale[e.sample]
				w := samples[e.sample].weight
				up += w * x * residual[e.sample]
				down += w * x * x
			}
			delta := math.Max((up+ridge*(f.Prior()-old))/down, f.Least()-old)
			if delta == 0 {
				continue
			}
			weights[f] += delta
			moved = math.Max(moved, math.Abs(delta))
			for _, e := range columns[f] {
				residual[e.sample] -= delta * e.count * scale[e.sample]
			}
		}
		if moved < 0.002 {
			break
		}
	}
	return weights
}

const (
	sweeps = 250
	ridge  = 2e-7
)
