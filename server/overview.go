package server

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/checkpoint"
	"github.com/tryst-rdma/tryst/internal/collective"
	"github.com/tryst-rdma/tryst/internal/statusapi"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/server/internal/incarnations"
	"github.com/tryst-rdma/tryst/server/internal/memory"
	"github.com/tryst-rdma/tryst/server/internal/metrics"
	"github.com/tryst-rdma/tryst/server/internal/overview"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
)

// How much of a process a status shows.
const (
	shownWaits    = 200
	shownSteps    = 100
	shownGroups   = 100
	shownMembers  = 20 // of a group
	shownSessions = 100
	shownRunning  = 20 // steps of a session
	shownPulls    = 200
	shownWatchers = 100
	shownName     = 1024 // bytes of the name of a publication that somebody watches: it need not be there
	// visitedWaits is how many entries of tables are looked at for the oldest waits: a millisecond or two.
	visitedWaits = 20_000
)

// overviewOptions are the arguments of startOverview.
type overviewOptions struct {
	Served    bool // somebody can ask for it
	Transport string
	Build     statusapi.Build
	Settings  []statusapi.Setting // that differ from their defaults
	Limits    overviewLimits
}

// overviewLimits are the limits that no other part tells.
type overviewLimits struct {
	MaxWaiting      int
	KeptTotal       int64
	Sessions, Steps int
}

// serverOverview is the part of a server that has what /api/status serves.
type serverOverview struct {
	overviewOptions
	traffic *overview.Traffic
	sampler *overview.Sampler
	watch   *overview.Watch // nil when nobody can ask
	cache   overview.Cache
	started time.Time
	host    string
}

// startOverview starts the part that samples for /api/status. Without an address that serves it nothing is sampled.
func (s *Server) startOverview(o overviewOptions) error {
	v := &serverOverview{overviewOptions: o, traffic: overview.NewTraffic(), started: time.Now()}
	v.host, _ = os.Hostname() // empty if the system does not tell
	v.cache.Take = s.status
	s.overview = v
	if o.Served {
		v.sampler = overview.StartSampler(v.traffic, s.trafficTotals)
		v.watch = s.startWatch()
		v.cache.Changed = v.watch.ChangedAt
	}
	return nil
}

func (s *Server) stopOverview(context.Context) error {
	s.overview.watch.Close()
	s.overview.sampler.Close()
	return nil
}

// get returns what is served. The first request after a pause waits until the peers have answered.
func (v *serverOverview) get(ctx context.Context) (overview.Encoded, error) {
	v.watch.Read(ctx)
	return v.cache.Get()
}

// trafficTotals returns what was sent to and received from each peer.
func (s *Server) trafficTotals() []overview.Total {
	var all []overview.Total
	over := make(map[string]overview.Total) // gRPC, by peer
	if s.rdma != nil {
		s.rdma.Transport.Traffic(func(t verbstransport.Traffic) {
			all = append(all, overview.Total{
				Peer: t.Task.String(), Route: cmp.Or(t.Route, verbstransport.Name), Sent: int64(t.SentBytes), Received: int64(t.ReceivedBytes), //nolint:gosec // bytes that were sent
			})
		})
	}
	s.metrics.Received.Each(func(name string, peer cluster.Task, _, bytes int64) {
		if name == grpctransport.Name {
			task := metrics.OtherPeers
			if peer != (cluster.Task{}) {
				task = peer.String()
			}
			over[task] = overview.Total{Peer: task, Route: name, Received: bytes}
		}
	})
	s.metrics.Calls.EachSent(func(peer string, bytes int64) {
		over[peer] = overview.Total{Peer: peer, Route: grpctransport.Name, Sent: bytes, Received: over[peer].Received}
	})
	return slices.AppendSeq(all, maps.Values(over))
}

// status takes a snapshot. Each part is asked in turn, so they may differ by what happens meanwhile.
func (s *Server) status() *statusapi.Status {
	v, now := s.overview, time.Now()
	st := &statusapi.Status{
		Version: statusapi.Version, Time: now, Settings: v.Settings, Warnings: s.warnings.Newest(),
		Process: statusapi.Process{
			Task: s.task.String(), Incarnation: fmt.Sprintf("%016x", s.incarnation), Address: s.address.String(), PID: os.Getpid(), Host: v.host,
			State: s.stageName(), Reason: cmp.Or(s.alive(), s.ready()), Transport: v.Transport, Started: v.started, UptimeSeconds: now.Sub(v.started).Seconds(), Build: v.Build,
		},
	}
	st.Routes, st.History = v.traffic.Routes()
	st.Waits, st.Steps = s.waitStatus(now)
	st.Groups = s.groupStatus(now, &st.Waits)
	st.Peers = s.peerStatus(now, v.traffic.Counts(), st.Waits.Oldest)
	st.Publish = s.publishStatus(now)
	st.Sessions = s.sessionStatus(now)
	st.Limits = s.limitStatus()
	return st
}

