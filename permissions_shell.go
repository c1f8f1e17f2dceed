package team

// A ShellAsk is what a host asks for a shell command.
type ShellAsk struct {
	Patterns []string // the simple commands, as written
	Always   []string // what an answer "always" would allow
}

// ParseShell is to come.
func ParseShell(command string) (ShellAsk, error) {
	return ShellAsk{Patterns: []string{command}, Always: []string{"echo *"}}, nil
}
