package filelock

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestLock(t *testing.T) {
	name := filepath.Join(t.TempDir(), "lock")
	open := func() *os.File {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	a, b := open(), open()
	if err := Lock(t.Context(), a); errors.Is(err, errors.ErrUnsupported) {
		t.Skip("no file locks here")
	} else if err != nil {
		t.Fatal(err)
	}
	if ok, err := Try(b); ok || err != nil {
		t.Errorf("Try of a locked file = %v, %v; want false, nil", ok, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := Lock(ctx, b); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Lock = %v, want the context's error", err)
	}
	got := make(chan error)
	go func() { got <- Lock(t.Context(), b) }()
	a.Close() // as a killed process would
	if err := <-got; err != nil {
		t.Errorf("Lock after the holder's end = %v, want nil", err)
	}
}
