//go:build !race

package tensor

// adviseHugePages does nothing: the system has no such advice.
func adviseHugePages([]byte) {}
