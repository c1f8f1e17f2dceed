package team

import (
	"cmp"
	"slices"
	"strings"
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
	if _, err := p.list(0, ""); err != nil {
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
		if s := strings.TrimSpace(command[c.start:c.end]); !patterns[s] {
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
	tabs   bool // tabs before a line do not count
	plain  bool // no substitutions in it
	belong int  // index of the command that it belongs to, or -1
}

func (p *shellParser) bad(why string, at int) error {
	return &InvalidError{What: "shell command", Why: why, Offset: at, Advice: "ask for it as a whole"}
}

func (p *shellParser) has(i int, prefix string) bool { return strings.HasPrefix(p.s[i:], prefix) }

// blanks skips spaces and continued lines.
func (p *shellParser) blanks(i int) int {
	for i < len(p.s) {
		switch {
		case p.s[i] == ' ' || p.s[i] == '\t' || p.s[i] == '\r':
			i++
		case p.has(i, "\\\n"):
			i += 2
		default:
			return i
		}
	}
	return i
}

// list reads commands from i until what closes them: ")", "`", ";;" for a branch of a
// case (esac closes it too, and is left to the caller), or the end.
func (p *shellParser) list(i int, end string) (int, error) {
	if p.depth++; p.depth > 100 {
		return 0, p.bad("is nested too deep", i)
	}
	defer func() { p.depth-- }()
	first := true // of a pipe or list
	for {
		i = p.blanks(i)
		var err error
		switch {
		case i >= len(p.s):
			if end != "" {
				return 0, p.bad("ends before its "+end, i)
			}
			return i, p.documents(&i)
		case p.s[i] == '\n':
			i++
			first = true
			err = p.documents(&i)
		case p.s[i] == '#':
			for i < len(p.s) && p.s[i] != '\n' && !(end == "`" && p.s[i] == '`') {
				i++
			}
		case p.s[i] == ';':
			if end == ";;" && (p.has(i, ";;") || p.has(i, ";&")) {
				return i, nil
			}
			i++
			first = true
		case p.has(i, "&&"), p.has(i, "||"):
			i += 2
			first = false
		case p.s[i] == '|':
			if i++; p.has(i, "&") {
				i++
			}
			first = false
		case p.s[i] == '&' && !p.has(i, "&>"):
			i++
			first = true
		case p.s[i] == '(' && !p.arithmetic(i):
			i, err = p.list(i+1, ")")
		case p.s[i] == ')':
			if end != ")" {
				return 0, p.bad("has a bracket that nothing opens", i)
			}
			return i + 1, nil
		case p.s[i] == '`' && end == "`":
			return i + 1, nil
		case end == ";;" && p.keyword(i) == "esac":
			return i, nil
		default:
			at := i
			if i, err = p.command(i, &first); err == nil && i == at {
				err = p.bad("has something where a command should be", i)
			}
		}
		if err != nil {
			return 0, err
		}
	}
}

// keyword returns the plain word at i.
func (p *shellParser) keyword(i int) string {
	rest := p.s[i:min(i+16, len(p.s))]
	if end := strings.IndexAny(rest, " \t\r\n;&|()<>`"); end >= 0 {
		rest = rest[:end]
	}
	return rest
}

// command reads a simple command, or the keyword before one.
func (p *shellParser) command(i int, first *bool) (int, error) {
	switch word := p.keyword(i); word {
	case "if", "then", "elif", "else", "while", "until", "do", "{":
		*first = true
		return i + len(word), nil
	case "!":
		*first = false // a redirection is of the negation
		i = p.blanks(i + len(word))
		switch p.keyword(i) {
		case "export", "declare", "typeset", "readonly", "local", "unset", "unsetenv":
			return p.simple(i, false) // negated they are commands to the host's grammar
		}
		return i, nil
	case "fi", "done", "}":
		return i + len(word), nil
	case "[[":
		return p.test(i+2, "]]")
	case "for", "select":
		if j := p.blanks(i + len(word)); p.has(j, "((") {
			return p.brackets(j)
		}
		return p.discard(i + len(word))
	case "case":
		return p.branches(i + len(word))
	case "function":
		i = p.blanks(i + len(word))
		i += len(p.keyword(i))
		if j := p.blanks(i); p.has(j, "(") {
			return p.brackets(j)
		}
		return i, nil
	case "export", "declare", "typeset", "readonly", "local", "unset", "unsetenv", "[":
		return p.discard(i + len(word))
	}
	return p.simple(i, *first)
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
		if err == nil {
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
	for {
		i = p.blanks(i)
		if i >= len(p.s) {
			return i, nil
		}
		if j, isRedirect, err := p.redirect(i); err != nil {
			return 0, err
		} else if isRedirect {
			hereString := p.has(i, "<<<")
			if whole || hereString && !redirected {
				c.end = j
			}
			redirected = redirected || !hereString && len(c.words) > 0
			i = j
			continue
		}
		if p.descriptor(i) {
			// "- 2>f", "-2>f", "- <<E": the dash is the descriptor's, to the host's grammar.
			redirected = redirected || len(c.words) > 0
			i++
			continue
		}
		switch ch := p.s[i]; {
		case strings.IndexByte("\n;&|)#", ch) >= 0, ch == '`' && p.ticks > 0:
			return i, nil
		case ch == '(':
			if len(c.words) == 1 && p.has(p.blanks(i+1), ")") { // name() defines a function
				c.words = nil
				return p.blanks(i+1) + 1, nil
			}
			return 0, p.bad("has a bracket where none can be", i)
		}
		end, plain, err := p.word(i)
		if err != nil {
			return 0, err
		}
		if end == i {
			return 0, p.bad("has something where a word should be", i)
		}
		word := p.s[i:end]
		switch {
		case len(c.words) == 0 && isShellAssignment(word):
			if end < len(p.s) && p.s[end] == '(' {
				if end, err = p.brackets(end); err != nil {
					return 0, err
				}
			}
		case len(c.words) == 0 || plain && !redirected:
			c.words = append(c.words, word)
		}
		if whole || !redirected {
			c.end = end
		}
		i = end
	}
}

// isShellAssignment reports whether a word starts with a name and "=".
func isShellAssignment(word string) bool {
	name, _, ok := strings.Cut(word, "=")
	name, _, _ = strings.Cut(strings.TrimSuffix(name, "+"), "[")
	return ok && name != "" && (name[0] < '0' || name[0] > '9') &&
		strings.Trim(name, shellNameBytes) == ""
}

const shellNameBytes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"

// word reads one word. Plain is false for one that is only an expansion, or a number.
func (p *shellParser) word(i int) (end int, plain bool, err error) {
	start, pieces, expansions := i, 0, 0
	bare := false // the piece before was bare text
	for i < len(p.s) && err == nil {
		c := p.s[i]
		if strings.IndexByte(" \t\r\n;&|)(", c) >= 0 || c == '`' && p.ticks > 0 || (c == '<' || c == '>') && !p.has(i+1, "(") || p.has(i, "\\\n") {
			break // a continued line parts words, to the host's grammar
		}
		piece := true
		switch {
		case c == '\'':
			i, err = p.quoted(i)
		case c == '"':
			i, err = p.string(i + 1)
		case c == '`', c == '$' && i+1 < len(p.s) && strings.IndexByte("({'\"", p.s[i+1]) >= 0, c == '<', c == '>':
			i, err = p.expansion(i)
			expansions++
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
	number := bare && pieces == 1 && isShellNumber(p.s[start:i])
	return i, !number && !(pieces == 1 && expansions == 1), nil
}

// isShellNumber reports whether a word is a number to the host's grammar: 5, -5, 0x10, 16#ff.
func isShellNumber(word string) bool {
	const digits = "0123456789"
	word, base, based := strings.Cut(word, "#")
	word = strings.TrimPrefix(strings.TrimPrefix(word, "-"), "0x")
	return word != "" && strings.Trim(word, digits) == "" &&
		(!based || base != "" && strings.Trim(base, shellNameBytes+"@") == "")
}

// descriptor reports whether a dash is at i, with digits and a redirection, or a
// here-document, behind it.
func (p *shellParser) descriptor(i int) bool {
	if p.s[i] != '-' {
		return false
	}
	i = p.blanks(i + 1)
	j := i
	for j < len(p.s) && p.s[j] >= '0' && p.s[j] <= '9' {
		j++
	}
	return j > i && (p.has(j, "<") || p.has(j, ">")) || p.has(j, "<<") && !p.has(j, "<<<")
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
