package team

import (
	"cmp"
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
// export and its like, backticks in a here-document. A redirection belongs to a pattern only if its
// command is the first of a pipe or list. And it takes for one command what the host's grammar
// does, also where a shell sees two: a line that starts with "\" goes on with the one before. What
// the host asks beside this, for folders outside of the project (external_directory), needs the
// disk and is not here.
//
// What that grammar cannot read, the host takes apart by guesses; here it is read as a shell
// does, if possible. A command with an end missing (a quotation mark, a bracket, "fi") is an
// *InvalidError, and so is one that is nested more than 100 deep: ask for it as a whole.
//
// OpenCode 1.18.33, with tree-sitter-bash 0.25.0.
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
	j := p.blanks(i)
	for j < len(p.s) && p.s[j] >= '0' && p.s[j] <= '9' {
		j++
	}
	if !p.has(j, "<") && !p.has(j, ">") && !p.has(j, "&>") || p.has(j, "<(") || p.has(j, ">(") {
		return i, nil
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
