// Package livetest has tests only: of package opencode against a running OpenCode,
// driven by a scripted model. They are skipped unless TEAM_OPENCODE is the path of an
// opencode program, as npm's opencode-ai@1.18.33 brings it:
//
//	TEAM_OPENCODE=$HOME/.cache/team-opencode/node_modules/.bin/opencode go test ./opencode/livetest
//
// One server is started for all tests, with a home, a configuration and a data folder of its own, on
// 127.0.0.1. It needs no network. testdata/transcripts is what the version above did; see TestTranscripts for the
// command that writes it again.
package livetest
