package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tryst-rdma/tryst"
	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// publisher is a trainer with two sets of memory.
type publisher struct {
	server *tryst.Server
	sets   [2][]*tensor.Tensor
	lent   [2]*tryst.Lent // of the last version in each; nil before
	at     int            // the set of the current version
	made   uint64         // how many versions were made; no two have the same content
}

func startPublisher(ctx context.Context, s versionsSetup) (_ *publisher, err error) {
	if s.Tensors < 1 || s.Bytes < 2*int64(s.Tensors) {
		return nil, status.Errorf(status.InvalidArgument, "%d bytes in %d tensors: each needs an element", s.Bytes, s.Tensors)
	}
	p := &publisher{at: 1}
	c := s.config()
	c.Listen = loopback
	if s.Whole {
		c.Publications.Deltas = config.DeltasNone
	}
	if p.server, err = tryst.Serve(ctx, c); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	elements := s.Bytes / int64(s.Tensors) / 2
	for i := range p.sets {
		for j := range s.Tensors {
			t, err := tensor.Make[tensor.BFloat16Bits](p.server.SendAllocator(), elements)
			if err != nil {
				return nil, err
			}
			p.sets[i] = append(p.sets[i], t.Named(fmt.Sprintf("layer.%d.weight", j)))
		}
	}
	for i := range p.sets {
		for j, t := range p.sets[i] {
			fillWeights(t.Bytes(), uint64(j))
		}
	}
	return p, nil
}

func (p *publisher) address() string { return p.server.Addr().String() }

func (p *publisher) do(ctx context.Context, c versionsCommand) (s versionsState, err error) {
	switch {
	case c.Change != nil:
		s.Waited, err = p.change(ctx, *c.Change)
	case c.Update:
		return p.update(ctx)
	case c.Publish:
		return p.publish(ctx)
	case c.Unpublish:
		return s, p.unpublish(ctx)
	case c.Withdraw:
		return p.withdraw(ctx)
	case c.Compress:
		s.Compressed, err = compressedXOR(ctx, p.sets[0], p.sets[1])
	}
	return s, err
}

// change makes the next version of the current one, in the memory of the one before. It returns how long it has waited
// for that.
func (p *publisher) change(ctx context.Context, how change) (waited time.Duration, err error) {
	next := 1 - p.at
	if p.lent[next] != nil {
		begin := time.Now()
		if err := p.lent[next].Wait(ctx); err != nil {
			return 0, err
		}
		waited = time.Since(begin)
	}
	p.made++
	for i, t := range p.sets[next] {
		copy(t.Bytes(), p.sets[p.at][i].Bytes())
		if err := how.apply(t.Bytes(), p.made<<seedBits|uint64(i)); err != nil {
			return waited, err
		}
	}
	return waited, nil
}

// update publishes the set that is not current.
func (p *publisher) update(ctx context.Context) (s versionsState, err error) {
	next := 1 - p.at
	s.Begin = time.Now().UnixNano()
	lent, err := p.server.Update(ctx, versionsName, p.sets[next])
	if err != nil {
		return s, err
	}
	s.End = time.Now().UnixNano()
	s.Number = lent.Publication.Number
	p.at, p.lent[next] = next, lent
	return s, nil
}

// publish publishes the set that is not current, as tensors that do not change.
func (p *publisher) publish(ctx context.Context) (s versionsState, err error) {
	s.Begin = time.Now().UnixNano()
	_, err = p.server.PublishTensors(ctx, onceName, p.sets[1-p.at]...)
	s.End = time.Now().UnixNano()
	return s, err
}

func (p *publisher) unpublish(ctx context.Context) error {
	lent, err := p.server.Withdraw(ctx, onceName)
	if err != nil {
		return err
	}
	return lent.Wait(ctx)
}

// withdraw ends the publication and waits for its memory.
func (p *publisher) withdraw(ctx context.Context) (s versionsState, err error) {
	begin := time.Now()
	lent, err := p.server.Withdraw(ctx, versionsName)
	if err != nil {
		return s, err
	}
	err = lent.Wait(ctx)
	s.Waited = time.Since(begin)
	return s, err
}

func (p *publisher) close() error {
	for _, set := range p.sets {
		for _, t := range set {
			t.Release()
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopWait)
	defer cancel()
	return p.server.Close(ctx)
}
