// Package opencode is a host adapter: the ports [team.Sessions], [team.Events] and
// [team.Permissions] over the HTTP API and the event stream of a running OpenCode, and
// what else a team needs of one.
//
//	host, err := opencode.Dial(ctx, "http://127.0.0.1:4096", nil)
//	…
//	err = signals.Relay(ctx, host, lead, nil)
//
// [Dial] finds out which generation answers: 1.18 (its first API; tested live on
// 1.18.33), the second API of 1.18 alone, or 2.0 (from the shapes of 2.0.26; not tested live).
// What a generation lacks is [errors.ErrUnsupported] with the reason.
//
// # Trust
//
// Every answer is data from outside: its size is bounded, a field of a wrong type
// hides no other, a field or value that nobody knows is kept (Raw, or by its name), and a frame
// that is no event is skipped and counted. OpenCode over HTTP has no key-value storage and
// no tool hooks; those belong to a plugin, so Host is no [team.Storage] and no [team.Tools].
//
// # Open questions
//
// What was open about OpenCode when this library was planned, and the answer of each
// generation. "live" was seen on 1.18.33, "shape" is read from 2.0.26; what is open,
// nothing here depends on.
//
//	question                                    1.18                             2.0
//	what wraps a subagent's answer              <task id= state=>, live          <subagent sessionID= state=>, shape
//	what a session's context is                 no such call on the first API;   messages since the last compaction, told
//	                                            on the second the messages that  apart by type; not the whole history, shape
//	                                            the model sees, live
//	whether an inbox event has the text         no inbox; message.part.updated   yes: item.payload.text, shape
//	                                            has it, live
//	what external_directory does                asks, live                       asks by default, shape
//	whether plugin storage is global            no such storage                  yes: one table, key by plugin id, shape
//	whether a terminal of others can be read    yes, by every client of its      open
//	                                            directory and of no other: GET
//	                                            /pty, /pty/:id/connect, live
//	whether anybody can reach the todo list     GET /session/:id/todo and        table only: no tool, event or route, shape
//	                                            todo.updated, live
//	whether a subagent's session has a parent   yes, parentID, live              yes, parentID, shape
//	whether worktree calls are permissions      no: POST /experimental/worktree  open
//	                                            makes one and asks nobody, live
//	how MCP resources can be read               GET /experimental/resource,      GET /api/mcp/resource, shape;
//	                                            live                             nothing on the plugin's context
//	whether a project's plugin folder is        yes: .js in .opencode/plugin     open
//	found by itself                             and /plugins, once its npm
//	                                            packages are there, live
package opencode
