//go:build !linux

package bench

// resident is what Go's memory takes: the system does not report shared pages.
func resident() (int64, error) { return memory(), nil }

// owned is the same.
func owned() (int64, error) { return memory(), nil }