func (s *Server) stageName() string {
	switch stage(s.stage.Load()) {
	case publishing:
		return "publishing"
	case stopping:
		return "stopping"
	default:
		return "ready"
	}
}

// waitStatus returns the longest waits, and the steps.
func (s *Server) waitStatus(now time.Time) (statusapi.Waits, statusapi.Steps) {
	here := s.manager.Waiting(shownWaits, visitedWaits)
	waiting := s.transport.Waiting
	if s.rdma != nil {
		waiting = s.rdma.Transport.Waiting
	}
	remote, total, complete := waiting(shownWaits, visitedWaits, collective.IsWatch)
	all := make([]statusapi.Wait, 0, len(here.Oldest)+len(remote))
	for _, w := range here.Oldest {
		all = append(all, hereWait(now, w))
	}
	for _, w := range remote {
		all = append(all, remoteWait(now, w))
	}
	unknown, more := s.incarnations.Waiting(shownWaits, visitedWaits)
	for _, w := range unknown {
		all = append(all, s.unknownWait(now, w))
	}
	waits := statusapi.Waits{Oldest: oldestWaits(all), Total: here.Total + total + more, Complete: here.Complete && complete}
	steps := statusapi.Steps{Total: here.Living, Oldest: make([]statusapi.Step, 0, len(here.Steps))}
	for _, one := range here.Steps[:min(len(here.Steps), shownSteps)] {
		step := statusapi.Step{Step: strconv.FormatInt(one.Step, 10), Since: one.Since, Seconds: now.Sub(one.Since).Seconds(), Begun: one.Begun, Waits: one.Waits, Unreceived: one.Values}
		for _, k := range one.Unreceived {
			step.UnreceivedKeys = append(step.UnreceivedKeys, k.Edge()+" for "+k.Dst().Task.String())
		}
		steps.Oldest = append(steps.Oldest, step)
	}
	return waits, steps
}

// oldestWaits sorts waits, the longest first, and returns those that are shown.
func oldestWaits(all []statusapi.Wait) []statusapi.Wait {
	slices.SortStableFunc(all, func(a, b statusapi.Wait) int { return a.Since.Compare(b.Since) })
	return all[:min(len(all), shownWaits)]
}

// waitOf makes a Wait from what all kinds have in common.
func waitOf(now time.Time, kind string, waiter, on cluster.Task, key *rendezvous.Key, step int64, since time.Time, detail string) statusapi.Wait {
	at, frame := key.FrameIter(), ""
	if at.Frame != 0 {
		frame = strconv.FormatUint(at.Frame, 10)
	}
	return statusapi.Wait{
		Kind: kind, Waiter: waiter.String(), On: on.String(), Key: key.Edge(), Step: strconv.FormatInt(step, 10), Frame: frame, Iteration: at.Iter,
		Since: since, Seconds: max(0, now.Sub(since).Seconds()), Detail: detail,
	}
}

// unknownWait is a receive that has no key yet, since its peer has not said which process it is.
func (s *Server) unknownWait(now time.Time, w incarnations.Waiting) statusapi.Wait {
	detail := "the peer is being looked for"
	if w.Why != nil {
		detail = notReached(w.Why)
	}
	return statusapi.Wait{
		Kind: statusapi.WaitReceive, Waiter: s.task.String(), On: w.Device.Task.String(), Key: w.Name, Step: strconv.FormatInt(w.Step, 10),
		Since: w.Since, Seconds: max(0, now.Sub(w.Since).Seconds()), Detail: detail,
	}
}

func notReached(why error) string {
	return "the peer is not reached: " + metrics.Label(status.From(why).Message())
}

func hereWait(now time.Time, w rendezvous.Waiting) statusapi.Wait {
	kind, detail := statusapi.WaitLocal, "this process has not sent the value"
	waiter, on := w.Key.Dst().Task, w.Key.Src().Task
	switch w.Kind {
	case rendezvous.WaitPeer:
		kind, detail = statusapi.WaitPeer, "the peer has asked for the value, and this process has not sent it"
	case rendezvous.WaitBegin:
		kind, detail = statusapi.WaitBegin, "the peer has asked for the value, and this process has not begun the step"
	case rendezvous.WaitSpace:
		kind, detail = statusapi.WaitSpace, "the receiver has not taken what was sent to it before, and send-bound lets no more be sent"
		waiter, on = on, waiter
	}
	return waitOf(now, kind, waiter, on, &w.Key, w.Step, w.Since, detail)
}

