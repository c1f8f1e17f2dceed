package team

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// A ShellAsk is what OpenCode 1.18 asks for before a shell command runs.
type ShellAsk struct {
	// Patterns are the resources: each simple command as it is written, in order and
	// without doubles, also those in pipes, groups, substitutions and bodies of
	// functions. A change of the folder alone (cd, pushd, popd) is none.
	Patterns []string

	// Always are the patterns that an answer "always" would allow, one for the name of
	// each command: "git commit *", "ls *".
	Always []string
}

// ParseShell takes a command of a POSIX shell or bash apart into what OpenCode 1.18 asks
// for. Pass the patterns to EvaluateAll with the permission "bash". It takes time linear in
// the command.
//
// Like the host, it leaves out what is no command to it: assignments, tests in brackets,
// export and its like. A redirection belongs to a pattern only if its command
// is the first of a pipe or list. What the host asks beside this, for folders outside of the
// project (external_directory), needs the disk and is not here.
//
// A command with an end missing (a quotation mark, a bracket) is an *InvalidError, and so is
// one that is nested more than 100 deep: ask for it as a whole.
func ParseShell(command string) (ShellAsk, error) {
	p := shellParser{s: command}
	if _, err := p.list(len(command)-len(strings.TrimPrefix(command, "\uFEFF")), ""); err != nil {
		return ShellAsk{}, err
	}
	slices.SortStableFunc(p.found, func(a, b shellCommand) int { return cmp.Compare(a.start, b.start) })
	var ask ShellAsk
	patterns, always := make(map[string]bool), make(map[string]bool)
	for _, c := range p.found {
		switch c.words[0] {
		case "cd", "chdir", "popd", "pushd", "push-location", "set-location":
			continue
		}
		if s := strings.TrimFunc(command[c.start:c.end], isScriptSpace); !patterns[s] {
			patterns[s] = true
			ask.Patterns = append(ask.Patterns, s)
		}
		if s := strings.Join(c.words[:min(wordsOfName(c.words), len(c.words))], " ") + " *"; !always[s] {
			always[s] = true
			ask.Always = append(ask.Always, s)
		}
	}
	return ask, nil
}

// isScriptSpace reports whether JavaScript's trim takes r off.
func isScriptSpace(r rune) bool { return unicode.IsSpace(r) && r != 0x85 || r == 0xFEFF }

// Commands whose name is more than one word, by the number of words. A longer name goes
// first.
var shellNames = map[int][]string{
	2: strings.Fields(`bazel brew bun cargo cdk cf cmake composer consul crictl deno docker eksctl firebase flyctl git go
		gradle helm heroku hugo ip kind kubectl kustomize make mc minikube mongosh mysql mvn ng npm nvm nx openssl pip pipenv pnpm
		poetry podman psql pulumi pyenv python rake rbenv redis-cli rustup serverless skaffold sls sst swift systemctl terraform tmux
		turbo ufw vault vercel volta wp yarn`),
	3: append(strings.Fields(`aws az doctl gcloud gh sfdx`),
		"bun run", "bun x", "cargo add", "cargo run", "consul kv", "deno task", "docker builder", "docker compose", "docker container",
		"docker image", "docker network", "docker volume", "eksctl create", "git config", "git remote", "git stash", "ip addr", "ip link",
		"ip netns", "ip route", "kind create", "kubectl kustomize", "kubectl rollout", "mc admin", "npm exec", "npm init", "npm run",
		"npm view", "openssl req", "openssl x509", "pnpm dlx", "pnpm exec", "pnpm run", "podman container", "podman image",
		"pulumi stack", "terraform workspace", "vault auth", "vault kv", "yarn dlx", "yarn run"),
}

func wordsOfName(words []string) int {
	switch words[0] {
	case "constructor", "hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable", "toLocaleString", "toString", "valueOf",
		"__proto__", "__defineGetter__", "__defineSetter__", "__lookupGetter__", "__lookupSetter__":
		return 0 // the host looks the name up in a JavaScript object, which has these
	}
	for n := min(2, len(words)); n > 0; n-- {
		name := strings.Join(words[:n], " ")
		for _, most := range []int{3, 2} {
			if slices.Contains(shellNames[most], name) {
				return most
			}
		}
	}
	return 1
}

