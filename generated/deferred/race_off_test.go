//go:build !race

package deferred

const raceEnabled = false
