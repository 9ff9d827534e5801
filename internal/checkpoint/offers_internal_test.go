package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
	"weak"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/delta"
	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
)

// trained makes versions of which each tensor has a small delta from the one before, and returns the number of the first.
func (tr *trainer) trained(versions int) (first uint64) {
	tr.t.Helper()
	first = tr.update().Publication.Number
	for range versions {
		tr.taken(0)
		tr.step(2000)
		tr.update()
		tr.made()
	}
	return first
}

// rename gives the tensors of the next version other names.
func (tr *trainer) rename(prefix string) {
	for i, x := range tr.model {
		tr.model[i] = x.Named(fmt.Sprint(prefix, i))
	}
}

// open opens a pull of the newest version, for a puller that has the one with a number and has measured no rate.
func (tr *trainer) open(number uint64, s grpc.ServerStream) error {
	return tr.c.open(&trystpb.OpenRequest{
		Publication: "w", Puller: "/job:rollout/task:0",
		Deltas: &trystpb.DeltaRequest{Epoch: tr.line().epoch, Number: number},
	}, &grpc.GenericServerStream[trystpb.OpenRequest, trystpb.OpenResponse]{ServerStream: s}, new(bool))
}

// contents returns weak pointers to all deltas that are kept.
func (tr *trainer) contents() (all []weak.Pointer[byte]) {
	l := tr.line()
	tr.c.mu.RLock()
	defer tr.c.mu.RUnlock()
	path, _ := l.deltas.chain.Path(l.deltas.fresh.from.number-1, l.deltas.fresh.from.number)
	for _, s := range append(path, l.deltas.fresh.step()) {
		for _, d := range s.Deltas {
			all = append(all, weak.Make(&d.Content[0]))
		}
	}
	return all
}

// heap returns how many bytes are in use.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestUnreadOpensHoldNoDeltas: pulls whose client does not read take little, however many versions their deltas lead over, and
// hold no delta that the publication has dropped. They wait with their first message, or with that of their offers.
func TestUnreadOpensHoldNoDeltas(t *testing.T) {
	for _, read := range []int{0, 1} {
		t.Run(fmt.Sprint(read, " messages are read"), func(t *testing.T) {
			const pulls, each = 50, 20 << 10
			tr := newTrainer(t, 100, 64<<10, 0)
			first := tr.trained(15)
			if l := tr.line(); l.deltas.chain == nil || len(tr.contents()) != 200 {
				t.Fatal("there are no deltas over all versions")
			}
			ctx, cancel := context.WithCancel(t.Context())
			waiting, ended := make(chan struct{}), make(chan error)
			before := heap()
			for range pulls {
				s, n := &charging{ctx: ctx}, 0
				s.charge = func(int) error {
					if s.messages, n = nil, n+1; n <= read {
						return nil
					}
					waiting <- struct{}{}
					<-ctx.Done()
					return ctx.Err()
				}
				go func() { ended <- tr.open(first, s) }()
			}
			for range pulls {
				<-waiting
			}
			if used := heap() - before; used > pulls*each {
				t.Errorf("%d pulls hold %d bytes", pulls, used)
			}
			kept, l := tr.contents(), tr.line()
			tr.c.mu.Lock()
			l.deltas.clear()
			tr.c.mu.Unlock()
			heap()
			held := 0
			for _, p := range kept {
				if p.Value() != nil {
					held++
				}
			}
			if held > 0 {
				t.Errorf("%d of %d deltas are held", held, len(kept))
			}
			cancel()
			for range pulls {
				if err := <-ended; !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			}
		})
	}
}

// TestNoOfferIsMadeBeforeItIsCharged: a call that waits until its client reads has looked at no delta.
func TestNoOfferIsMadeBeforeItIsCharged(t *testing.T) {
	tr := newTrainer(t, 100, 64<<10, 0)
	first := tr.trained(15)
	full := errors.New("full")
	s := &grpc.GenericServerStream[trystpb.OpenRequest, trystpb.OpenResponse]{ServerStream: &charging{ctx: t.Context(), charge: func(int) error { return full }}}
	p := tr.c.publications["w"]
	req := &trystpb.DeltaRequest{Epoch: p.epoch, Number: first}
	if n := testing.AllocsPerRun(10, func() {
		o := tr.c.offers(p, p.entries, tr.c.o.Device.Task, req)
		if err := o.send(1, s); !o.any() || !errors.Is(err, full) {
			t.Fatal(err)
		}
	}); n > 50 {
		t.Errorf("%v allocations before the first message is charged", n)
	}
}

