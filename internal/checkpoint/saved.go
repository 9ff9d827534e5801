package checkpoint

import (
	"sync/atomic"

	"github.com/tryst-rdma/tryst/internal/delta"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// savedBytes counts what deltas have spared the network. The zero value is ready for use.
type savedBytes struct {
	sent  [delta.XOR + 1]atomic.Int64 // bytes of deltas, by their method
	stand [delta.XOR + 1]atomic.Int64 // bytes of the tensors that they stood for
}

// Saved calls f with each method of deltas, the bytes of deltas that were handed to the transports, and those of the
// tensors for which they stood.
func (c *Catalog) Saved(f func(method string, sent, stood int64)) {
	for m := delta.Nothing; m <= delta.XOR; m++ {
		f(m.String(), c.saved.sent[m].Load(), c.saved.stand[m].Load())
	}
}

// recvDelta answers a request for a delta.
func (c *Catalog) recvDelta(key *rendezvous.Key, k *deltaKey, done rendezvous.DoneFunc) {
	v, ok := c.takeDelta(key, k)
	if !ok {
		done(rendezvous.Value{}, rendezvous.Args{}, status.Errorf(status.NotFound, "the delta of tensor %s of publication %s from version %d to %d is not here any more",
			quote(k.tensor), quote(k.publication), k.from, k.to))
		return
	}
	done(v, rendezvous.Args{}, nil)
}

// takeDelta returns a delta, if it is here.
func (c *Catalog) takeDelta(key *rendezvous.Key, k *deltaKey) (v rendezvous.Value, ok bool) {
	if !key.SrcEmpty() && key.Src() != c.o.Device {
		return v, false
	}
	d, ok := c.deltaOf(k)
	if !ok {
		return v, false
	}
	t, err := tensor.FromBytes(tensor.Uint8, tensor.Vector(len(d.Content)), d.Content)
	if err != nil {
		return v, false
	}
	stand := c.underWay.stands(key, k, d.Summary.Length)
	c.underWay.sent(key, int64(len(d.Content)), stand)
	if m := d.Summary.Method; m <= delta.XOR {
		c.saved.sent[m].Add(int64(len(d.Content)))
		c.saved.stand[m].Add(stand)
	}
	return rendezvous.Value{Tensor: t}, true
}

// stands returns for how many bytes of a version a delta stands: all of the tensor if it is the last one that leads there.
func (p *pullCounts) stands(key *rendezvous.Key, k *deltaKey, length int64) int64 {
	p.mu.RLock()
	defer p.mu.RUnlock()
	one := p.findLocked(key)
	if one == nil || one.number != k.to {
		return 0
	}
	return length
}
