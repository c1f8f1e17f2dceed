// Package team carries work between the coding agents of a team: a lead and its
// specialists, each a session on a host such as OpenCode.
//
// Agents that pass whole results to each other fill each other's context, lose
// what is cut, and nobody can check afterwards who said what. Here large
// deliverables are files, of which only the path travels; short signals go through
// an inbox, in order, until they are acked; and nothing that a program wrote ever
// passes for the user's word.
//
//	channel        carries                                    opened by       kept in
//	Board          deliverables: Markdown files, by path      OpenBoard       a folder
//	SignalChannel  signals: who settled, who is next          OpenSignals     a Store
//	Ledger         the index: small facts, and the goals      OpenLedger      Records
//	Offload        oversized results: file, preview, handle   OpenOffload     a folder, Records
//	Join           which children have settled, and how known OpenJoin        Records
//	Trail          the account of every write: no content     OpenTrail       a folder
//
// Beside them stand pure functions and small types: EnvelopeMatcher (what a host wraps
// round a child's answer), Evaluate and Derive (what a child may do), ParseReply (the reply
// contract), EstimateTokens (what a text costs), Capability (what a host can really do).
//
// A channel takes its author from the context, never from an argument that a
// model could fill in:
//
//	ctx = team.WithCaller(ctx, team.Caller{Session: "ses_a1", Role: "architect"})
//	entry, err := board.Write(ctx, team.Draft{Session: key, Task: "auth", Topic: "api", Body: text})
//	...
//	sent, err := signals.Send(ctx, "lead", team.Signal{
//		Kind: team.KindSettled, Summary: "the API is ready", Refs: []team.Ref{entry.Ref()},
//	})
//
// A program that wires all six to a host is in examples/handoff.
//
// # Errors
//
// A call that is refused changes nothing (but HandOff may have written its entry). The
// error of a channel is an *Error, which names the operation and the thing, round one
// of the kinds that stand beside ErrNotFound: test with errors.Is, and take numbers,
// names or offsets with errors.AsType from *LimitError, *InvalidError,
// *RecipientError and the like. Only ErrUnknownOutcome leaves open what became of
// the call. A nil port is a programmer's mistake, and panics.
//
// # Limits
//
// A board entry has at most 200 000 characters, a session 200 entries and 40
// tasks; a signal 512 estimated tokens and 16 references; an inbox 1000 signals
// that are not settled; a ledger 1000 records and 4 MiB. What is over a limit is
// refused whole. All but the references' are options; NoLimit turns one off.
//
// # Concurrency
//
// Every channel is safe for several goroutines. A Board and a Trail are safe for
// several processes on one folder; a SignalChannel, a Ledger, an Offload and a Join
// for as many as their store is. No channel runs a goroutine after its call has
// returned. A lock never outlives its process, and a lease never its time.
//
// # Trust
//
// What FormatSignal renders says first that a program sent it. A text that only
// looks so fails ParseSignal. A signal is never consent: no part of this package
// answers a question or a permission request because of one. Board entries are
// content written by agents: read them as such.
//
// All file work stays inside the folder that was opened, whatever links somebody
// puts there. A folder of another user is refused. Who runs as the same user can
// change the files: digests and VerifyTrail show what was changed, unless all of
// it was written anew.
//
// # Hosts and stores
//
// The ports of a store are Queue and Records, together a Store, and what a store can do
// beyond them: Committer, Meter, Watcher. Package memstore keeps one in memory, package
// sqlitestore in one file that processes share; package storetest has the laws that
// every store keeps, for stores of your own.
//
// The ports of a host are Sessions, Events, Storage, Tools and Permissions, and what
// a Sessions can do beyond it: Inspector, ChildLister. No interface sums them
// up: OpenCode over HTTP has neither storage nor a hook behind tools, and is
// still a host. Every method may be called from several goroutines. What comes from
// a host is data: a type or field that nobody knows is passed on under its name, and
// is never an error. Package opencode is a host over the HTTP API of a running
// OpenCode; package fakehost is one with the same shapes, to run and test without it;
// package hosttest has the laws of both.
package team
