package team_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
	"github.com/teamchan/team/memstore"
)

// keepAll offloads n texts of about size bytes, the oldest first.
func keepAll(t *testing.T, o *team.Offload, n, size int) []team.Shortened {
	t.Helper()
	all := make([]team.Shortened, n)
	for i := range all {
		all[i] = shorten(t, o, fmt.Sprintf("%d %s", i, strings.Repeat("word ", size/5)), team.Source{})
		require.NotEmpty(t, all[i].Handle)
		time.Sleep(2 * time.Millisecond) // the index counts milliseconds
	}
	return all
}

func there(t *testing.T, o *team.Offload, s team.Shortened) bool {
	t.Helper()
	_, err := o.Fetch(t.Context(), s.Handle, team.FetchOptions{Budget: 10})
	if err != nil {
		require.ErrorIs(t, err, team.ErrNotFound)
	}
	_, serr := os.Stat(s.Path)
	require.Equal(t, err == nil, serr == nil, "the handle and the file go together")
	return err == nil
}

// Oldest first under a byte cap; what is pinned, leased or referenced stays; a
// collected handle still answers what it was.
func TestCollectOldestFirst(t *testing.T) {
	o := newOffload(t, &team.OffloadOptions{MaxBytes: 260_000, MinAge: 1})
	all := keepAll(t, o, 10, 50_000)
	require.NoError(t, o.Pin(t.Context(), all[0].Handle))
	lease, err := o.Lease(t.Context(), all[1].Handle, time.Hour)
	require.NoError(t, err)
	opts := &team.CollectOptions{Referenced: func(_ context.Context, h team.Handle) (bool, error) {
		switch h {
		case all[2].Handle:
			return true, nil
		case all[3].Handle:
			return false, errors.New("the signals cannot be read")
		}
		return false, nil
	}}
	plan, err := o.PlanCollect(t.Context(), opts)
	require.NoError(t, err)
	require.Len(t, storedFiles(t, o), 10, "a plan changes nothing")
	report, err := o.Collect(t.Context(), opts)
	require.NoError(t, err)
	require.Equal(t, actions(plan), actions(report), "what was planned was done")
	require.Equal(t, []string{"keep pinned", "keep leased", "keep referenced", "keep unknown", "remove over the cap", "remove over the cap",
		"remove over the cap", "remove over the cap", "remove over the cap", "keep fresh"}, actions(report))
	require.LessOrEqual(t, report.Bytes, int64(260_000))
	for i, s := range all {
		require.Equal(t, i < 4 || i == 9, there(t, o, s), "text %d", i)
	}
	n, size := report.Removed()
	require.Equal(t, 5, n)
	require.Equal(t, all[4].Size*5, size)

	_, err = o.Fetch(t.Context(), all[4].Handle, team.FetchOptions{})
	var gone *team.CollectedError
	require.ErrorAs(t, err, &gone)
	require.Equal(t, all[4].Size, gone.Size)
	require.Equal(t, all[4].SHA256, gone.SHA256)
	require.Equal(t, team.SweepOverCap, gone.Why)
	require.WithinDuration(t, time.Now(), gone.Collected, time.Minute)
	require.WithinDuration(t, time.Now(), gone.Stored, time.Minute)
	require.Error(t, o.Pin(t.Context(), all[4].Handle))

	// Released, unpinned and used again.
	require.NoError(t, lease.Release(t.Context()))
	require.NoError(t, lease.Release(t.Context()))
	require.NoError(t, o.Unpin(t.Context(), all[0].Handle))
	again := shorten(t, o, fmt.Sprintf("%d %s", 4, strings.Repeat("word ", 10_000)), team.Source{})
	require.NotEqual(t, all[4].Handle, again.Handle, "a collected text that comes again is a new one")
	require.True(t, there(t, o, again))
}

func actions(r team.CollectReport) []string {
	var all []string
	for _, item := range r.Items {
		all = append(all, string(item.Action)+" "+string(item.Reason))
	}
	return all
}

// A text that is used stays: its turn begins anew.
func TestCollectLeastRecentlyUsed(t *testing.T) {
	o := newOffload(t, &team.OffloadOptions{MaxBytes: 110_000, MinAge: 1})
	all := keepAll(t, o, 4, 50_000)
	fetch(t, o, all[0].Handle, team.FetchOptions{Budget: 10})
	time.Sleep(2 * time.Millisecond)
	require.True(t, shorten(t, o, fmt.Sprintf("%d %s", 1, strings.Repeat("word ", 10_000)), team.Source{}).Replayed)
	time.Sleep(2 * time.Millisecond)
	_, err := o.Collect(t.Context(), nil)
	require.NoError(t, err)
	for i, s := range all {
		require.Equal(t, i < 2, there(t, o, s), "text %d", i)
	}
}

