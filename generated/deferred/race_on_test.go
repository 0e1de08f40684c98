//go:build race

package deferred

const raceEnabled = true
