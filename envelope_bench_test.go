package team_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/teamchan/team"
)

const megabyte = 1 << 20

// filled returns a megabyte of s.
func filled(s string) string { return strings.Repeat(s, megabyte/len(s)+1)[:megabyte] }

var (
	plainProse  = filled("The parser reads one token at a time and never looks back; if a < b it swaps them.\n")
	wholeAnswer = "<subagent sessionID=\"ses_01a\" state=\"completed\">\n" + plainProse + "\n</subagent>"
)

// Texts that are made to be slow, each a megabyte.
var hostileTexts = map[string]string{
	"<":                 filled("<"),
	"<task":             filled("<task"),
	"<subagen":          filled("<subagen"),
	"<s":                filled("<s"),
	"<su":               filled("<su"),
	"<ta":               filled("<ta"),
	"<tas":              filled("<tas"),
	"<sxya":             filled("<sxya"),
	"<summary>":         filled("<summary>"),
	"<table>":           filled("<table>"),
	"blank":             filled(" \r\n"),
	"near misses":       filled(" <task id=\"ses_01a\" state=\"completed\">\n"),
	"openers":           filled("<subagent sessionID=\"ses_01a\" state=\"completed\">\n"),
	"quotes":            "<subagent sessionID=\"ses_01a\" state=\"completed\" description=\"" + filled(`">`),
	"attributes":        "<subagent " + filled(`a="b" `),
	"description first": "<subagent description=\"" + filled(`a="b" `)[:60_000] + "\">\n" + plainProse,
	"closing tags":      "<subagent sessionID=\"ses_01a\" state=\"completed\">\n" + filled("</subagent "),
	"closing lines":     "<task id=\"ses_01a\" state=\"completed\">\n<summary>" + filled("</summary>"),
	"dots":              "<task id=\"ses_01a\" state=\"completed\">\n<task_result>\n" + filled("\n...1"),
	"trailers":          filled("<task_metadata>") + "</task_metadata>",
	"parentheses":       filled("a (sessionID: "),
}

// What refusing plain text costs, and every text that is made to be slow, in the same
// run: bytes per second, and how many times the time of plain text per byte.
func BenchmarkEnvelopeMatcher(b *testing.B) {
	var plain, plainBytes float64
	run := func(name, text string) {
		b.Run(name, func(b *testing.B) {
			var m team.EnvelopeMatcher
			var base, own stopwatch
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				base.time(func() { m.Match(team.EnvelopeInput{Text: plainProse, Tool: "subagent"}) })
				own.time(func() { m.Match(team.EnvelopeInput{Text: text, Tool: "subagent"}) })
			}
			plain, plainBytes = base.per(b.N), megabyte
			b.ReportMetric(float64(len(text))/own.per(b.N), "GB/s")
			b.ReportMetric(own.per(b.N)/float64(len(text))/(plain/plainBytes), "ratio")
		})
	}
	run("refuse/plain", plainProse)
	run("refuse/no tags", filled("all work and no play\n"))
	for _, name := range slices.Sorted(maps.Keys(hostileTexts)) {
		run("hostile/"+strings.ReplaceAll(name, " ", "_"), hostileTexts[name])
	}
	run("match/body=1MB", wholeAnswer)
	b.Run("match/notice", func(b *testing.B) {
		var m team.EnvelopeMatcher
		in := team.EnvelopeInput{Text: "<subagent sessionID=\"ses_01a\" state=\"completed\" description=\"count words\">\nall done\n</subagent>",
			Metadata: json.RawMessage(`{"source":"subagent","childID":"ses_01a","agent":"general","state":"completed"}`)}
		b.ReportAllocs()
		for b.Loop() {
			m.Match(in)
		}
	})
}