// reading is a charging stream that closes last with the last message.
type reading struct {
	charging
	last chan struct{}
}

func (s *reading) SendBuilt(size int, build func() proto.Message) error {
	err := s.charging.SendBuilt(size, build)
	if err == nil && s.messages[len(s.messages)-1].GetLast() {
		close(s.last)
	}
	return err
}

// TestOffersFitTheirCharge, whatever the names are, and however many versions the deltas lead over. An offer that no message has
// room for is left out.
func TestOffersFitTheirCharge(t *testing.T) {
	for name, tt := range map[string]struct {
		prefix                   string
		versions, tensors, bytes int
		want                     int
	}{
		"one version": {"", 1, 40, 64 << 10, 40}, "many versions": {"", 15, 40, 64 << 10, 40},
		"escaped":           {strings.Repeat("%;\x01", 20), 15, 40, 64 << 10, 40},
		"long, one version": {strings.Repeat("%", 2000), 1, 4, 512 << 10, 4}, "long, many versions": {strings.Repeat("%", 2000), 15, 4, 512 << 10, 0},
	} {
		t.Run(name, func(t *testing.T) {
			tr := newTrainer(t, tt.tensors, tt.bytes, 0)
			tr.rename(tt.prefix)
			first := tr.trained(tt.versions)
			if _, _, ok := tr.line().deltas.path(first, tr.c.publications["w"]); !ok {
				t.Fatal("there are no deltas over all versions")
			}
			ctx, cancel := context.WithCancel(t.Context())
			charged := []int(nil)
			s := &reading{charging{ctx: ctx, charge: func(size int) error { charged = append(charged, size); return nil }}, make(chan struct{})}
			ended := make(chan error)
			go func() { ended <- tr.open(first, s) }()
			<-s.last
			cancel()
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
			offers := make(map[string]bool)
			for i, m := range s.messages {
				if size := proto.Size(m); size > charged[i] || charged[i] > keysPerMessage || m.GetLast() != (i == len(s.messages)-1) {
					t.Errorf("message %d of %d has %d bytes, charged %d", i, len(s.messages), size, charged[i])
				}
				if !m.GetLast() && len(m.GetKeys())+len(m.GetDeltas()) == 0 {
					t.Errorf("message %d of %d is empty", i, len(s.messages))
				}
				for _, d := range m.GetDeltas() {
					if offers[d.GetName()] || len(d.GetSteps()) != tt.versions || d.GetSteps()[0].GetMethod() != uint32(delta.Sparse) {
						t.Errorf("%.20q has %d steps, or is offered twice", d.GetName(), len(d.GetSteps()))
					}
					offers[d.GetName()] = true
				}
			}
			if len(offers) != tt.want {
				t.Errorf("%d tensors are offered, want %d", len(offers), tt.want)
			}
		})
	}
}

// TestOffersWaitNoLongerThanItGains: a pull over a fast route does not wait for a delta that takes five seconds to make, and
// one over a slow route does.
func TestOffersWaitNoLongerThanItGains(t *testing.T) {
	for rate, waits := range map[uint64]bool{1e8: false, 1e5: true, 0: true} {
		tr := newTrainer(t, 1, 1<<20, 0)
		tr.update()
		tr.made()
		p := tr.c.publications["w"]
		one := &made{estimate: delta.Summary{Method: delta.Sparse, Length: 1 << 20, Bytes: 1000, Changes: 100}, work: 5 * time.Second, done: make(chan struct{})}
		m := &making{
			from: &publication{life: life{number: p.number - 1}}, to: p, stop: func() {}, until: time.Now().Add(deltasWithin),
			looked: make(chan struct{}), tensors: []*made{one}, byName: map[string]*made{"t0": one},
		}
		close(m.looked)
		l := tr.line()
		tr.c.mu.Lock()
		l.deltas.fresh = m
		tr.c.mu.Unlock()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		o := tr.c.offers(p, p.entries, cluster.Task{Job: "rollout"}, &trystpb.DeltaRequest{Epoch: p.epoch, Number: p.number - 1, Rate: rate, RoundTrip: 1000})
		if !o.any() {
			t.Fatal("nothing is offered")
		}
		if goesOn := o.wait(ctx); goesOn == waits {
			t.Errorf("at %d bytes a second it waits: %v, want %v", rate, !goesOn, waits)
		}
		m.until = time.Now().Add(time.Second) // it is given up before it is made
		if !o.wait(ctx) {
			t.Errorf("at %d bytes a second it waits for what will not be made", rate)
		}
	}
}