func TestCollectByAge(t *testing.T) {
	dir, index := filepath.Join(t.TempDir(), "offload"), new(memstore.Store)
	o := openOffload(t, dir, index, nil)
	all := keepAll(t, o, 3, 50_000)
	time.Sleep(30 * time.Millisecond)
	young := openOffload(t, dir, index, &team.OffloadOptions{MaxAge: 20 * time.Millisecond})
	_, err := young.Collect(t.Context(), nil)
	require.NoError(t, err)
	require.Len(t, storedFiles(t, o), 3, "within MinAge everything stays")
	old := openOffload(t, dir, index, &team.OffloadOptions{MaxAge: 20 * time.Millisecond, MinAge: 1})
	fetch(t, o, all[2].Handle, team.FetchOptions{Budget: 10})
	report, err := old.Collect(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, []string{"remove idle", "remove idle", "keep fresh"}, actions(report))
}

// A lease ends with its time, and may be renewed.
func TestOffloadLease(t *testing.T) {
	o := newOffload(t, &team.OffloadOptions{MaxBytes: 1, MinAge: 1})
	s := keepAll(t, o, 1, 50_000)[0]
	lease, err := o.Lease(t.Context(), s.Handle, 80*time.Millisecond)
	require.NoError(t, err)
	_, err = o.Collect(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, lease.Renew(t.Context(), 200*time.Millisecond))
	time.Sleep(100 * time.Millisecond)
	_, err = o.Collect(t.Context(), nil)
	require.NoError(t, err)
	_, serr := os.Stat(s.Path)
	require.NoError(t, serr)
	time.Sleep(time.Until(lease.Until()) + 5*time.Millisecond)
	_, err = o.Collect(t.Context(), nil)
	require.NoError(t, err)
	require.False(t, there(t, o, s))
	var gone *team.CollectedError
	require.ErrorAs(t, lease.Renew(t.Context(), time.Hour), &gone)
	require.NoError(t, lease.Release(t.Context()))

	s = keepAll(t, o, 1, 60_000)[0]
	_, err = o.Lease(t.Context(), s.Handle, 0)
	require.ErrorIs(t, err, team.ErrInvalid)
	_, err = o.Lease(t.Context(), s.Handle, team.MaxLease+1)
	require.ErrorIs(t, err, team.ErrLimit)
	for range 64 {
		_, err = o.Lease(t.Context(), s.Handle, time.Hour)
		require.NoError(t, err)
	}
	_, err = o.Lease(t.Context(), s.Handle, time.Hour)
	require.ErrorIs(t, err, team.ErrLimit)
}

// Both sides are compared: a file without a record, a record without a file; what
// is not ours is never touched.
func TestCollectComparesBothSides(t *testing.T) {
	index := new(memstore.Store)
	o := openOffload(t, filepath.Join(t.TempDir(), "offload"), index, nil)
	all := keepAll(t, o, 3, 50_000)
	old := time.Now().Add(-2 * time.Hour)
	make := func(name string, at time.Time) string {
		name = filepath.Join(o.Dir(), name)
		require.NoError(t, os.WriteFile(name, []byte("x"), 0o600))
		require.NoError(t, os.Chtimes(name, at, at))
		return name
	}
	orphan := make("aaaaaaaaaaaaaaaa.txt", old)
	fresh := make("bbbbbbbbbbbbbbbb.json", time.Now())
	temp := make(".tmp-AAAAAAAAAAAAAAAAAAAAAAAAAA", old)
	var foreign []string
	for _, name := range []string{"notes.md", "aaaaaaaaaaaaaaaa.exe", "aaaaaaaaaaaaaaaa", "AAAAAAAAAAAAAAAA.txt", ".tmp-x", "aaaaaaaaaaaaaaab.txt.bak"} {
		foreign = append(foreign, make(name, old))
	}
	require.NoError(t, os.Mkdir(filepath.Join(o.Dir(), "cccccccccccccccc.txt"), 0o700))
	link := filepath.Join(o.Dir(), "dddddddddddddddd.txt")
	require.NoError(t, os.Symlink(all[0].Path, link))
	foreign = append(foreign, filepath.Join(o.Dir(), "cccccccccccccccc.txt"), link)
	require.NoError(t, os.Remove(all[1].Path)) // by hand

	report, err := o.Collect(t.Context(), nil)
	require.NoError(t, err)
	byPath := map[string]team.CollectItem{}
	for _, item := range report.Items {
		require.NoError(t, item.Err)
		byPath[item.Path] = item
	}
	for _, name := range foreign {
		require.Equal(t, team.SweepForeign, byPath[name].Reason, name)
		_, err := os.Lstat(name)
		require.NoError(t, err)
	}
	for _, name := range []string{orphan, temp} {
		require.Equal(t, team.SweepLeftover, byPath[name].Reason)
		_, err := os.Lstat(name)
		require.ErrorIs(t, err, os.ErrNotExist)
	}
	require.Equal(t, team.SweepFresh, byPath[fresh].Reason, "its writer may be about to write the record")
	require.Equal(t, team.SweepLeftover, byPath[all[1].Path].Reason)
	var gone *team.CollectedError
	_, err = o.Fetch(t.Context(), all[1].Handle, team.FetchOptions{})
	require.ErrorAs(t, err, &gone)
	require.Equal(t, all[1].SHA256, gone.SHA256)
	require.True(t, there(t, o, all[0]))
	require.True(t, there(t, o, all[2]))
	// What the index said of the lost content went too: it can come again.
	again := shorten(t, o, fmt.Sprintf("%d %s", 1, strings.Repeat("word ", 10_000)), team.Source{})
	require.True(t, there(t, o, again))
	require.False(t, again.Replayed)

	report, err = o.Collect(t.Context(), nil)
	require.NoError(t, err)
	n, _ := report.Removed()
	require.Zero(t, n, "nothing is left to do")
}

