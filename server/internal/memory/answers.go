package memory

import (
	"sync/atomic"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// Answers is what the responses of peers are reserved from while gRPC has them. They count against the common part of
// the memory, and take at most a part of that: they are on the Go heap, where the memory of one that was dropped stays
// until the next collection, and a tensor in one needs its size once more when it is parsed.
type Answers struct {
	*tensor.Pool
	most    int64 // 0: no limit
	refused func(error)
	now     atomic.Int64
}

// Reserve implements tensor.Reserver.
func (a *Answers) Reserve(n int64) (*tensor.Buffer, error) {
	now := a.now.Add(n)
	if a.most > 0 && now > a.most {
		a.now.Add(-n)
		err := status.Errorf(status.ResourceExhausted, "cannot reserve %d bytes: responses of peers take %d bytes, of at most %d; receive fewer at a time, or give the process more memory (setting memory)", n, now-n, a.most)
		a.refused(err)
		return nil, err
	}
	b, err := a.Pool.Reserve(n)
	if err != nil {
		a.now.Add(-n)
		return nil, err
	}
	return tensor.NewOwnedBuffer(nil, answersReserved{a, b, n}), nil
}

// answersReserved is the owner of a buffer that counts reserved bytes.
type answersReserved struct {
	answers *Answers
	common  *tensor.Buffer
	bytes   int64
}

// Reclaim implements tensor.Owner.
func (r answersReserved) Reclaim([]byte) {
	r.common.Release()
	r.answers.now.Add(-r.bytes)
}

// ReclaimsPromptly implements tensor.PromptOwner.
func (answersReserved) ReclaimsPromptly() {}
