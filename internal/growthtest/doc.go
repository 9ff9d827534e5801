// Package growthtest checks how work grows with its input: what a stranger sends must not cost
// quadratic time.
package growthtest
