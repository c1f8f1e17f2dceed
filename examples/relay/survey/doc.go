// Package survey is the work of the relay's specialists: it looks at a folder, in any language,
// best in Go, and words what it saw as Markdown files. It knows nothing of the team, so whoever
// reads the relay to learn the library can leave it out.
//
// [Open] gathers the facts (scan.go, golang.go, packages.go). [Architect], [Researcher],
// [Implementer], [Reviewer] and [Tester] each make one [Deliverable] of them, and [Plan] is the
// lead's. Text from the workspace is cleaned before anybody sees it (text.go).
package survey
