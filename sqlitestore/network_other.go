//go:build !linux && !darwin && !windows

package sqlitestore

// networkFS cannot tell on this system. Tests replace it.
var networkFS = func(string) (name string, remote bool) { return "", false }
