package arch

// NoCopy is a field of a type that must not be copied after its first use: go
// vet reports copies. It takes no memory.
type NoCopy struct{}

// Lock is what go vet looks for.
func (*NoCopy) Lock() {}

// Unlock is what go vet looks for.
func (*NoCopy) Unlock() {}
