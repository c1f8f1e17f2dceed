package team

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/teamchan/team/internal/atomicfile"
)

// TargetDigest returns what the trail has in place of a session that a write
// reaches: an HMAC-SHA256 of 80 bits under a key that is made with the trail. So one
// target can be followed through one trail, while the lines alone, without
// trail.key, neither tell who it is nor confirm a guess, and two trails have
// nothing in common.
func (t *Trail) TargetDigest(target SessionID) string {
	if target == "" {
		return ""
	}
	mac := hmac.New(sha256.New, t.key)
	io.WriteString(mac, string(target))
	return "t-" + hex.EncodeToString(mac.Sum(nil)[:10])
}

const (
	trailKeyName = "trail.key"
	trailKeySize = 32
)

// loadKey returns the trail's key. The first to open the trail makes it.
func (t *Trail) loadKey() ([]byte, error) {
	for {
		f, _, err := atomicfile.OpenRegular(t.root, trailKeyName, os.O_RDONLY)
		if err == nil {
			defer f.Close()
			b, err := io.ReadAll(io.LimitReader(f, 2*trailKeySize+2))
			if err != nil {
				return nil, err
			}
			key, err := hex.DecodeString(string(b[:min(len(b), 2*trailKeySize)]))
			if err != nil || len(key) != trailKeySize || len(b) != 2*trailKeySize+1 {
				return nil, fmt.Errorf("%w: %s is not the key of a trail; remove it, and targets get new digests",
					ErrCorrupt, filepath.Join(t.dir, trailKeyName))
			}
			return key, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, t.denied(trailKeyName, err)
		}
		if err := t.makeKey(); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
	}
}

func (t *Trail) makeKey() error {
	f, err := atomicfile.Create(t.root, ".", t.step)
	if err != nil {
		return err
	}
	defer f.Close()
	key := make([]byte, trailKeySize)
	rand.Read(key)
	if err := f.WriteString(hex.EncodeToString(key) + "\n"); err != nil {
		return err
	}
	if err := f.Sync(time.Now()); err != nil {
		return err
	}
	if _, err := f.Link(trailKeyName); err != nil {
		return err
	}
	f.Close()
	return atomicfile.SyncDir(t.root, ".", t.step)
}

// denied makes a name that leads elsewhere an ErrDenied.
func (t *Trail) denied(name string, err error) error {
	if errors.Is(err, atomicfile.ErrNotRegular) {
		return fmt.Errorf("%w: %s %w", ErrDenied, filepath.Join(t.dir, name), err)
	}
	return err
}
