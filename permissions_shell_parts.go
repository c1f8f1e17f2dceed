package team

import "strings"

// expansion reads $(…), ${…}, $((…)), $[…], $'…', $"…", `…`, <(…) or >(…), and the commands in it.
func (p *shellParser) expansion(i int) (int, error) {
	if p.depth++; p.depth > 100 {
		return 0, p.bad("is nested too deep", i)
	}
	defer func() { p.depth-- }()
	switch {
	case p.s[i] == '`':
		p.ticks++
		defer func() { p.ticks-- }()
		return p.list(i+1, "`")
	case p.has(i, "$((") && p.arithmetic(i+1):
		return p.nested(i+2, '(', ')')
	case p.has(i, "$'"):
		for j := i + 2; j < len(p.s); j++ {
			if p.s[j] == '\\' {
				j++
			} else if p.s[j] == '\'' {
				return j + 1, nil
			}
		}
		return 0, p.bad("has a quotation mark that is not closed", i)
	case p.has(i, `$"`):
		return p.string(i + 2)
	case p.has(i, "${"):
		return p.nested(i+2, '{', '}')
	case p.has(i, "$["):
		return p.nested(i+2, '[', ']')
	}
	ticks := p.ticks
	p.ticks = 0
	defer func() { p.ticks = ticks }()
	return p.list(i+2, ")")
}

// brackets reads (…) that holds words, and the commands in them.
func (p *shellParser) brackets(i int) (int, error) { return p.nested(i+1, '(', ')') }

// arithmetic reports whether ((…)) stands at i: the two brackets at its start are closed by
// two together. Else it is a group in a group.
func (p *shellParser) arithmetic(i int) bool {
	if !p.has(i, "((") {
		return false
	}
	// A look without going into what is nested, or every level would double the work.
	depth := 0
	for i++; i < len(p.s); i++ {
		switch c := p.s[i]; c {
		case '\\':
			i++
		case '\'', '"':
			n := strings.IndexByte(p.s[i+1:], c)
			if n < 0 {
				return true // not closed, as will turn out
			}
			i += n + 1
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return p.has(i+1, ")")
			}
		}
	}
	return true
}

// nested reads to behind the bracket that closes, past quotations and expansions.
func (p *shellParser) nested(i int, opens, closes byte) (int, error) {
	start, depth := i, 1
	for i < len(p.s) {
		var err error
		switch c := p.s[i]; {
		case c == '\\':
			i += 2
		case c == '\'':
			i, err = p.quoted(i)
		case c == '"':
			i, err = p.string(i + 1)
		case c == '`', p.has(i, "$("), p.has(i, "${"):
			i, err = p.expansion(i)
		case c == opens:
			depth++
			i++
		case c == closes:
			i++
			if depth--; depth == 0 {
				return i, nil
			}
		default:
			i++
		}
		if err != nil {
			return 0, err
		}
	}
	return 0, p.bad("has a bracket that is not closed", start-1)
}

// test reads the words of [[ … ]].
func (p *shellParser) test(i int, end string) (int, error) {
	for start := i; ; {
		if i = p.blanks(i); i >= len(p.s) {
			return 0, p.bad("ends before its "+end, start)
		}
		if p.keyword(i) == end {
			return p.redirects(i + len(end))
		}
		if strings.IndexByte("\n;&|()<>", p.s[i]) >= 0 && !p.has(i, "<(") {
			i++
			continue
		}
		var err error
		at := i
		if i, _, err = p.word(i); err != nil {
			return 0, err
		}
		if i == at {
			return 0, p.bad("has something where a word should be", i)
		}
	}
}

