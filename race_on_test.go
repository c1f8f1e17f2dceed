//go:build race

package team_test

const raceEnabled = true
