//go:build !unix

package workspace

import "io/fs"

// Outside Unix the folder for temporary files belongs to one user already, and
// a file mode does not tell who may write.

func ownedByUs(fs.FileInfo) bool   { return true }
func ownedByRoot(fs.FileInfo) bool { return true }
func ownerOf(fs.FileInfo) string   { return "" }
func shared(fs.FileInfo) bool      { return false }

// Links returns how many names a file has, where the system says so.
func Links(fs.FileInfo) int { return 1 }