// branches reads the word of a case and its branches.
func (p *shellParser) branches(i int) (int, error) {
	i, _, err := p.word(p.blanks(i))
	if err != nil {
		return 0, err
	}
	if i = p.lineEnds(i); p.keyword(i) != "in" {
		return 0, p.bad("has a case without in", i)
	}
	for i += 2; ; {
		i = p.lineEnds(i)
		if i >= len(p.s) {
			return 0, p.bad("ends before its esac", i)
		}
		if p.keyword(i) == "esac" {
			return i + 4, nil
		}
		if p.s[i] == '(' {
			i++
		}
		for { // patterns
			if i = p.blanks(i); i >= len(p.s) {
				return 0, p.bad("ends before its esac", i)
			}
			if p.s[i] == ')' {
				i++
				break
			}
			if p.s[i] == '|' {
				i++
				continue
			}
			end, _, err := p.word(i)
			if err != nil {
				return 0, err
			}
			if end == i {
				return 0, p.bad("has a branch without a pattern", i)
			}
			i = end
		}
		if i, err = p.list(i, ";;"); err != nil {
			return 0, err
		}
		for i < len(p.s) && (p.s[i] == ';' || p.s[i] == '&') {
			i++
		}
	}
}

// redirect reads a redirection with its target, if there is one at i.
func (p *shellParser) redirect(i int) (end int, ok bool, err error) {
	j := i
	for j < len(p.s) && p.s[j] >= '0' && p.s[j] <= '9' {
		j++
	}
	op := ""
	for _, o := range []string{"<<<", "<<-", "&>>", "<<", ">>", ">&", "<&", "&>", ">|", "<>", "<", ">"} {
		if p.has(j, o) {
			op = o
			break
		}
	}
	if op == "" || op[0] == '&' && j > i || (op == "<" || op == ">") && p.has(j+1, "(") {
		return i, false, nil
	}
	j = p.blanks(j + len(op))
	start := j
	if (op == ">&" || op == "<&") && p.has(j, "-") {
		return j + 1, true, nil
	}
	if j, _, err = p.word(j); err != nil {
		return 0, false, err
	}
	if j == start {
		return 0, false, p.bad("has a redirection to nowhere", start)
	}
	if op == "<<" || op == "<<-" {
		word := p.s[start:j]
		plain := strings.NewReplacer("'", "", `"`, "", `\`, "").Replace(word)
		p.docs = append(p.docs, hereDoc{end: plain, plain: plain != word, belong: -1})
	}
	return j, true, nil
}

// documents reads the here-documents that start at i, behind a line end. To the host, blanks may
// stand before the word that ends one, and the rest of that line is read on.
func (p *shellParser) documents(i *int) error {
	docs := p.docs
	p.docs = nil
	for _, d := range docs {
		if p.has(*i, "\n") {
			*i++ // of the line that ended the one before
		}
		start, line, end := *i, *i, -1
		for ; end < 0; line += strings.IndexByte(p.s[line:], '\n') + 1 {
			blank := len(p.s[line:]) - len(strings.TrimLeft(p.s[line:], " \t"))
			if p.has(line+blank, d.end) && p.closesLine(line+blank+len(d.end)) {
				end = line + blank + len(d.end)
				break
			}
			if strings.IndexByte(p.s[line:], '\n') < 0 {
				return p.bad("ends before its here-document "+quoteName(d.end), start)
			}
		}
		if !d.plain {
			if err := p.substitutions(start, line); err != nil {
				return err
			}
		}
		if d.belong >= 0 {
			p.found[d.belong].end = end
		}
		*i = end
	}
	return nil
}

// closesLine reports whether nothing that could be part of a here-document is at i.
func (p *shellParser) closesLine(i int) bool {
	rest := strings.TrimLeft(p.s[i:], " \t\r")
	return rest == "" || strings.IndexByte("\n;&|)", rest[0]) >= 0
}

// substitutions reads the commands in a here-document. Those in backticks the host does not see.
func (p *shellParser) substitutions(i, end int) error {
	inner := shellParser{s: p.s[:end], depth: p.depth}
	for i < end {
		var err error
		switch {
		case inner.s[i] == '\\':
			i += 2
		case inner.has(i, "$("): // also $((…)): to the host's grammar it is a group in here
			if i, err = inner.list(i+2, ")"); err != nil {
				return err
			}
		case inner.has(i, "${"):
			if i, err = inner.expansion(i); err != nil {
				return err
			}
		default:
			i++
		}
	}
	p.found = append(p.found, inner.found...)
	return nil
}
