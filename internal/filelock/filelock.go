// Package filelock locks open files among processes and goroutines. A lock
// belongs to the open file and dies with it, so a killed process never leaves
// one behind.
package filelock

import (
	"context"
	"os"
	"time"
)

// Try takes the exclusive lock of f if it is free. Where a file system or a
// platform has no locks the error is errors.ErrUnsupported.
func Try(f *os.File) (bool, error) { return try(f) }

// Lock waits for the exclusive lock of f until ctx ends. It asks again at
// growing intervals of at most 2 ms, since a wait inside the kernel could not be
// given up.
func Lock(ctx context.Context, f *os.File) error {
	for pause := 50 * time.Microsecond; ; pause = min(2*pause, 2*time.Millisecond) {
		if ok, err := try(f); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}
