// Package perf is the live.Source on perf_event_open(2): one dummy software
// event for each online CPU, whose ring receives a record for every fork, exit,
// exec and rename. It needs CAP_PERFMON alone and counts every loss exactly.
// Start reading at source.go; merge.go holds the proof that records leave in
// the order of cause and effect over all CPUs, ring.go reads one CPU's ring.
package perf