type shellCommand struct {
	start, end int
	words      []string // the name and the arguments that are no bare expansion or number
}

type shellParser struct {
	s     string
	found []shellCommand
	docs  []hereDoc // whose text starts at the next line end
	depth int
	ticks int // how many backtick substitutions are open
}

type hereDoc struct {
	end    string
	plain  bool // no substitutions in it
	belong int  // index of the command that it belongs to, or -1
}

func (p *shellParser) bad(why string, at int) error {
	return &InvalidError{What: "shell command", Why: why, Offset: at, Advice: "ask for it as a whole"}
}

func (p *shellParser) has(i int, prefix string) bool { return strings.HasPrefix(p.s[i:], prefix) }

const shellBlanks = " \t\r\v\f"

// blanks skips spaces, also those with a backslash before them, and continued lines.
func (p *shellParser) blanks(i int) int {
	for i < len(p.s) {
		switch {
		case strings.IndexByte(shellBlanks, p.s[i]) >= 0:
			i++
		case p.has(i, "\\") && i+1 < len(p.s) && strings.IndexByte(" \t\v\f\n", p.s[i+1]) >= 0:
			i += 2
		case p.has(i, "\\\r\n"):
			i += 3
		default:
			return i
		}
	}
	return i
}

// lineEnds skips blanks, line ends and comments.
func (p *shellParser) lineEnds(i int) int {
	for {
		i = p.blanks(i)
		switch {
		case p.has(i, "\n"):
			i++
		case p.has(i, "#"):
			i = p.comment(i)
		default:
			return i
		}
	}
}

// comment returns the end of the comment at i.
func (p *shellParser) comment(i int) int {
	for i < len(p.s) && p.s[i] != '\n' && !(p.ticks > 0 && p.s[i] == '`') {
		i++
	}
	return i
}

// A shellList is where the reading of a list of commands stands.
type shellList struct {
	first  bool     // the next command is the first of a pipe or list
	joined bool     // an operator was read that goes on behind line ends
	open   []string // the words that the open if, while, for and { wait for
	docs   int      // how many here-documents were open at the last operator
}

// operator notes that && or the like was read. Behind a here-document the next command is the
// first again, since to the host's grammar what is in its line belongs to it.
func (l *shellList) operator(p *shellParser) {
	l.first, l.joined = len(p.docs) > l.docs, true
	l.docs = len(p.docs)
}

// waits reports whether the list waits for word, and at a place where that can be.
func (l *shellList) waits(word string) bool {
	n := len(l.open)
	if n == 0 || !l.first {
		return false
	}
	switch word {
	case "elif", "else":
		return l.open[n-1] == "fi"
	case "{":
		return l.open[n-1] == "do" // of a for with brackets
	}
	return l.open[n-1] == word
}

// list reads commands from i until what closes them: ")", "`", ";;" for a branch of a
// case (esac closes it too, and is left to the caller), or the end.
func (p *shellParser) list(i int, end string) (int, error) {
	if p.depth++; p.depth > 100 {
		return 0, p.bad("is nested too deep", i)
	}
	defer func() { p.depth-- }()
	l := shellList{first: true, docs: len(p.docs)}
	for {
		i = p.blanks(i)
		if closed := p.closes(i, end); closed > 0 || end == "" && i >= len(p.s) {
			if n := len(l.open); n > 0 {
				return 0, p.bad("ends before its "+l.open[n-1], i)
			}
			if end == ";;" {
				closed = 0
			}
			i += closed
			if end == "" {
				return i, p.documents(&i)
			}
			return i, nil
		}
		var err error
		switch {
		case i >= len(p.s):
			return 0, p.bad("ends before its "+end, i)
		case p.s[i] == '\n':
			i++
			l.first, l.docs = l.first || !l.joined, 0
			err = p.documents(&i)
		case p.s[i] == '#':
			i = p.comment(i)
		case p.s[i] == ';':
			i++
			l.first, l.joined = true, false
		case p.has(i, "&&"), p.has(i, "||"):
			i += 2
			l.operator(p)
		case p.s[i] == '|':
			if i++; p.has(i, "&") {
				i++
			}
			l.operator(p)
		case p.s[i] == '&' && !p.has(i, "&>"):
			i++
			l.first, l.joined = true, false
		case p.s[i] == '(' && !p.arithmetic(i):
			if i, err = p.list(i+1, ")"); err == nil {
				i, err = p.redirects(i)
			}
			l.joined = false
		case p.s[i] == ')':
			return 0, p.bad("has a bracket that nothing opens", i)
		default:
			at := i
			if i, err = p.command(i, &l); err == nil && i == at {
				err = p.bad("has something where a command should be", i)
			}
		}
		if err != nil {
			return 0, err
		}
	}
}

