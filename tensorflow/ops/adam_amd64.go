package ops

// adamFours is adam without Nesterov momentum, four elements at a time. len(x) must be a multiple of four, and the
// other slices at least as long. Its instructions are those that every amd64 processor has (SSE), each of which
// rounds as that of a single value does.
//
//go:noescape
func adamFours(x, m, v, g []float32, alpha, c1, c2, epsilon float32)

// adamBlock is how many elements one call of adamFours gets at most, a multiple of four. The runtime cannot preempt
// assembly, so the garbage collector would wait for a long call.
const adamBlock = 16 << 10

// adamVector updates all elements but the last ones, fewer than four, and returns how many.
func adamVector(x, m, v, g []float32, alpha, c1, c2, epsilon float32) int {
	n := len(x) &^ 3
	for from := 0; from < n; from += adamBlock {
		to := min(from+adamBlock, n)
		adamFours(x[from:to], m[from:to], v[from:to], g[from:to], alpha, c1, c2, epsilon)
	}
	return n
}
