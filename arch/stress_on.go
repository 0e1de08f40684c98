//go:build kpidd_stress

package arch

// Stress is 1 under the build tag kpidd_stress, which shrinks batches, rings and
// retry bounds so that rare paths become common, else 0. Constants shift by a
// multiple of it.
const Stress = 1