// A collection that was stopped between the record and the file is finished by
// the next one.
func TestCollectAfterACrash(t *testing.T) {
	index := new(memstore.Store)
	o := openOffload(t, filepath.Join(t.TempDir(), "offload"), index, &team.OffloadOptions{MaxBytes: 1, MinAge: 1})
	s := keepAll(t, o, 1, 50_000)[0]
	body := readFile(t, s.Path)
	_, err := o.Collect(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(s.Path, []byte(body), 0o600)) // as if it had not been removed
	_, err = o.Fetch(t.Context(), s.Handle, team.FetchOptions{})
	require.ErrorIs(t, err, team.ErrNotFound)
	report, err := o.Collect(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, []string{"remove leftover"}, actions(report))
	require.Empty(t, storedFiles(t, o))
}

// Two folders share an index and never see each other's texts.
func TestCollectLeavesOtherFoldersAlone(t *testing.T) {
	index := new(memstore.Store)
	a := openOffload(t, filepath.Join(t.TempDir(), "a"), index, &team.OffloadOptions{MaxBytes: 1, MinAge: 1})
	b := openOffload(t, filepath.Join(t.TempDir(), "b"), index, nil)
	s := keepAll(t, b, 1, 50_000)[0]
	same := keepAll(t, a, 1, 50_000)[0]
	require.NotEqual(t, s.Handle, same.Handle)
	_, err := a.Fetch(t.Context(), s.Handle, team.FetchOptions{})
	require.ErrorIs(t, err, team.ErrNotFound)
	_, err = a.Collect(t.Context(), nil)
	require.NoError(t, err)
	require.False(t, there(t, a, same))
	require.True(t, there(t, b, s))

	moved := filepath.Join(t.TempDir(), "moved")
	require.NoError(t, os.Rename(b.Dir(), moved))
	failed, err := b.ShortenText(t.Context(), logLines(9000), team.Source{})
	require.NoError(t, err)
	require.ErrorIs(t, failed.Failed, team.ErrConflict, "its paths lead nowhere")
	c := openOffload(t, moved, index, nil)
	f := fetch(t, c, s.Handle, team.FetchOptions{Budget: 10})
	require.Equal(t, moved, filepath.Dir(f.Path), "a moved folder is known again")
}

// Collections beside writers and readers, over two openings of one folder: what a
// Shorten just returned is there, or was collected and says so; nothing is torn.
func TestCollectBesideWriters(t *testing.T) {
	for name, index := range map[string]team.Records{"a store that commits": new(memstore.Store), "records alone": onlyRecords{new(memstore.Store)}} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "offload")
			opts := &team.OffloadOptions{MaxBytes: 200_000, MinAge: 1}
			writer, collector := openOffload(t, dir, index, opts), openOffload(t, dir, index, opts)
			stop := make(chan struct{})
			var wg sync.WaitGroup
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						report, err := collector.Collect(context.Background(), nil)
						if err != nil {
							t.Error(err)
						}
						for _, item := range report.Items {
							if item.Err != nil {
								t.Error(item.Err)
							}
						}
					}
				}
			})
			var writers sync.WaitGroup
			for w := range 4 {
				writers.Go(func() {
					for i := range 40 {
						text := fmt.Sprintf("%d %s", (i+w)%7, strings.Repeat("word ", 10_000)) // the same ones again and again
						s, err := writer.ShortenText(context.Background(), text, team.Source{})
						if err != nil || s.Failed != nil {
							t.Error(err, s.Failed)
							continue
						}
						f, err := writer.Fetch(context.Background(), s.Handle, team.FetchOptions{Range: team.Range{Bytes: 20}})
						var gone *team.CollectedError
						if err != nil && !errors.As(err, &gone) {
							t.Error(err)
						} else if err == nil && f.Text != text[:20] {
							t.Errorf("%q", f.Text)
						}
					}
				})
			}
			writers.Wait()
			close(stop)
			wg.Wait()
			_, err := collector.Collect(t.Context(), nil)
			require.NoError(t, err)
			stats, err := writer.Stats(t.Context(), 100)
			require.NoError(t, err)
			require.Len(t, storedFiles(t, writer), stats.Handles)
			for _, e := range stats.Recent {
				require.Equal(t, e.SHA256, digest(readFile(t, e.Path)))
			}
		})
	}
}
