//go:build race

package regmem

// raceBuild says that the race detector is there, which sees Go memory only.
const raceBuild = true