func remoteWait(now time.Time, w transport.Waiting) statusapi.Wait {
	detail := "the peer has the request, and has not sent the value"
	switch {
	case w.Why != nil:
		detail = notReached(w.Why)
	case !w.Sent && w.Requests == 0:
		detail = "the peer is being looked for, or other requests go first"
	case !w.Sent:
		detail = "the request was lost, and is sent again"
	case w.Requests > 1:
		detail += fmt.Sprintf(" (request %d)", w.Requests)
	}
	return waitOf(now, statusapi.WaitReceive, w.Key.Dst().Task, w.Task, &w.Key, w.Step, w.Since, detail)
}

// groupStatus returns the groups, and adds those that are not complete to the waits.
func (s *Server) groupStatus(now time.Time, waits *statusapi.Waits) statusapi.Groups {
	groups, total := s.collective.GroupStates(shownGroups, shownMembers)
	st := statusapi.Groups{Total: total, Oldest: make([]statusapi.Group, 0, len(groups))}
	for _, g := range groups {
		one := statusapi.Group{
			Key: g.Key, Size: g.Size, Joined: g.Joined, Complete: g.Complete, Since: g.Since, Seconds: now.Sub(g.Since).Seconds(), Missing: taskNames(g.Missing), Members: taskNames(g.Members),
		}
		st.Oldest = append(st.Oldest, one)
		if g.Complete || g.Joined == 0 {
			continue
		}
		waits.Total++
		waits.Oldest = append(waits.Oldest, statusapi.Wait{
			Kind: statusapi.WaitGroup, Waiter: cmp.Or(strings.Join(one.Members[:min(1, len(one.Members))], ""), s.task.String()), On: cmp.Or(strings.Join(one.Missing[:min(1, len(one.Missing))], ""), "other members"),
			Key: fmt.Sprintf("group %d", g.Key), Since: g.Since, Seconds: one.Seconds,
			Detail: fmt.Sprintf("%d of %d members have joined", g.Joined, g.Size),
		})
	}
	waits.Oldest = oldestWaits(waits.Oldest)
	return st
}

func taskNames(tasks []cluster.Task) (names []string) {
	for _, t := range tasks {
		names = append(names, t.String())
	}
	return names
}

// peerStatus returns the peers with their counts, and adds to the waits why a peer is not reached.
func (s *Server) peerStatus(now time.Time, counts map[string]statusapi.Counts, waits []statusapi.Wait) []statusapi.Peer {
	waitsOn := make(map[string]int)
	for i := range waits {
		waitsOn[waits[i].On]++
	}
	links := s.Links()
	silent := make(map[string]overview.Quiet)
	for task, quiet := range s.overview.watch.Silent() {
		silent[task.String()] = quiet
	}
	why := make(map[string]string)
	peers := make([]statusapi.Peer, len(links))
	for i := range links {
		l := &links[i]
		peers[i] = statusapi.Peer{
			Task: l.Task, Route: cmp.Or(l.Over, l.Route), State: string(l.State), Since: l.Since, Reason: l.Reason, Error: l.Error, Device: l.Device,
			Address: cmp.Or(l.Dialed, l.RemoteAddress), Breaks: l.Breaks, Counts: counts[l.Task], Waits: waitsOn[l.Task],
		}
		if quiet, ok := silent[l.Task]; ok && l.State == LinkUp {
			setSilent(&peers[i], now, quiet)
			why[l.Task] = "the peer does not answer: " + peers[i].Error
		}
		if l.State != LinkUp && l.Error != "" {
			why[l.Task] = "the peer is not reached: " + l.Error
		}
	}
	for i := range waits { // the link knows the reason before the first request has failed
		if detail := why[waits[i].On]; detail != "" && waits[i].Kind == statusapi.WaitReceive {
			waits[i].Detail = detail
		}
	}
	return peers
}

