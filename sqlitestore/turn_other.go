//go:build !unix || solaris || illumos || aix

package sqlitestore

import (
	"os"
	"time"
)

// There are no turns here; waiting is by chance.
const places = 1

func tryPlaces(*os.File, int, int) bool { return true }
func leavePlaces(*os.File, int, int)    {}
func exactly(d time.Duration, _ int)    { time.Sleep(d) }