// closes returns how long what is at i and closes a list is, or 0.
func (p *shellParser) closes(i int, end string) int {
	switch end {
	case ")", "`":
		if p.has(i, end) {
			return 1
		}
	case ";;":
		if p.has(i, ";;") || p.has(i, ";&") {
			return 2
		}
		if p.keyword(i) == "esac" {
			return 4
		}
	}
	return 0
}

// redirects reads the redirections of a group, and the words behind them, which belong to
// them.
func (p *shellParser) redirects(i int) (int, error) {
	if _, ok, err := p.redirect(p.blanks(i)); !ok || err != nil {
		return i, err
	}
	return p.discard(i)
}

// keyword returns the plain word at i.
func (p *shellParser) keyword(i int) string {
	rest := p.s[i:min(i+16, len(p.s))]
	if end := strings.IndexAny(rest, " \t\r\v\f\n;&|()<>`"); end >= 0 {
		rest = rest[:end]
	}
	return rest
}

// command reads a simple command, or the keyword before one.
func (p *shellParser) command(i int, l *shellList) (int, error) {
	word := p.keyword(i)
	if l.waits(word) {
		last := &l.open[len(l.open)-1]
		switch word {
		case "then":
			*last = "fi"
		case "elif":
			*last = "then"
		case "do":
			*last = "done"
		case "{":
			*last = "}"
		case "fi", "done", "}":
			l.open = l.open[:len(l.open)-1]
			l.joined = false
			return p.redirects(i + len(word))
		}
		return i + len(word), nil
	}
	opens := map[string]string{"if": "then", "while": "do", "until": "do", "{": "}"}[word]
	if opens != "" {
		l.open = append(l.open, opens)
		l.first, l.joined = true, false
		return i + len(word), nil
	}
	first := l.first
	if p.has(i, "!") && (word == "!" || strings.IndexByte("$\"'{`", p.s[i+1]) >= 0) {
		l.first, l.joined = false, true // a redirection is of the negation
		i = p.blanks(i + 1)
		switch word = p.keyword(i); word {
		case "!", "export", "declare", "typeset", "readonly", "local", "unset", "unsetenv",
			"{", "if", "while", "until", "for", "select", "case", "function":
			l.joined = false
			return p.simple(i, false) // negated they are commands to the host's grammar
		}
		return i, nil
	}
	l.joined = false
	switch word {
	case "[[":
		return p.test(i+2, "]]")
	case "for", "select":
		l.open = append(l.open, "do")
		l.first = true
		if j := p.blanks(i + len(word)); p.has(j, "((") {
			return p.brackets(j)
		}
		return p.discard(i + len(word))
	case "case":
		end, err := p.branches(i + len(word))
		if err != nil {
			return 0, err
		}
		return p.redirects(end)
	case "function":
		i = p.blanks(i + len(word))
		i += len(p.keyword(i))
		l.first, l.joined = true, true
		return p.parameters(i), nil
	case "export", "declare", "typeset", "readonly", "local", "unset", "unsetenv":
		return p.discard(i + len(word))
	}
	switch {
	case word == "[":
		return p.test(i+1, "]")
	case p.has(i, "["):
		return p.discard(i + 1)
	}
	return p.simple(i, first)
}

// parameters skips the empty brackets behind the name of a function, if they are there.
func (p *shellParser) parameters(i int) int {
	if j := p.blanks(i); p.has(j, "(") {
		if j = p.blanks(j + 1); p.has(j, ")") {
			return j + 1
		}
	}
	return i
}

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
