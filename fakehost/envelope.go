package fakehost

// What a subagent's tool answers, by generation. OpenCode 1.18.33 (captured) and 2.0.26.
// Neither escapes anything.

// completedEnvelope is the answer of a child that has ended.
func (h *Host) completedEnvelope(child, body string) string {
	if h.profile.v1() {
		return `<task id="` + child + `" state="completed">` + "\n<task_result>\n" + body + "\n</task_result>\n</task>"
	}
	return `<subagent sessionID="` + child + `" state="completed">` + "\n" + body + "\n</subagent>"
}

// runningEnvelope is the answer for a child that goes on; in generation 2 it is none, but a
// text that names the session. summary is "Background task started", …; generation 1 only.
func (h *Host) runningEnvelope(child, summary string) string {
	if h.profile.v1() {
		return `<task id="` + child + `" state="running">` + "\n<summary>" + summary + "</summary>\n<task_result>\n" +
			"It runs beside this session, which is told when it has ended." + "\n</task_result>\n</task>"
	}
	return "The subagent is working in the background (sessionID: " + child + "). A note will say when it has ended."
}

// noticeEnvelope is what the parent is told when a background child has ended. state is
// "completed", "error" or "cancelled", which generation 1 does not have.
func (h *Host) noticeEnvelope(child, state, description, body string) string {
	if !h.profile.v1() {
		return `<subagent sessionID="` + child + `" state="` + state + `" description="` + description + `">` + "\n" + body + "\n</subagent>"
	}
	word, tag := "completed", "task_result"
	if state != "completed" {
		state, word, tag = "error", "failed", "task_error"
	}
	return `<task id="` + child + `" state="` + state + `">` + "\n<summary>Background task " + word + ": " + description + "</summary>\n<" +
		tag + ">\n" + body + "\n</" + tag + ">\n</task>"
}
