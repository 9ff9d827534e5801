package verbstransport

import (
	"context"
	"errors"
	"log/slog"
	"regexp"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/channel"
	"github.com/tryst-rdma/tryst/internal/handshake"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/route"
	"github.com/tryst-rdma/tryst/verbs"
)

// What is logged of a peer. An outage is the time without a channel. Each fact of an outage is
// logged once: the handshake fails again at each attempt, with texts that differ in details, such
// as "EOF" and "connection reset by peer". The line about the next channel ends the outage and has
// its length and the number of failures. Levels: WARN is what an operator should act on.

// reasonKind is the kind of a reason why a peer has no channel.
type reasonKind uint8

const (
	reasonStarting reasonKind = iota // the two processes get to know each other
	reasonStopped                    // the peer stops
	reasonAway                       // no call reaches the peer
	reasonPaused                     // a side has no device or no path for now
	reasonBroken                     // a channel broke or was closed; logLeft logs it
	reasonPort                       // the device or the port of this host; one line for all peers says that
	reasonSilent                     // both sides have connected, and no packet comes
	reasonUnfit                      // this process sees that the two sides do not fit
	reasonRefused                    // the peer says so
	reasonFault                      // all else: a fault of the peer, or of this host
)

// reasonKindOf returns the kind of the reason why there is no channel to a peer.
func reasonKindOf(peer cluster.Task, err error) reasonKind {
	_, unreached := errors.AsType[*handshake.UnreachedError](err)
	_, said := errors.AsType[*status.Said](err)
	code := status.CodeOf(err)
	switch {
	case handshake.IsStopping(peer, err):
		return reasonStopped
	case isOfPort(err):
		return reasonPort
	case errors.Is(err, handshake.ErrNotKnown):
		return reasonStarting
	case errors.Is(err, handshake.ErrNoPackets):
		return reasonSilent
	case errors.Is(err, channel.ErrClosedHere):
		return reasonBroken
	case unreached && transport.WrongSetting(err.Error()):
		return reasonUnfit
	case unreached && !isPermanent(err), code == status.DeadlineExceeded && !said:
		return reasonAway
	case code == status.Unavailable, code == status.DeadlineExceeded, code == status.Cancelled, code == status.Aborted:
		return reasonPaused
	case isPermanent(err) && said:
		return reasonRefused
	case isPermanent(err):
		return reasonUnfit
	}
	return reasonFault
}

// ReasonWord returns the kind of the reason why there is no channel to a peer (Connection.Reason), as one word of a fixed set.
func ReasonWord(peer cluster.Task, err error) string {
	return [...]string{
		reasonStarting: "starting", reasonStopped: "stopped", reasonAway: "away", reasonPaused: "paused", reasonBroken: "broken",
		reasonPort: "port", reasonSilent: "silent", reasonUnfit: "unfit", reasonRefused: "refused", reasonFault: "fault",
	}[reasonKindOf(peer, err)]
}

// IsDenied reports whether err, the reason why there is no channel to a peer, is that one of the two does not prove its
// name: a setting is wrong, wherever verbs may be missing. A proxy's answer with such a code says nothing of a name.
func IsDenied(err error) bool {
	if _, unreached := errors.AsType[*handshake.UnreachedError](err); unreached {
		return false
	}
	code := status.CodeOf(err)
	return code == status.PermissionDenied || code == status.Unauthenticated
}

// isOfPort reports whether the error is that of the device or the port in use. It concerns all
// peers, and is logged once for all (events.go, device.go).
func isOfPort(err error) bool {
	return errors.Is(err, errInactive) || errors.Is(err, ErrNoAddress) || errors.Is(err, verbs.ErrDeviceGone) || errors.Is(err, verbs.ErrClosed)
}

// details are the parts of a reason that may differ at each attempt: numbers and addresses.
var details = regexp.MustCompile(`[0-9a-fA-F:.]*[0-9][0-9a-fA-F:.]*`)

// peerLog is what was logged of a peer. Guarded by peer.logging.
type peerLog struct {
	up       bool                // the last line says that there is a channel
	route    string              // of the last channel
	better   map[string]struct{} // facts about better routes that are not taken
	kind     reasonKind          // of the present reason
	reason   string              // its text
	last     *status.Error       // the reason that was counted last
	failures int                 // in this outage
	since    time.Time           // begin of the outage; zero if it was not logged
	facts    map[string]struct{} // of this outage
	judge    reasonKind          // the first of reasonUnfit and reasonRefused since a call has not reached the peer; zero for none
	silent   int                 // reasons of the kind reasonSilent in this outage
	left     string              // the reason of the channel that was left last, which logLeft has logged
	short    int                 // channels in a row that broke before they had lasted
}

