package transport

import "math/rand/v2"

// NewRequestID returns an id for a request to a worker, by which it sees that a request came twice. It is
// random and never 0, which stands for no id.
func NewRequestID() int64 { return requestID(rand.Int64) }

func requestID(random func() int64) int64 {
	for {
		if id := random(); id != 0 {
			return id
		}
	}
}
