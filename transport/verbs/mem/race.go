//go:build race

package mem

// raceBuild says that the race detector is there, which sees Go memory only.
const raceBuild = true