// logState logs when the peer has changed between verbs and its fallback, or the reason for the
// fallback is a new fact.
func (p *peer) logState() {
	p.logging.Lock()
	defer p.logging.Unlock()
	p.mu.Lock()
	closing, lost := p.closing, p.lostDevices() != nil
	p.mu.Unlock()
	if lost { // one line for all peers says that
		p.logged = peerLog{short: p.logged.short}
	}
	if closing || lost {
		return
	}
	switch k := p.status(); {
	case k.Verbs:
		p.logUp(k)
	case k.Reason != nil:
		p.logReason(k.Reason)
	}
}

// logUp logs that there is a channel. Called with logging held.
func (p *peer) logUp(k Connection) {
	g := &p.logged
	if g.up && g.route == k.Route {
		p.logBetter(k)
		return
	}
	args := []any{"peer", p.task.String(), "generation", k.Generation, "queue_pairs", k.QueuePairs}
	message := "tensors from and to the peer go over verbs"
	if len(k.Routes) > 0 {
		args = append(args, "route", k.Route, "device", k.Device)
	}
	if g.up {
		message = "tensors from and to the peer go over another device"
		args = append(args, "before", g.route)
	}
	if !g.since.IsZero() {
		args = append(args, "without_seconds", time.Since(g.since).Round(time.Millisecond).Seconds(), "failures", g.failures)
	}
	*g = peerLog{up: true, route: k.Route, short: g.short, better: g.better}
	p.transport.opts.Logger.Info(message, args...)
	p.logBetter(k)
}

// logBetter logs why better routes than that of the channel are not taken, each fact once. Called
// with logging held.
func (p *peer) logBetter(k Connection) {
	g := &p.logged
	for _, r := range k.Routes {
		fact := r.Route + details.ReplaceAllString(r.Why, "#")
		_, known := g.better[fact]
		if !r.Better || r.Why == "" || known || len(g.better) == maxFacts {
			continue
		}
		if g.better == nil {
			g.better = make(map[string]struct{})
		}
		g.better[fact] = struct{}{}
		// Without the device there is nothing to do here, and a client logs by itself.
		quiet := r.Device == "" || p.transport.opts.Optional || !p.transport.opts.Callable(p.task)
		level := levelFor(quiet, slog.LevelDebug, slog.LevelInfo)
		p.transport.opts.Logger.Log(context.Background(), level, "a better route to the peer is not taken", "peer", p.task.String(), "route", r.Route, "reason", r.Why)
	}
}

// logClear logs once that RDMA is in clear, when a channel over it is up although gRPC has TLS.
func (t *RdmaRemoteRendezvous) logClear(l *link) {
	if l.route.over != route.Fabric || t.opts.TLS <= handshake.NoTLS || !t.clear.CompareAndSwap(false, true) {
		return
	}
	t.opts.Logger.Warn("tensors over RDMA are neither secret nor authentic, although TLS is set; give the setting provider no RDMA device (tcp,shm), or use RDMA on a trusted network alone",
		"device", l.port.name, "peer", l.peer.task.String())
}

// logReason logs a reason why there is no channel, if it is a new fact. Called with logging held.
func (p *peer) logReason(err error) {
	g, text := &p.logged, err.Error()
	e, _ := err.(*status.Error) //nolint:errorlint // the identity of this very error counts
	if text == g.reason && e == g.last || text == g.left {
		return
	}
	if g.up {
		*g = peerLog{short: g.short}
	}
	g.failures++
	kind := reasonKindOf(p.task, err)
	stopped := g.kind == reasonStopped && g.reason != ""
	g.reason, g.last = text, e
	if stopped && kind == reasonAway {
		return // what follows from the stop is no other fact
	}
	g.kind = kind
	switch {
	case kind == reasonStopped, kind == reasonAway: // the next process may be another one
		g.judge = 0
	case kind == reasonSilent:
		g.silent++
	case g.judge == 0 && (kind == reasonUnfit || kind == reasonRefused):
		g.judge = kind
	}
	level, message := p.lineOf(kind)
	level = p.optional(level, err)
	if o := &p.transport.opts; level == slog.LevelWarn && o.Require && o.Task.Job == cluster.ClientJob && p.never() != nil {
		level = slog.LevelInfo // the error that ends the receives of the user says it
	}
	fact := message
	if level == slog.LevelWarn {
		fact += details.ReplaceAllString(text, "#")
	}
	if _, known := g.facts[fact]; known || len(g.facts) == maxFacts {
		level = slog.LevelDebug
	} else if g.facts == nil {
		g.facts = make(map[string]struct{})
	}
	g.facts[fact] = struct{}{}
	if level > slog.LevelDebug && g.since.IsZero() {
		g.since = time.Now()
	}
	args := []any{"peer", p.task.String(), "reason", err}
	if kind != reasonStopped && kind != reasonStarting && kind != reasonAway {
		args = append(args, "instead", p.transport.fallback())
	}
	p.transport.opts.Logger.Log(context.Background(), level, message, args...)
}

