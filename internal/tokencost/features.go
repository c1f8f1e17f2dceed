package tokencost

// Features calls f for each weight that a text adds, in its order. Count is the
// sum of them. It is for the fitting program.
func Features(text string, f func(Feature)) {
	state := sStart
	right := uint8(0)
	before := rune(0)
	for i := 0; i < len(text); {
		s, size := symbol{}, 1
		if b := text[i]; b < 0x80 {
			s = asciiSymbol(b)
		} else {
			s, before, size = decode(text[i:], right, before)
		}
		f(Feature(state*classes + int(s.class)))
		if s.left != 0 && paired(right, s.left) {
			f(Feature(states*classes + int(right)*stride + int(s.left)))
		}
		state, right = next(state, int(s.class)), s.right
		i += size
	}
}

// A Feature names one weight of the model.
type Feature int

// Weight returns the weight of a feature, in tokens.
func (f Feature) Weight() float64 {
	if f < states*classes {
		return float64(stepWeights[f/classes][f%classes]) / Unit
	}
	f -= states * classes
	return float64(pairs[f]) / Unit
}

// paired reports whether the pair of a right and a left code has a weight. Where a
// part ends between two letters of ASCII, no merge joins them.
func paired(right, left uint8) bool {
	switch {
	case left >= kPunct:
		return right >= kPunct
	case left < kUpper:
		return right != 0 && right < kCJK
	case left < kCJK:
		return right >= kUpper && right < kCJK
	case left < kEmoji:
		return true
	}
	return right == 0
}

// Steps returns how many features are steps of the machine, and how many of them
// a state has.
func Steps() (all, perState int) { return states * classes, classes }

// Pairs returns the number of codes.
func Pairs() int { return codes }

// PairFeature returns the feature of a pair of codes, or -1 if it has no weight.
func PairFeature(right, left int) Feature {
	if left == 0 || !paired(uint8(right), uint8(left)) {
		return -1
	}
	return Feature(states*classes + right*stride + left)
}

// Prior is what a weight is, in tokens, where no text tells: a new part costs
// about a token, and what continues one nearly nothing.
func (f Feature) Prior() float64 {
	if f >= states*classes {
		return 0.1
	}
	s, c := int(f/classes), int(f%classes)
	switch n := next(s, c); {
	case c == cInvalid:
		return 1
	case n >= sDigit && n < sPunct:
		if n == sDigit {
			return 1
		}
		return f.Least()
	case c == cSpace || c == cTab:
		return 0.1
	case part(n) == part(s) || s == sSpace || s == sLine && c != cDigit:
		return 0.4
	}
	return 0.8
}

// Least returns the least that a weight may be, in tokens. No token of o200k is
// longer than 128 bytes, so no text of any length is free.
func (f Feature) Least() float64 {
	if f < states*classes {
		return 1.0 / 128
	}
	return 0
}

// part returns the kind of part that a state stands for.
func part(s int) int {
	first := 0
	for _, f := range []int{sSpace, sLine, sDigit, sPunct, sWord, sAlpha, sHan, sKana, sHangul, sJoin, sSymbol, sEmoji, sOther} {
		if s >= f {
			first = f
		}
	}
	return first
}
