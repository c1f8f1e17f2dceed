package fakehost

// updated publishes that a registry of generation 2 has changed, to those who list it again: its
// event has no fields, "skill.updated" and the like, or says which entry it was. Generation 1 has no
// such events.
func (h *Host) updated(typ string, data map[string]any) {
	if h.profile.v1() {
		return
	}
	if data == nil {
		data = map[string]any{}
	}
	// A closed host has nobody to tell.
	_ = h.tx(func(t *tx) error {
		t.emit(typ, "", data)
		return nil
	})
}
