//go:build !unix

package sqlitestore

// syncDir does nothing: this system has no call for it.
func syncDir(string) error { return nil }
