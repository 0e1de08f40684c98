package pid

import "math/bits"

// idMap is tag Free of the root namespace (M1.2): a bit for each number, set while
// it is free, and above them a bit for each word, set while some number below is
// free. The root's own tree is the published one, which mapped readers walk and
// which says nothing of numbers that are reserved, or wait for a grace period.
//
// The pid lock guards it. Its calls take at most seven steps; it is 520 KiB, made
// when the engine first chooses a root number, and never when the kernel chooses
// all of them.
type idMap struct {
	levels [idMapLevels][]uint64 // a bit a number, then a bit a word of the level below
}

const idMapLevels = 4 // 64^4 numbers are more than Max

// newIDMap returns a map in which every number but 0 is free.
func newIDMap() *idMap {
	m := new(idMap)
	n := Max
	for l := range m.levels {
		n = (n + 63) / 64
		m.levels[l] = make([]uint64, n)
		for i := range m.levels[l] {
			m.levels[l][i] = ^uint64(0)
		}
	}
	m.levels[idMapLevels-1][0] = 1<<len(m.levels[idMapLevels-2]) - 1 // the levels below are full
	m.take(0)
	return m
}

// take marks nr as taken; false if it was.
func (m *idMap) take(nr uint32) bool {
	if !m.free(nr) {
		return false
	}
	for l := range m.levels {
		word := &m.levels[l][nr>>6]
		*word &^= 1 << (nr & 63)
		if *word != 0 {
			break
		}
		nr >>= 6
	}
	return true
}

// give marks nr as free.
func (m *idMap) give(nr uint32) {
	for l := range m.levels {
		word := &m.levels[l][nr>>6]
		full := *word == 0
		*word |= 1 << (nr & 63)
		if !full {
			break
		}
		nr >>= 6
	}
}

func (m *idMap) free(nr uint32) bool { return m.levels[0][nr>>6]>>(nr&63)&1 != 0 }

// next returns the lowest free number >= from.
func (m *idMap) next(from uint32) (nr uint32, ok bool) {
	// Up, until some word has a bit at or after the position, then down again.
	for l := 0; l < idMapLevels; l++ {
		if int(from>>6) >= len(m.levels[l]) {
			return 0, false
		}
		set := m.levels[l][from>>6] & (^uint64(0) << (from & 63))
		if set == 0 {
			from = from>>6 + 1
			continue
		}
		nr = from&^63 | uint32(bits.TrailingZeros64(set))
		for ; l > 0; l-- {
			nr = nr<<6 | uint32(bits.TrailingZeros64(m.levels[l-1][nr]))
		}
		return nr, true
	}
	return 0, false
}
