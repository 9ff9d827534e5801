package collective

import (
	"context"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/tryst-rdma/tryst/cluster"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// This file is the side of a producer: peers take buffers out of the tables of the steps. A
// TensorFlow worker calls RecvBuf. A Tryst worker receives a value of the ledger, which asks the
// Publisher; its key is
//
//	src_device;incarnation;dst_device;buffer:STEP:KEY;0:0
//
// with the step in hexadecimal digits and the key of the buffer. The step of the request is
// wireStep of that step, so that the end of the step does not take a buffer back which a peer has
// been promised.

// wireStep is the step of the ledger for the buffers of a step. Masters and Tryst draw steps that
// are not negative, so no other value has it.
func wireStep(step int64) int64 { return ^step }

// bufferKey returns the key of the ledger for a buffer.
func bufferKey(step int64, from member, to cluster.Device, key string) (rendezvous.Key, error) {
	name := rendezvous.BufferPrefix + strconv.FormatUint(uint64(step), 16) + ":" + key
	return rendezvous.NewKey(from.device, from.attributes.GetIncarnation(), to, name, rendezvous.FrameIter{})
}

// parseBuffer returns the step and the key of a buffer; false for another edge name.
func parseBuffer(edge string) (step int64, key string, ok bool) {
	rest, ok := strings.CutPrefix(edge, rendezvous.BufferPrefix)
	if !ok {
		return 0, "", false
	}
	digits, key, ok := strings.Cut(rest, ":")
	n, err := strconv.ParseUint(digits, 16, 64)
	return int64(n), key, ok && err == nil
}

// forDevice is the key of a buffer in the table of a step. It names the device that the buffer is for,
// so that no other one finds it: TensorFlow's keys name the sender alone.
func forDevice(key string, to cluster.Device) string { return key + " for " + to.String() }

// Publisher returns the buffers as publications, for rendezvous.Manager.AddPublisher: the ledger of
// receives takes them from it.
func (c *Collectives) Publisher() rendezvous.Publisher { return publisher{c} }

// publisher implements rendezvous.Publisher and Restorer. Unlike a published tensor a buffer is taken once.
type publisher struct{ c *Collectives }

func (publisher) Publishes(key rendezvous.Key) bool {
	return strings.HasPrefix(key.Edge(), rendezvous.BufferPrefix)
}

func (p publisher) RecvPublished(ctx context.Context, key rendezvous.Key, done rendezvous.DoneFunc) bool {
	if !p.Publishes(key) {
		return false
	}
	step, buffer, ok := parseBuffer(key.Edge())
	if !ok {
		done(rendezvous.Value{}, rendezvous.Args{}, status.Errorf(status.InvalidArgument, "%s: the name of a buffer is %sSTEP:KEY", key.Describe(), rendezvous.BufferPrefix))
		return true
	}
	p.c.consume(ctx, step, buffer, key.Src(), key.SrcIncarnation(), key.Dst(), func(t *tensor.Tensor, err error) {
		done(rendezvous.Value{Tensor: t}, rendezvous.Args{}, err)
	})
	return true
}

func (p publisher) TakePublished(key rendezvous.Key) (rendezvous.Value, bool) {
	step, buffer, ok := parseBuffer(key.Edge())
	if !ok {
		return rendezvous.Value{}, false
	}
	p.c.mu.Lock()
	st := p.c.steps[step]
	p.c.mu.Unlock()
	if st == nil || p.c.checkSource(key.Src(), key.SrcIncarnation()) != nil {
		return rendezvous.Value{}, false
	}
	t := st.bufs.take(forDevice(buffer, key.Dst()))
	return rendezvous.Value{Tensor: t}, t != nil
}

// RestorePublished implements rendezvous.Restorer.
func (p publisher) RestorePublished(key rendezvous.Key, v rendezvous.Value) bool {
	step, buffer, ok := parseBuffer(key.Edge())
	if !ok {
		return false
	}
	p.c.mu.Lock()
	st := p.c.steps[step]
	p.c.mu.Unlock()
	return st != nil && st.bufs.restore(forDevice(buffer, key.Dst()), v.Tensor)
}

// checkSource checks that a device of this process has an incarnation.
func (c *Collectives) checkSource(d cluster.Device, incarnation uint64) error {
	n, err := c.incarnation(d)
	if err != nil {
		return err
	}
	if n != incarnation {
		return status.Errorf(status.FailedPrecondition, "RecvBuf expects a different device incarnation: %d vs. %d. Your worker job that contains the device (%q) was probably restarted. "+
			"Check your worker job for the reason why it was restarted.", incarnation, n, d)
	}
	return nil
}

// consume takes a buffer of a step for a device of a peer. The step may not have begun here: the peer then
// waits until it begins or ctx ends. done runs once.
func (c *Collectives) consume(ctx context.Context, step int64, key string, d cluster.Device, incarnation uint64, to cluster.Device, done consumer) {
	if err := c.checkSource(d, incarnation); err != nil {
		done(nil, err)
		return
	}
	if len(key) > maxKey {
		done(nil, status.Errorf(status.InvalidArgument, "the key of a buffer has %d bytes; at most %d are possible", len(key), maxKey))
		return
	}
	c.mu.Lock()
	s, err := c.stepLocked(step)
	if err != nil {
		c.mu.Unlock()
		done(nil, err)
		return
	}
	s.waiting++
	c.mu.Unlock()
	s.bufs.consume(ctx, forDevice(key, to), func(t *tensor.Tensor, err error) {
		c.peerDone(s)
		done(t, err)
	})
}

// peerDone uncounts a peer. After the last one it removes a step that this process has not begun.
func (c *Collectives) peerDone(s *Step) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.waiting--
	if s.waiting == 0 && !s.begun && c.steps[s.id] == s {
		delete(c.steps, s.id)
		s.stop(nil)
	}
}

// RecvBuf waits for a buffer and returns its content in transport_options, as TensorFlow's worker
// does over gRPC. A content of another size than the request has is Internal, "Tensor Size
// Mismatch".
func (c *Collectives) RecvBuf(ctx context.Context, req *tfpb.RecvBufRequest) (*tfpb.RecvBufResponse, error) {
	d, err := cluster.ParseDevice(req.GetSrcDevice())
	if err != nil {
		return nil, err
	}
	to, err := cluster.ParseDevice(req.GetDstDevice())
	if err != nil {
		return nil, err
	}
	type result struct {
		t   *tensor.Tensor
		err error
	}
	got := make(chan result, 1)
	c.consume(ctx, req.GetStepId(), req.GetBufRendezvousKey(), d, req.GetSrcIncarnation(), to, func(t *tensor.Tensor, err error) { got <- result{t, err} })
	r := <-got // ctx ends it, too
	if r.err != nil {
		return nil, r.err
	}
	defer r.t.Release()
	if n := r.t.Size(); n != req.GetNumBytes() {
		return nil, status.Errorf(status.Internal, "Tensor Size Mismatch: the buffer of key %s has %d bytes, but %d were requested", req.GetBufRendezvousKey(), n, req.GetNumBytes())
	}
	return &tfpb.RecvBufResponse{NumBytes: r.t.Size(), SendStartMicros: time.Now().UnixMicro(), TransportOptions: &anypb.Any{TypeUrl: extraURL, Value: appendContent(nil, r.t.Bytes(), c.opts.Chunk)}}, nil
}
