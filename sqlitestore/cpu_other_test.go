//go:build !unix

package sqlitestore_test

import "time"

func processorTime() time.Duration { return 0 }
