package checkpoint_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/internal/checkpoint"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
)

// resetting is a Receiver whose connection is reset whenever so many bytes of tensor b have left the
// server: the last of them do not come, and a peer may still write to their memory for a while.
type resetting struct {
	*place
	each, most int64        // bytes, and the number of resets
	sent       atomic.Int64 // bytes, by the server
	ofB        atomic.Int64 // of these
	resets     atomic.Int64
}

func (r *resetting) RecvAsync(ctx context.Context, step int64, key rendezvous.Key, args rendezvous.Args, done rendezvous.DoneFunc) {
	r.place.RecvAsync(ctx, step, key, args, func(v rendezvous.Value, args rendezvous.Args, err error) {
		if err == nil {
			n := v.Tensor.Size()
			r.sent.Add(n)
			if strings.HasSuffix(key.Edge(), "/b") && r.ofB.Add(n) >= r.each*(r.resets.Load()+1) && r.resets.Load() < r.most {
				r.resets.Add(1)
				time.AfterFunc(5*time.Second, v.Tensor.Release)
				v, err = rendezvous.Value{}, status.New(status.Unavailable, "the connection was reset")
			}
		}
		done(v, args, err)
	})
}

// largeHost serves a tensor of four pieces, and a small one on either side.
func largeHost(t *testing.T) (*host, []*tensor.Tensor) {
	t.Helper()
	all := []*tensor.Tensor{patterned(t, "a", 3*mib), patterned(t, "b", 4*piece), patterned(t, "c", 5)}
	return published(t, all...), all
}

// TestResetCostsPieces: a reset in the middle of a large tensor that comes into memory costs one
// piece for each request under way, and not the tensor.
func TestResetCostsPieces(t *testing.T) {
	ways := map[string]func(t *testing.T, p *checkpoint.Puller, req checkpoint.PullRequest, want []*tensor.Tensor){
		"pull": func(t *testing.T, p *checkpoint.Puller, req checkpoint.PullRequest, want []*tensor.Tensor) {
			mustYield(t, p, req, want)
		},
		"pull into own memory": func(t *testing.T, p *checkpoint.Puller, req checkpoint.PullRequest, want []*tensor.Tensor) {
			m, err := p.Describe(t.Context(), "m", "")
			must(t, err)
			req.Into, err = checkpoint.TensorsFor(slices.Values(m.Entries), tensor.Heap{})
			must(t, err)
			mustYield(t, p, req, want)
			for name, x := range req.Into {
				if !x.Buffer().Unique() {
					t.Errorf("the memory of %q has another reference after the pull", name)
				}
				x.Release()
			}
		},
		"stream": func(t *testing.T, p *checkpoint.Puller, req checkpoint.PullRequest, want []*tensor.Tensor) {
			var out bytes.Buffer
			_, err := p.Stream(t.Context(), req, &out)
			must(t, err)
			content := out.Bytes()[out.Len()-3*mib-4*piece-5:]
			for _, x := range want {
				if !bytes.Equal(content[:x.Size()], x.Bytes()) {
					t.Errorf("the content of %s is another", x.Name())
				}
				content = content[x.Size():]
			}
		},
	}
	for what, pull := range ways {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, all := largeHost(t)
				p, puller := at(t, h)
				r := &resetting{place: p, each: 2 * piece, most: 1}
				pull(t, puller.With(r, tensortest.NewAllocator(t)), checkpoint.PullRequest{Inflight: 2}, all)
				again := r.sent.Load() - (3*mib + 4*piece + 5)
				if again < 1 || again > 2*piece {
					t.Errorf("%d bytes were sent again, want at most 2 pieces of %d", again, piece)
				}
			})
		})
	}
}

// mustYield pulls, and compares what is yielded.
func mustYield(t *testing.T, p *checkpoint.Puller, req checkpoint.PullRequest, want []*tensor.Tensor) {
	t.Helper()
	n := 0
	for x, err := range p.Pull(t.Context(), req) {
		must(t, err)
		if own := req.Into[x.Name()]; own != nil && own.Buffer() != x.Buffer() {
			t.Errorf("%q came into other memory", x.Name())
		}
		if x.Name() != want[n].Name() || !tensor.Equal(x, want[n]) {
			t.Errorf("tensor %d is %v %q, or has another content", n, x, x.Name())
		}
		n++
		x.Release()
	}
	if n != len(want) {
		t.Errorf("%d tensors came", n)
	}
}

