//go:build !unix || solaris || illumos || aix

package sqlitestore

import "os"

// There are no turns here; waiting is by chance.
func tryTurn(*os.File) bool { return true }
func endTurn(*os.File)      {}
