// Package fakehost is a coding-agent host with the real shapes and behaviour of OpenCode,
// without OpenCode and without a model: for tests, and for programs that show something.
// It keeps state and behaves; look afterwards at what is there. [Sessions, Events, Storage,
// Tools, Permissions]
//
//	host, err := fakehost.Open(ctx, "", &fakehost.Options{Agents: []fakehost.Agent{{
//		Name: "build",
//		Script: func(ctx context.Context, t *fakehost.Turn) (string, error) {
//			r, err := t.Dispatch(ctx, "general", "count words", t.Text())
//			return "the child said: " + r.Text, err
//		},
//	}}})
//	defer host.Close()
//	s, err := host.Session.Create(ctx, fakehost.NewSession{})
//	_, err = host.Session.Prompt(ctx, s.ID, fakehost.Prompt{Text: "hello"})
//	err = host.Session.Wait(ctx, s.ID)
//
// # Your first test
//
// A test opens a host, plays the agents, and looks at what is there in the end:
//
//	func TestLeadDispatches(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) { // minutes of waiting take no time
//			host, err := fakehost.Open(t.Context(), "", &fakehost.Options{Agents: agents})
//			require.NoError(t, err)
//			defer host.Close()
//			s, err := host.Session.Create(t.Context(), fakehost.NewSession{})
//			require.NoError(t, err)
//			_, err = host.Session.Prompt(t.Context(), s.ID, fakehost.Prompt{Text: "count words"})
//			require.NoError(t, err)
//			require.NoError(t, host.Session.Wait(t.Context(), s.ID))
//			children, err := host.Session.Children(t.Context(), s.ID)
//			require.NoError(t, err)
//			require.Len(t, children, 1)
//		})
//	}
//
// The agents are those above. What your own code takes are the ports, such as host.Sessions() for a
// team.Sessions: let it work, then look into the host; see the example of [Host.Sessions]. To see it
// fail, add Faults: [FaultNoticeMissing], or Options.Fault for one call. Each domain has an example.
//
// # State
//
// All that the real host stores is in one SQLite file with its tables (schema.sql), or in
// memory. Two Hosts on one file are two windows. Closing one and opening the file again
// is a restart: permissions asked for are gone, and executions that were under way
// are Unfinished. Kill is a crash.
//
// # Agents
//
// A Script plays the model for one turn. Work comes to it by the host's own rules: at an
// idle boundary all steers as a batch, or one queued item; between two steps, which is
// after each tool call, the steers that came meanwhile; a compaction or move alone. One
// pair of execution events brackets all that is done until nothing is left. In generation 1 a prompt
// that names no agent is of agent build, whatever the session was made with.
//
// # Time
//
// The host uses time.Now and timers, so in a testing/synctest bubble it runs on the
// bubble's clock. Open and Close it inside.
//
// # Profiles
//
// What a profile's host does not have is absent: a nil domain of the Host, a nil port, an
// error that is errors.ErrUnsupported from a method. It is never an empty answer.
//
// # HTTP
//
// Handler serves the host over HTTP as its profile's server does, for clients that are not
// in this process. GET /doc of generation 1 lists the routes. What OpenCode 1.18.33 answered
// to the prompts in testdata/captures this host answers too.
//
// # Faults
//
// Options.Fault is asked before every call and may fail it, or wait. The named Faults change
// how the host behaves. Clock jumps are Host.JumpClock, and ids before and after the wrap come with
// Options.Start near IDWrap.
//
// # How it is built
//
// A domain is a file: its type holds the *Host and is made in Host.domains, where the
// profile has it. A method first calls Host.enter with its Call, which refuses an ended
// context and a closed host, and asks the fault hook. It reads and writes in Host.tx: one
// transaction under the host's one lock. What a tx publishes with emit (feed only) or
// durable (log and feed) goes out after the commit and in its order; what is handed to
// later runs just before, still under the lock. State lives in a table of schema.sql, or, if
// the real host forgets it at a restart, in a field of the domain behind its own
// lock, which is never held around a tx. What differs by generation beyond a field
// is in journalV1 and journalV2.
package fakehost