// TestLargeTensorComesOverAConnectionThatBreaks again and again, each time before it could come whole.
func TestLargeTensorComesOverAConnectionThatBreaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, all := largeHost(t)
		p, puller := at(t, h)
		r := &resetting{place: p, each: 2 * piece, most: 1000}
		var n notes
		mustYield(t, puller.With(r, tensortest.NewAllocator(t)), checkpoint.PullRequest{Inflight: 1, Interrupted: n.add}, all)
		if k := r.resets.Load(); k < 3 {
			t.Errorf("the connection broke %d times", k)
		}
	})
}

// TestDamagedPiecesInMemory: a large tensor that is damaged on the way is sent again once, also when
// it takes the whole window, and is an error after that.
func TestDamagedPiecesInMemory(t *testing.T) {
	for times, code := range map[int]status.Code{1: status.OK, 2: status.DataLoss} {
		for _, own := range []bool{false, true} {
			h, all := largeHost(t)
			p, puller := at(t, h)
			x := &damaging{place: p, times: int64(times)}
			req := checkpoint.PullRequest{InflightBytes: 1}
			if own {
				req.Into = map[string]*tensor.Tensor{"b": named(t, "b", tensor.Uint8, 4*piece)}
			}
			var sum checkpoint.Summary
			req.Tensors, req.Summary = []string{"*"}, &sum
			var failure error
			for got, err := range puller.With(x, tensortest.NewAllocator(t)).Pull(t.Context(), req) {
				if failure = err; err != nil {
					break
				}
				if got.Name() == "b" && !tensor.Equal(got, all[1]) {
					t.Error("b has another content")
				}
				got.Release()
			}
			if code == status.OK {
				must(t, failure)
				if sum.Bytes != 3*mib+4*piece+5 {
					t.Errorf("the sum has %d bytes", sum.Bytes)
				}
			} else {
				mustBe(t, failure, code, `"b"`, "damaged", "10.0.0.1:2222")
			}
			if n := p.receives("/b"); n != 8 {
				t.Errorf("damaged %d times: %d requests for b, want twice the 4 pieces", times, n)
			}
		}
	}
}

// damaging is a Receiver that damages the last piece of tensor b some times.
type damaging struct {
	*place
	times int64
	done  atomic.Int64
}

func (d *damaging) RecvAsync(ctx context.Context, step int64, key rendezvous.Key, args rendezvous.Args, done rendezvous.DoneFunc) {
	d.place.RecvAsync(ctx, step, key, args, func(v rendezvous.Value, args rendezvous.Args, err error) {
		if err == nil && strings.Contains(key.Edge(), fmt.Sprintf(":%d+", 3*piece)) && d.done.Add(1) <= d.times {
			v.Tensor.Bytes()[9] ^= 1
		}
		done(v, args, err)
	})
}

// TestLeavingTheLoopInALargeTensor releases what has come of it. The sum is about whole tensors.
func TestLeavingTheLoopInALargeTensor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := largeHost(t)
		p, puller := at(t, h)
		third := func(edge string) error {
			if strings.Contains(edge, fmt.Sprintf(":%d+", 2*piece)) {
				<-time.After(time.Second)
			}
			return nil
		}
		p.fail.Store(&third)
		var sum checkpoint.Summary
		var last checkpoint.Progress
		req := checkpoint.PullRequest{Inflight: 1, Summary: &sum, Progress: func(p checkpoint.Progress) { last = p }}
		for x, err := range puller.With(p, tensortest.NewAllocator(t)).Pull(t.Context(), req) {
			must(t, err)
			x.Release()
			synctest.Wait() // two pieces have come
			break
		}
		if sum.Tensors != 1 || sum.Bytes != 3*mib || last.Bytes != 3*mib+2*piece {
			t.Errorf("the sum is %+v, the last progress %+v", sum, last)
		}
	})
}

// TestPieceInMemoryOverAnotherTransportIsSeen: the tensor counts at both transports.
func TestPieceInMemoryOverAnotherTransportIsSeen(t *testing.T) {
	h, all := largeHost(t)
	p, puller := at(t, h)
	p.arrive = func(edge string, n int64) rendezvous.Arrival {
		if strings.Contains(edge, fmt.Sprintf(":%d+", piece)) {
			return over("grpc", "", n)
		}
		return over("verbs", "mlx5_0", n)
	}
	got := make(received)
	var sum checkpoint.Summary
	mustYield(t, puller.With(p, tensortest.NewAllocator(t)), checkpoint.PullRequest{Received: got.add(t), Summary: &sum}, all)
	if b := got["b"]; len(b) != 2 || b[0].Transport != "verbs" || b[0].Bytes != 3*piece || b[1].Transport != "grpc" || b[1].Bytes != piece {
		t.Errorf("b came so: %+v", b)
	}
	if sum.Over("grpc") != 1 || sum.Over("verbs") != 3 {
		t.Errorf("the sum is %+v", sum.Carried)
	}
}
