package team

import (
	"regexp"
	"strings"
)

// discard reads the words of what is no command, for the substitutions in them.
func (p *shellParser) discard(i int) (int, error) {
	c := shellCommand{start: i, words: []string{""}}
	return p.words(i, &c, true)
}

func (p *shellParser) simple(start int, first bool) (int, error) {
	c := shellCommand{start: start}
	if p.has(start, "((") {
		end, err := p.nested(start+1, '(', ')')
		if err == nil && !shellExpression.MatchString(p.s[start+2:end-2]) {
			c.end, c.words = end, []string{p.s[start:end]}
			p.found = append(p.found, c)
		}
		return end, err
	}
	docs := len(p.docs)
	end, err := p.words(start, &c, first)
	if err != nil || len(c.words) == 0 {
		return end, err
	}
	for k := docs; k < len(p.docs); k++ {
		if p.docs[k].belong < 0 && first {
			p.docs[k].belong = len(p.found)
		}
	}
	p.found = append(p.found, c)
	return end, nil
}

// words reads words, assignments and redirections into c. With whole, a redirection
// and what is behind it belong to the command's text. A here-string always does, as it is no
// redirection to the host's grammar.
func (p *shellParser) words(i int, c *shellCommand, whole bool) (int, error) {
	redirected := false // words from here on are the redirection's, to the host
	declares := len(c.words) > 0
	before, args := 0, 0 // assignments and redirections before the name, words behind it
	for {
		i = p.blanks(i)
		from := i
		if from, i = p.joined(i); i >= len(p.s) {
			return i, nil
		}
		// Where a name should be, 0 is one.
		if j, isRedirect, err := p.redirect(i); err != nil {
			return 0, err
		} else if isRedirect && (len(c.words) > 0 || p.s[i] != '0') {
			hereString := p.has(i, "<<<")
			if whole || hereString && !redirected {
				c.end = j
			}
			redirected = redirected || !hereString && len(c.words) > 0
			before++
			i = j
			continue
		}
		if p.descriptor(i, len(c.words) > 0) {
			// "- 2>f", "-2>f", "- <<E": the dash is the descriptor's, to the host's grammar.
			redirected = redirected || len(c.words) > 0
			i++
			continue
		}
		ch := p.s[i]
		if (ch == '\n' || ch == '#') && len(c.words) == 0 && before > 1 && len(p.docs) == 0 {
			// "A=1 B=2\nmake": to the host's grammar all this is one command.
			if next := p.lineEnds(i); p.startsCommand(next) {
				i = next
				continue
			}
		}
		switch {
		case strings.IndexByte("\n;&|)#", ch) >= 0, ch == '`' && p.ticks > 0:
			return i, nil
		case ch == '(' && !declares && len(c.words) == 1 && args == 0:
			if end := p.parameters(i); end > i { // name() defines a function
				c.words = nil
				return end, nil
			}
			end, err := p.list(i+1, ")")
			if err != nil {
				return 0, err
			}
			if whole || !redirected {
				c.end = end
			}
			i, args = end, args+1
			continue
		case ch == '(':
			return 0, p.bad("has a bracket where none can be", i)
		}
		end, plain, err := p.word(i)
		if err != nil {
			return 0, err
		}
		if end == i {
			return 0, p.bad("has something where a word should be", i)
		}
		word := p.s[from:end]
		switch {
		case (declares || len(c.words) == 0) && isShellAssignment(word):
			before++
			if p.has(end, "(") {
				if end, err = p.brackets(end); err != nil {
					return 0, err
				}
			}
		case len(c.words) == 0:
			c.words = append(c.words, word)
		default:
			args++
			if plain && !redirected && word != "==" && word != "=~" {
				if strings.HasPrefix(word, `$"`) {
					word = word[1:] // to the host's grammar a "$" and a string
				}
				c.words = append(c.words, word)
			}
		}
		if whole || !redirected {
			c.end = end
		}
		i = end
	}
}

// joined returns where a word starts, and where it goes on behind line ends if they are part of
// it: "a\n\b" is one command to the host's grammar.
func (p *shellParser) joined(i int) (from, to int) {
	from = i
	if p.has(i, "#") {
		from = p.comment(i)
	}
	for to = from; p.has(to, "\n"); to++ {
	}
	if to == from || len(p.docs) > 0 || !p.has(to, "\\") || p.blanks(to) > to || to+1 == len(p.s) {
		return i, i
	}
	return from, to
}

// startsCommand reports whether what is at i can be the name of a command.
func (p *shellParser) startsCommand(i int) bool {
	switch p.keyword(i) {
	case "if", "then", "elif", "else", "fi", "for", "select", "while", "until", "do", "done", "case", "esac", "function", "}":
		return false
	}
	return i < len(p.s) && strings.IndexByte(";&|()", p.s[i]) < 0 && !(p.s[i] == '`' && p.ticks > 0)
}

