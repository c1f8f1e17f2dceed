//go:build !unix

package sqlitestore

// openNoFollow: this system has no flag for it.
const openNoFollow = 0

// syncDir does nothing: this system has no call for it.
func syncDir(string) error { return nil }
