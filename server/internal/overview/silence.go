package overview

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
)

// Silence decides which peers are silent. It is a pure state machine:
//
//	heard ──nothing for probeAfter──► Look returns the peer ──Sent──► asked ──nothing for doubtAfter, at two Looks in a row──► silent
//	  ▲                                                                 │                                                         │
//	  └─────────── Answered, or the Heard of its Sign has changed ──────┴─────────────────────────────────────────────────────────┘
//
// A receive that waits for a value makes no peer silent: only a probe, which a process answers at once whatever its program
// does. A peer has one probe at a time.
type Silence struct {
	mu     sync.Mutex // guards what follows
	clock  time.Duration
	at     time.Time     // of clock
	paused time.Duration // when this process had not listened last, by clock
	looks  uint64
	begun  uint64 // looks at the last Begin
	probes uint64
	peers  map[cluster.Task]*presence
}

// Sign is a peer that can be probed.
type Sign struct {
	Peer cluster.Task
	// Heard changes when something comes from the peer, and At is when something came last; zero if that is not known.
	Heard int64
	At    time.Time
}

// Quiet is for how long nothing has come from a peer: since a time, or for longer.
type Quiet struct {
	Since  time.Time
	Longer bool // Since is when somebody looked first
}

// ProbeOf names a probe.
type ProbeOf struct {
	Peer cluster.Task
	id   uint64
}

// presence is what is known of a peer.
type presence struct {
	heard   int64
	quiet   time.Duration // when heard changed, by clock
	last    Quiet         // the same for people
	id      uint64        // of the probe that is under way; 0: none
	sent    bool          // the probe was sent, and not answered
	since   time.Duration // when it began, or was sent if it was, by clock
	decided bool          // since Begin: it was heard, is silent, or cannot be asked now
	doubt   bool          // the last Look had no answer to it for doubtAfter
	silent  bool          // until something comes
	told    bool          // silent at the last Look
	look    uint64        // the last one that had its Sign
}

// NewSilence returns a Silence without peers.
func NewSilence() *Silence { return &Silence{peers: make(map[cluster.Task]*presence)} }

// Begin begins to look again after a pause, in which nobody has counted what came. Probes that are under way remain.
func (s *Silence) Begin(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at, s.begun, s.paused = now, s.looks, s.clock
	for task, p := range s.peers {
		if p.id == 0 {
			delete(s.peers, task)
		}
		p.decided = p.silent
	}
}

// Look takes the signs of the peers. It returns those to probe, and whether a peer has become silent or is not silent any more.
func (s *Silence) Look(now time.Time, signs []Sign) (probe []ProbeOf, changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tick(now)
	s.looks++
	var due []dueProbe
	for _, sign := range signs {
		p := s.heardOf(now, sign)
		doubt := p.sent && s.clock-max(p.since, p.quiet, s.paused) >= doubtAfter
		p.silent, p.doubt = p.silent || p.doubt && doubt, doubt
		p.decided = p.decided || p.silent || p.id != 0 && !p.sent && s.clock-p.since >= unsentAfter
		changed = changed || p.silent != p.told
		p.told = p.silent
		if p.id == 0 && s.clock-p.quiet >= probeAfter {
			due = append(due, dueProbe{sign.Peer, p})
		}
	}
	for task, p := range s.peers {
		if p.look != s.looks {
			changed = changed || p.told
			delete(s.peers, task)
		}
	}
	return s.begin(due), changed
}

// tick moves the clock. A process that was stopped, or got no processor, has not listened meanwhile: a long time between two Looks does
// not count, and probes that are under way get their time anew.
func (s *Silence) tick(now time.Time) {
	if gap := now.Sub(s.at); gap <= 2*lookInterval {
		s.clock += max(0, gap)
	} else {
		s.paused = s.clock
	}
	s.at = now
}

// heardOf notes the sign of a peer. The first probe tells of one that is new.
func (s *Silence) heardOf(now time.Time, sign Sign) *presence {
	p := s.peers[sign.Peer]
	switch {
	case p == nil:
		p = &presence{heard: sign.Heard, quiet: s.clock - probeAfter, last: Quiet{now, true}}
		if !sign.At.IsZero() {
			p.last = Quiet{Since: sign.At}
		}
		s.peers[sign.Peer] = p
	case p.heard != sign.Heard:
		p.heard, p.quiet, p.last, p.doubt, p.silent, p.decided = sign.Heard, s.clock, Quiet{Since: now}, false, false, true
	}
	p.look = s.looks
	return p
}

// dueProbe is a peer that is to be probed.
type dueProbe struct {
	task cluster.Task
	*presence
}

// begin begins the probes that are due, those of the peers first that have said nothing for the longest time.
func (s *Silence) begin(due []dueProbe) []ProbeOf {
	slices.SortFunc(due, func(a, b dueProbe) int { return cmp.Or(cmp.Compare(a.quiet, b.quiet), a.task.Compare(b.task)) })
	due = due[:min(len(due), maxProbes)]
	probes := make([]ProbeOf, len(due))
	for i, p := range due {
		s.probes++
		p.id, p.sent, p.since = s.probes, false, s.clock
		probes[i] = ProbeOf{p.task, s.probes}
	}
	return probes
}

// Sent is the event that a probe was sent. One that could not be sent is no question.
func (s *Silence) Sent(probe ProbeOf) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.peers[probe.Peer]; p != nil && p.id == probe.id && !p.sent {
		p.sent, p.since = true, s.clock
	}
}

// Answered is the event that a probe was answered.
func (s *Silence) Answered(now time.Time, probe ProbeOf) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.ended(probe); p != nil {
		p.last, p.silent = Quiet{Since: now}, false
	}
}

// Failed is the event that the connection of a probe has ended, or none was there. A peer that was silent remains so.
func (s *Silence) Failed(probe ProbeOf) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended(probe)
}

// ended ends a probe, and returns its peer; nil if the peer is not known any more. The next probe begins after probeAfter.
func (s *Silence) ended(probe ProbeOf) *presence {
	p := s.peers[probe.Peer]
	if p == nil || p.id != probe.id {
		return nil
	}
	p.id, p.sent, p.doubt, p.decided, p.quiet = 0, false, false, true, s.clock
	return p
}

// Undecided reports whether a peer may turn out to be silent of which nothing was found out since Begin.
func (s *Silence) Undecided() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.looks == s.begun {
		return true
	}
	for _, p := range s.peers {
		if !p.decided {
			return true
		}
	}
	return false
}

// Silent returns the peers that are silent, and for how long nothing has come from each.
func (s *Silence) Silent() map[cluster.Task]Quiet {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[cluster.Task]Quiet)
	for task, p := range s.peers {
		if p.silent {
			all[task] = p.last
		}
	}
	return all
}
