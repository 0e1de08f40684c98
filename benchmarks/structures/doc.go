// Package structures compares kpidd's generated lock-free types with what else
// there is for Go and, where they are installed, with liburcu and ConcurrencyKit.
// It holds tests only. One command prints the whole table, with ratios:
//
//	KPIDD_BENCH_TABLE=1 go test -run '^TestTable$' -v ./structures
//
// The same rows are benchmarks. Start at row_test.go, which says how a row is
// measured; each of the others has the rows of one kind.
package structures