// isShellAssignment reports whether a word starts with a name and "=". The host's grammar
// lets names start with a digit.
func isShellAssignment(word string) bool {
	name, _, ok := strings.Cut(word, "=")
	name, _, _ = strings.Cut(strings.TrimSuffix(name, "+"), "[")
	return ok && name != "" && strings.Trim(name, shellNameBytes) == ""
}

const shellNameBytes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"

// What ((…)) holds that is no arithmetic to the host's grammar but an expression, so that the
// brackets are no command: "x++" and "x+1" without blanks, "!x", 'x'.
var shellExpression = regexp.MustCompile(`^\s*$|(?:^|[\s()<>|&])(?:\w+(?:[*/!^,.?:-]|\+(?:$|[^=]))|!\w)|\s-\w+\s|\$\w+[^\s)\]<>|&;]|'`)

// word reads one word. Plain is false for one that is only an expansion, a number or a "$".
func (p *shellParser) word(i int) (end int, plain bool, err error) {
	start, pieces, expansions := i, 0, 0
	bare := false // the piece before was bare text
	for i < len(p.s) && err == nil {
		c := p.s[i]
		if strings.IndexByte(shellBlanks+"\n;&|)(", c) >= 0 || c == '`' && p.ticks > 0 {
			break
		}
		if c == '\\' && i+1 < len(p.s) && strings.IndexByte("\t\r\v\f\n", p.s[i+1]) >= 0 {
			break // a continued line parts words, to the host's grammar
		}
		if c == '<' || c == '>' {
			if i == start && p.has(i+1, "(") {
				i, err = p.expansion(i)
				return i, false, err
			}
			break
		}
		piece := true
		switch {
		case c == '\'':
			i, err = p.quoted(i)
		case c == '"':
			i, err = p.string(i + 1)
		case c == '`', c == '$' && i+1 < len(p.s) && strings.IndexByte("({['\"", p.s[i+1]) >= 0:
			translated := p.has(i, `$"`)
			if i, err = p.expansion(i); !translated {
				expansions++
			}
		case c == '$' && i+1 < len(p.s) && isShellVariable(p.s[i+1]):
			i++
			if p.s[i] >= '0' && p.s[i] <= '9' || strings.IndexByte("?!#@*$-", p.s[i]) >= 0 {
				i++
			} else {
				for i < len(p.s) && isShellVariable(p.s[i]) && strings.IndexByte("?!#@*$-", p.s[i]) < 0 {
					i++
				}
			}
			expansions++
		case c == '$':
			i++
			expansions++
		case c == '\\':
			i = min(i+2, len(p.s))
			piece = false
		default:
			i++
			piece = false
		}
		if piece || !bare {
			pieces++
		}
		bare = !piece
	}
	if err != nil {
		return 0, false, err
	}
	word := p.s[start:i]
	number := bare && pieces == 1 && (isShellNumber(word) || isShellRange(word))
	return i, !number && !(pieces == 1 && expansions == 1), nil
}

// isShellRange reports whether a word is like {1..5}.
func isShellRange(word string) bool {
	word, opened := strings.CutPrefix(word, "{")
	word, closed := strings.CutSuffix(word, "}")
	from, to, ok := strings.Cut(word, "..")
	return opened && closed && ok && isShellNumber(from) && isShellNumber(to)
}

// isShellNumber reports whether a word is a number to the host's grammar: 5, -5, 0x10, 16#ff.
func isShellNumber(word string) bool {
	const digits = "0123456789"
	word, base, based := strings.Cut(word, "#")
	word = strings.TrimPrefix(strings.TrimPrefix(word, "-"), "0x")
	return word != "" && strings.Trim(word, digits) == "" &&
		(!based || base != "" && strings.Trim(base, shellNameBytes+"@") == "")
}

// descriptor reports whether a dash is at i, with digits and a redirection, or behind a name a
// here-document, behind it.
func (p *shellParser) descriptor(i int, named bool) bool {
	if p.s[i] != '-' {
		return false
	}
	i = p.blanks(i + 1)
	j := i
	for j < len(p.s) && p.s[j] >= '0' && p.s[j] <= '9' {
		j++
	}
	return j > i && (p.has(j, "<") || p.has(j, ">")) || named && p.has(j, "<<") && !p.has(j, "<<<")
}

func isShellVariable(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("?!#@*$-", c) >= 0
}

// quoted skips a text in single quotation marks.
func (p *shellParser) quoted(i int) (int, error) {
	if n := strings.IndexByte(p.s[i+1:], '\''); n >= 0 {
		return i + n + 2, nil
	}
	return 0, p.bad("has a quotation mark that is not closed", i)
}

// string reads to behind the quotation mark that ends a string.
func (p *shellParser) string(i int) (int, error) {
	for start := i; ; {
		var err error
		switch {
		case i >= len(p.s):
			return 0, p.bad("has a quotation mark that is not closed", start-1)
		case p.s[i] == '"':
			return i + 1, nil
		case p.s[i] == '\\':
			i += 2
		case p.s[i] == '`', p.has(i, "$("), p.has(i, "${"):
			if i, err = p.expansion(i); err != nil {
				return 0, err
			}
		default:
			i++
		}
	}
}
