//go:build !race

package tcp

// copiesFirst, onWrite and onRead are needed by the race detector only.
const copiesFirst = false

func onWrite() {}
func onRead()  {}
