package team_test

import (
	"fmt"
	"strings"

	"github.com/teamchan/team"
)

func ExampleEstimateTokens() {
	fmt.Println(team.EstimateTokens("The quick brown fox jumps over the lazy dog."))
	fmt.Println(team.EstimateTokens(`{"id": 7, "ok": true}`), team.EstimateTokens("敏捷的棕色狐狸"))
	// Output:
	// 11
	// 11 8
}

// A text is cut to a budget, and never inside of what a reader sees as one character.
func ExampleFitTokens() {
	text := strings.Repeat("one two three 👩‍👩‍👧 ", 50)
	for _, budget := range []int{8, 16} {
		fmt.Println("[" + team.FitTokens(text, budget) + "]")
	}
	// Output:
	// [one two three ]
	// [one two three 👩‍👩‍👧 one two three ]
}
