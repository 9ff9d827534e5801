package verbstransport_test

import (
	"maps"
	"slices"
	"sync"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/wire"
	"github.com/tryst-rdma/tryst/verbs"
)

// spy records what a process makes of its device and posts there.
type spy struct {
	mu       sync.Mutex
	memory   []spiedMR
	cqs      map[verbs.CQ]*spiedCQ
	counts   tally
	imms     map[wire.Imm]int // of posted writes
	over     map[verbs.QP]int // the same, by queue pair
	refuse   error            // error of RegisterMemory; nil to register
	refused  int
	register int
	windows  int                      // number of windows bound
	write    verbs.SendWR             // last write with imm
	late     func(verbs.SendWR) error // posts on the queue pair of write
}

// tally counts posts: messages by kind, writes with and without imm, and the bytes of
// content in both.
type tally struct {
	Kinds        [wire.KindUnknown + 1]int
	Writes, Imms int
	Bytes        uint64
	Probes       int
	Longest      uint64 // longest post, in bytes
}

type spiedMR struct {
	verbs.MR
	mem []byte
}

// spiedCQ is the size of a completion queue, and the number of work requests that its
// queue pairs can have outstanding.
type spiedCQ struct{ size, load int }

// spies has a spy for each task of a cluster.
type spies map[cluster.Task]*spy

// watched returns options of a cluster whose devices are watched by spies.
func watched(o clusterOptions) (clusterOptions, spies) {
	all := make(spies)
	for i := range 3 {
		all[cluster.Task{Job: "worker", Index: i}] = &spy{cqs: make(map[verbs.CQ]*spiedCQ), imms: make(map[wire.Imm]int), over: make(map[verbs.QP]int)}
	}
	o.wrap = func(t cluster.Task, d verbs.Device) verbs.Device { return &spiedDevice{d, all[t]} }
	return o, all
}

// of returns the spy of a process.
func (s spies) of(a *actor) *spy { return s[a.task] }

// tally returns what has been posted since it was called last.
func (s *spy) tally() tally {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.counts
	s.counts = tally{}
	return t
}

// lasts counts the last writes on each queue pair that had any, in ascending order.
func (s *spy) lasts() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Values(s.over))
}

// refuses makes registrations fail with err from now on; nil ends that.
func (s *spy) refuses(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = err
}

type spiedDevice struct {
	verbs.Device
	spy *spy
}

func (d *spiedDevice) AllocPD() (verbs.PD, error) {
	pd, err := d.Device.AllocPD()
	if err != nil {
		return nil, err
	}
	return &spiedPD{pd, d.spy}, nil
}

func (d *spiedDevice) CreateCQ(c verbs.CQConfig) (verbs.CQ, error) {
	cq, err := d.Device.CreateCQ(c)
	if err == nil {
		d.spy.mu.Lock()
		d.spy.cqs[cq] = &spiedCQ{size: cq.Size()}
		d.spy.mu.Unlock()
	}
	return cq, err
}

type spiedPD struct {
	verbs.PD
	spy *spy
}

func (p *spiedPD) RegisterMemory(mem []byte, access verbs.Access) (verbs.MR, error) {
	p.spy.mu.Lock()
	err := p.spy.refuse
	if err != nil {
		p.spy.refused++
	}
	p.spy.mu.Unlock()
	if err != nil {
		return nil, err
	}
	mr, err := p.PD.RegisterMemory(mem, access)
	if err == nil {
		p.spy.mu.Lock()
		p.spy.register++
		p.spy.memory = append(p.spy.memory, spiedMR{mr, mem})
		p.spy.mu.Unlock()
	}
	return mr, err
}

func (p *spiedPD) CreateQP(c verbs.QPConfig) (verbs.QP, error) {
	qp, err := p.PD.CreateQP(c)
	if err != nil {
		return nil, err
	}
	p.spy.mu.Lock()
	p.spy.cqs[c.SendCQ].load += c.MaxSend
	p.spy.cqs[c.RecvCQ].load += c.MaxRecv
	p.spy.mu.Unlock()
	return &spiedQP{qp, p.spy}, nil
}

type spiedQP struct {
	verbs.QP
	spy *spy
}

func (q *spiedQP) BindWindow(mr verbs.MR, offset, length uint64, access verbs.Access) (verbs.Window, error) {
	q.spy.mu.Lock()
	q.spy.windows++
	q.spy.mu.Unlock()
	return q.QP.BindWindow(mr, offset, length, access)
}

func (q *spiedQP) PostSend(wrs []verbs.SendWR) (int, error) {
	q.spy.saw(q.QP, wrs) // count before the peer can receive it
	return q.QP.PostSend(wrs)
}

func (q *spiedQP) PostSendAndPoll(wrs []verbs.SendWR, cq verbs.CQ, wcs []verbs.WC) (posted, polled int, err error) {
	q.spy.saw(q.QP, wrs)
	return q.QP.PostSendAndPoll(wrs, cq, wcs)
}

func (s *spy) saw(qp verbs.QP, wrs []verbs.SendWR) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range wrs {
		s.counts.Longest = max(s.counts.Longest, wrs[i].Len())
		switch w := &wrs[i]; {
		case w.Op == verbs.OpWriteImm:
			s.counts.Imms++
			s.counts.Bytes += w.Len()
			s.imms[wire.Imm(w.Imm)]++
			s.over[qp]++
			s.write, s.late = *w, func(w verbs.SendWR) error { _, err := qp.PostSend([]verbs.SendWR{w}); return err }
		case w.Op == verbs.OpWrite && w.Len() == 0:
			s.counts.Probes++
		case w.Op == verbs.OpWrite:
			s.counts.Writes++
			s.counts.Bytes += w.Len()
		default:
			if k, err := wire.KindOf(s.bytesLocked(w)); err == nil {
				s.counts.Kinds[k]++
			}
		}
	}
}

// bytesLocked returns the first part of a message that was posted.
func (s *spy) bytesLocked(w *verbs.SendWR) []byte {
	if w.Inline != nil || len(w.SGL) == 0 {
		return w.Inline
	}
	for _, m := range s.memory {
		if e := w.SGL[0]; m.LKey() == e.LKey {
			return m.mem[e.Addr-m.Addr():][:e.Length]
		}
	}
	return nil
}
