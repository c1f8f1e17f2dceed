//go:build !unix

package sqlitestore_test

import (
	"context"
	"errors"
)

func childStranger(context.Context, []string) error { return errors.ErrUnsupported }
