package fakehost

import (
	"strings"

	"github.com/teamchan/team"
)

// What a subagent's tool answers, in the form of the host's generation. OpenCode 1.18.33
// (captured) and 2.0.26.

// In the form an envelope has these in the place of the texts, of which hosts escape nothing:
// FormatEnvelope refuses what cannot be read back, and a host writes it all the same.
const (
	descriptionMark = "(description)"
	bodyMark        = "(body)"
)

// envelope writes e, of the host's generation, with the two texts in it.
func (h *Host) envelope(e team.Envelope, description, body string) string {
	e.Generation = team.GenV2
	if h.profile.v1() {
		e.Generation = team.GenV1c
	}
	text, err := team.FormatEnvelope(e)
	if err != nil {
		panic("fakehost: an envelope without a form: " + err.Error()) // e comes from this file only
	}
	return strings.NewReplacer(descriptionMark, description, bodyMark, body).Replace(text)
}

// completedEnvelope is the answer of a child that has ended.
func (h *Host) completedEnvelope(child, body string) string {
	return h.envelope(team.Envelope{State: team.ChildCompleted, Session: team.SessionID(child), Body: bodyMark}, "", body)
}

// runningEnvelope is the answer for a child that goes on. summary is "Background task started",
// …; generation 1 only.
func (h *Host) runningEnvelope(child, summary string) string {
	advice := "It runs beside this session, which is told when it has ended."
	if !h.profile.v1() {
		summary = "The subagent is working in the background"
	}
	return h.envelope(team.Envelope{State: team.ChildRunning, Session: team.SessionID(child), Summary: summary, Body: bodyMark}, "", advice)
}

// noticeEnvelope is what the parent is told when a background child has ended. state is
// "completed", "error" or "cancelled", which generation 1 calls an error.
func (h *Host) noticeEnvelope(child, state, description, body string) string {
	e := team.Envelope{Notice: true, State: team.ChildCompleted, Session: team.SessionID(child), Body: bodyMark}
	switch {
	case state == "cancelled" && !h.profile.v1():
		e.State = team.ChildCancelled
	case state != "completed":
		e.State = team.ChildFailed
	}
	if h.profile.v1() {
		e.Summary = "Background task " + string(e.State) + ": " + descriptionMark
	} else {
		e.Description = descriptionMark
	}
	return h.envelope(e, description, body)
}

// failedText is the error of the tool for a child that has failed.
func (h *Host) failedText(child, why string) string {
	return h.envelope(team.Envelope{State: team.ChildFailed, Session: team.SessionID(child), Body: bodyMark}, "", why)
}

// cancelledText is that of a child that was interrupted.
func (h *Host) cancelledText(child string) string {
	return h.envelope(team.Envelope{State: team.ChildCancelled, Session: team.SessionID(child)}, "", "")
}
