//go:build !unix

package team_test

import "errors"

func mkfifo(string) error { return errors.ErrUnsupported }