func (s *Server) publishStatus(now time.Time) statusapi.Publish {
	offers, pulls := s.catalog.Offers(), s.catalog.Pulling()
	st := statusapi.Publish{Publications: make([]statusapi.Publication, 0, len(offers)), Pulls: make([]statusapi.Pull, 0, len(pulls)), TotalPulls: len(pulls)}
	st.Watchers, st.TotalWatchers = s.watcherStatus(now)
	for _, o := range offers {
		st.Publications = append(st.Publications, statusapi.Publication{
			Name: o.Name, Version: o.Version, Current: o.Current, Tensors: o.Tensors, Bytes: o.Bytes, Published: o.Published, Pulls: o.Pulls,
			Number: strconv.FormatUint(o.Number, 10), Watchers: o.Watchers,
		})
	}
	for _, p := range pulls[:min(len(pulls), shownPulls)] {
		st.Pulls = append(st.Pulls, statusapi.Pull{
			Publication: p.Publication, Version: p.Version, Puller: p.Puller.String(), Address: p.Address, Since: p.Since, Seconds: now.Sub(p.Since).Seconds(),
			Tensors: p.Tensors, Bytes: p.Bytes, Sent: p.Sent,
		})
	}
	return st
}

// watcherStatus returns the watchers of publications, and how many there are.
func (s *Server) watcherStatus(now time.Time) ([]statusapi.Watcher, int) {
	watching, total := s.catalog.Watching(shownWatchers)
	all := make([]statusapi.Watcher, len(watching))
	for i, w := range watching {
		all[i] = statusapi.Watcher{
			Publication: shortName(w.Publication), Address: w.Address, Since: w.Since, Seconds: max(0, now.Sub(w.Since).Seconds()),
			Version: w.Version, By: w.By,
		}
		if w.Watcher != (cluster.Task{}) {
			all[i].Watcher, all[i].Number, all[i].Behind = w.Watcher.String(), strconv.FormatUint(w.Number, 10), &w.Behind
		}
	}
	return all, total
}

// shortName returns the beginning of a name that a stranger may have chosen.
func shortName(s string) string {
	if len(s) <= shownName {
		return s
	}
	return strings.ToValidUTF8(s[:shownName], "") + "..."
}

func (s *Server) sessionStatus(now time.Time) statusapi.Sessions {
	all := s.worker.SessionStates()
	st := statusapi.Sessions{Total: len(all), Oldest: []statusapi.Session{}}
	for _, one := range all[:min(len(all), shownSessions)] {
		session := statusapi.Session{
			Handle: one.Handle, Master: one.Master, Task: one.Task, Graphs: one.Graphs, Steps: len(one.Running), Running: []statusapi.Running{},
		}
		for _, r := range one.Running[:min(len(one.Running), shownRunning)] {
			session.Running = append(session.Running, statusapi.Running{Step: strconv.FormatInt(r.Step, 10), Since: r.Since, Seconds: now.Sub(r.Since).Seconds()})
		}
		st.Oldest = append(st.Oldest, session)
	}
	return st
}

// limitStatus returns the limits of the process that can fill up.
func (s *Server) limitStatus() []statusapi.Limit {
	const bytes = "bytes"
	cache, graphs, pool, l := s.cache.Stats(), s.worker.Stats(), s.budget.Pool.Stats(), s.overview.Limits
	unreceived, _ := s.manager.Unreceived()
	all := []statusapi.Limit{
		{Name: "common memory", Used: pool.InUse, Most: s.memory.Common, Unit: bytes, Setting: "memory"},
		{Name: "kept responses", Used: cache.Bytes, Most: l.KeptTotal, Unit: bytes, Setting: "kept.total"},
		{Name: "requests under way", Used: s.grpc.Requests.Bytes(), Most: s.memory.Requests, Unit: bytes},
		{Name: "waiting requests of peers", Used: int64(cache.Waiting), Most: int64(memory.WaitingRequesters * l.MaxWaiting), Setting: "max-waiting"},
		{Name: "unreceived values of SendWait", Used: unreceived, Unit: bytes, Setting: "send-bound"},
		{Name: "pulls", Used: int64(s.catalog.Pulls()), Most: checkpoint.MaxPulls},
		{Name: "sessions", Used: int64(graphs.Sessions), Most: int64(l.Sessions), Setting: "max-sessions"},
		{Name: "running steps of graphs", Used: int64(graphs.RunningSteps), Most: int64(l.Steps), Setting: "max-running-steps"},
	}
	if s.rdma != nil {
		m := s.rdma.Transport.Memory()
		all = append(all,
			statusapi.Limit{Name: "registered for sending", Used: m.Sending.Registered, Most: m.Sending.Limit, Unit: bytes, Setting: "arena-limit"},
			statusapi.Limit{Name: "registered for receiving", Used: m.Receiving.Registered, Most: m.Receiving.Limit, Unit: bytes, Setting: "arena-limit"})
	}
	return all
}
