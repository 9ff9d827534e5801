//go:build !race

package regmem

const raceBuild = false
