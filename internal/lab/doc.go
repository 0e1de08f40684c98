// Package lab holds the switches that choose between kpidd's way and the older
// one that it is measured against, so that one binary measures both. Each switch
// is a type whose zero value is kpidd's way; the baselines are for kpidd bench and
// tests. One file a mechanism; start at superblocks.go.
package lab
