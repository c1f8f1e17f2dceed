//go:build unix

package sqlitestore

import (
	"errors"
	"os"
	"syscall"
)

// openNoFollow makes the opening of a symbolic link fail.
const openNoFollow = syscall.O_NOFOLLOW

// syncDir makes the names in a folder durable.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
