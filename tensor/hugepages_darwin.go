//go:build !race

package tensor

// adviseHugePages does nothing: Darwin has no MADV_HUGEPAGE.
func adviseHugePages([]byte) {}
