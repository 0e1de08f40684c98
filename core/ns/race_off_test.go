//go:build !race

package ns

const raceEnabled = false
