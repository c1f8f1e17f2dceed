package team

import (
	"github.com/teamchan/team/internal/grapheme"
	"github.com/teamchan/team/internal/tokencost"
)

// EstimateTokens returns about how many tokens a text costs in a model's
// context: a linear model, fitted to the o200k vocabulary, that carries no
// vocabulary and no pattern. Over pieces of 6 KB it is wrong by 2 % on average and
// by 10 % at most for any kind of text that is in its tests: prose, Markdown, code, JSON, logs,
// hex, base64, Chinese, Japanese, Korean, emoji (ARCHITECTURE.md has the figures).
// A single line can be wrong by more, and other vocabularies count otherwise.
//
// A text that is not empty costs at least one, a longer text never less than its
// beginning, and bytes that are no UTF-8 about a token each. The time is linear
// in the length of the text.
func EstimateTokens(text string) int { return tokencost.Count(text) }

// FitTokens returns the longest beginning of text that costs at most budget, by
// EstimateTokens, and ends between two grapheme clusters (Unicode Standard
// Annex #29), so that no character, accent, flag, emoji or conjunct falls apart.
// It is text itself if that fits. A cluster that is longer than the budget is
// left out whole, so the result can be empty; for a budget below one it is.
// Bytes that are no UTF-8 stay as they are.
func FitTokens(text string, budget int) string {
	return text[:grapheme.Floor(text, tokencost.Prefix(text, budget))]
}

// FitTokensTail is FitTokens for the end of a text. What a word costs depends a
// little on where it is cut off, so a few tokens more might have fitted.
func FitTokensTail(text string, budget int) string {
	for aim := budget; ; aim-- {
		tail := text[grapheme.Ceil(text, tokencost.Suffix(text, aim)):]
		if tail == "" || tokencost.Count(tail) <= budget {
			return tail
		}
	}
}
