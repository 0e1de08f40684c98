//go:build race

package ns

const raceEnabled = true
