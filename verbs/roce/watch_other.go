//go:build !linux

package roce

// watch reports nothing on this system. Interfaces are listed when devices are listed
// or opened.
func (host) watch(func()) (func(), error) { return func() {}, nil }
