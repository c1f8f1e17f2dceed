package main

import (
	"context"

	"github.com/teamchan/team"
)

// An account is what the lead's context held, in estimated tokens.
type account struct {
	Signals int `json:"signals"` // how many the lead received
	Inline  int `json:"inline_tokens"`
	Paths   int `json:"path_tokens"` // SignalTokens and ExcerptTokens
	// What the lead really saw: the signals as they are put before a model, and
	// the beginnings of the entries that it read for its plan.
	SignalTokens  int     `json:"signal_tokens"`
	ExcerptTokens int     `json:"excerpt_tokens"`
	SavedPercent  float64 `json:"saved_percent"` // negative if paths cost more
}

// sum adds up.
func (a *account) sum() {
	a.Paths = a.SignalTokens + a.ExcerptTokens
	if a.Inline > 0 {
		a.SavedPercent = float64(1000*(a.Inline-a.Paths)/a.Inline) / 10
	}
}

// account compares what the lead saw with the same signals that carry the
// bodies instead of references.
func (r *relay) account(ctx context.Context, out outcome) (account, error) {
	key := r.signals.Secret()
	a := account{Signals: len(out.seen)}
	for _, s := range out.seen {
		a.SignalTokens += team.EstimateTokens(team.FormatSignal(key, s))
		inline := s
		inline.Refs = nil
		for _, ref := range s.Refs {
			if ref.Handle != "" { // a reply that was too long would be in there too
				text, err := r.offload.Fetch(ctx, ref.Handle, team.FetchOptions{Budget: 1 << 20})
				if err != nil {
					return a, err
				}
				inline.Body += text.Text
				continue
			}
			text, err := r.board.ReadRef(ctx, ref, team.Range{})
			if err != nil {
				return a, err
			}
			inline.Body += text.Text
		}
		a.Inline += team.EstimateTokens(team.FormatSignal(key, inline))
	}
	for _, text := range out.excerpts {
		a.ExcerptTokens += team.EstimateTokens(text)
	}
	a.sum()
	return a, nil
}

// longReply returns what the lead saw of the reply that was too long, if one was: the
// signal as it is put before a model.
func (r *relay) longReply(out outcome) string {
	for _, s := range out.seen {
		for _, ref := range s.Refs {
			if ref.Handle != "" {
				return team.FormatSignal(r.signals.Secret(), s)
			}
		}
	}
	return ""
}
