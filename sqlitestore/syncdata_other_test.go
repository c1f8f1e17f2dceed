//go:build !linux

package sqlitestore_test

import "os"

// syncData is how SQLite syncs.
func syncData(f *os.File) error { return f.Sync() }
