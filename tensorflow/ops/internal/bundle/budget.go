package bundle

import "github.com/tryst-rdma/tryst/tensor"

// budget counts memory in an allocator before it is used.
type budget struct {
	from     tensor.Allocator
	used     int64
	reserved int64
	parts    []*tensor.Buffer
}

// take counts n bytes.
func (b *budget) take(n int64) error {
	if more := b.used + n - b.reserved; more > 0 {
		more = max(more, budgetStep)
		part, err := tensor.Reserve(b.from, more)
		if err != nil {
			return err
		}
		b.parts = append(b.parts, part)
		b.reserved += more
	}
	b.used += n
	return nil
}

// release gives all back.
func (b *budget) release() {
	for _, part := range b.parts {
		part.Release()
	}
	*b = budget{from: b.from}
}
