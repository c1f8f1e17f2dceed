package team

// EstimateTokens returns about how many tokens a text costs in a model's
// context: one for each code point from U+2E80 on (CJK, emoji), a quarter for
// every other, rounded up. It never undercounts Chinese the way that bytes or
// characters divided by four do. The rule is that of the OpenCode plugin that had
// boards first; it is coarse for code and logs.
func EstimateTokens(text string) int {
	quarters := 0
	for _, r := range text {
		if r >= 0x2E80 {
			quarters += 4
		} else {
			quarters++
		}
	}
	return (quarters + 3) / 4
}