// lineOf returns level and message of the line about a reason. Called with logging held.
func (p *peer) lineOf(kind reasonKind) (slog.Level, string) {
	g := &p.logged
	client := !p.transport.opts.Callable(p.task) // it logs by itself what it should act on
	switch kind {
	case reasonStarting:
		return slog.LevelDebug, "the handshake with the peer goes on"
	case reasonPort:
		return slog.LevelDebug, "no verbs with the peer, as with all"
	case reasonStopped:
		return levelFor(client, slog.LevelDebug, slog.LevelInfo), "the peer has stopped"
	case reasonAway:
		if p.reached() {
			return slog.LevelInfo, "the peer has gone or is restarting"
		}
		return slog.LevelInfo, "the peer does not answer yet"
	case reasonPaused, reasonBroken:
		return slog.LevelInfo, "no verbs with the peer for now"
	case reasonSilent:
		// Once, the peer may have ended in the middle of the handshake.
		return levelFor(g.silent < 2, slog.LevelInfo, slog.LevelWarn), "no verbs with the peer"
	case reasonUnfit, reasonRefused:
		switch { // each side judges by itself, and gets the other's judgement: that is one fact
		case g.judge != kind:
			return slog.LevelDebug, "no verbs with the peer"
		case client:
			return slog.LevelInfo, "no verbs with the peer"
		}
	case reasonFault:
	}
	return slog.LevelWarn, "no verbs with the peer"
}

// optional lowers the level of a line about a reason why there is no channel, where nobody has asked for verbs: only faults
// and refused names are worth a warning, and what a peer never has is logged at debug level.
func (p *peer) optional(level slog.Level, err error) slog.Level {
	switch {
	case !p.transport.opts.Optional, reasonKindOf(p.task, err) == reasonFault, IsDenied(err):
		return level
	case isPermanent(err):
		return slog.LevelDebug
	}
	return min(level, slog.LevelInfo)
}

// levelFor returns the level a if that is, and b otherwise.
func levelFor(is bool, a, b slog.Level) slog.Level {
	if is {
		return a
	}
	return b
}

// reached reports whether any channel to the peer has been up.
func (p *peer) reached() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.cameUp.IsZero()
}

// logLeft logs that a channel was left because of err. present says that no other one has taken its
// place: then err is the reason why there is none.
func (p *peer) logLeft(l *link, err error, present bool) {
	p.logging.Lock()
	defer p.logging.Unlock()
	p.mu.Lock()
	quiet := p.closing || p.lostDevices() != nil // one line for all peers says that
	lasted := time.Since(p.cameUp)
	instead, other := p.transport.fallback(), p.active != nil
	if other {
		instead = p.active.route.over.String()
	}
	p.mu.Unlock()
	log, g := p.transport.opts.Logger, &p.logged
	args := []any{"peer", p.task.String(), "generation", l.own.Generation, "reason", err}
	_, said := errors.AsType[*status.Said](err)
	switch {
	case quiet, l.isReplaced(), isOfPort(err), errors.Is(err, channel.ErrClosedHere) && !present, route.IsLeaving(p.task, err):
		log.Debug("a channel was left", args...)
		return
	case handshake.IsStopping(p.task, err):
		p.logReason(err)
		return
	}
	// The next attempt replaces the reason in the peer's state.
	if !other {
		*g = peerLog{short: g.short, failures: 1, kind: reasonBroken, reason: err.Error(), left: err.Error(), since: time.Now()}
	}
	args = append(args, "instead", instead)
	switch {
	case said:
		log.Info("the peer has closed the channel", args...)
	case status.CodeOf(err) == status.Unknown && !errors.Is(err, channel.ErrClosedHere): // no break of a connection has this code
		log.Warn("a channel was left because of a fault; if it comes again, run the same release of Tryst on both sides", args...)
	case status.CodeOf(err) == status.Aborted: // by another process of the peer, or for another channel
		log.Info("a channel was left", args...)
	default:
		if g.short++; lasted >= handshake.Steady {
			g.short = 1
		}
		if g.short == shortChannels {
			log.Warn("channels to the peer break again and again; check the path to it: tryst doctor --transport verbs --cluster ...", args...)
			return
		}
		log.Info("a channel broke", args...)
	}
}
