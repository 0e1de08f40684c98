package arch

// CacheLine is the distance in bytes that keeps two words from disturbing each
// other: two lines of 64 bytes on amd64, which are fetched in pairs, and one
// line of the larger arm64 machines.
const CacheLine = 128

// Pad is placed between a field of the readers and a field of the writers, so
// that they never share a cache line.
type Pad [CacheLine]byte
