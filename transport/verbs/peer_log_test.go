package verbstransport

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/channel"
	"github.com/tryst-rdma/tryst/internal/handshake"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/route"
	"github.com/tryst-rdma/tryst/verbs"
)

// loggedPeer is a peer whose log is in lines. It is a client if the cluster has no address of it.
func loggedPeer(t *testing.T, client bool) (p *peer, lines func() string) {
	t.Helper()
	var b bytes.Buffer
	tr := &RdmaRemoteRendezvous{opts: Options{
		Logger:   slog.New(slog.NewTextHandler(&b, nil)),
		Callable: func(cluster.Task) bool { return !client },
	}}
	p = &peer{transport: tr, task: cluster.Task{Job: "worker", Index: 1}}
	for _, k := range route.Routes {
		p.routes = append(p.routes, &peerRoute{peer: p, over: k})
	}
	return p, func() string {
		defer b.Reset()
		var short []string
		for line := range strings.Lines(b.String()) {
			_, line, _ = strings.Cut(strings.TrimSpace(line), " level=")
			short = append(short, line)
		}
		return strings.Join(short, "\n")
	}
}

// away is the error of a call that has not reached the peer.
func away(text string) error {
	return status.Errorf(status.Unavailable, "%w", &handshake.UnreachedError{Err: errors.New(text)})
}

// says is an error of the peer with a sentence.
func says(code status.Code, text string) error {
	return status.Errorf(code, "%w", &status.Said{Peer: "/job:worker/replica:0/task:1", Text: text})
}

// TestOneFactIsLoggedOnce: a fact is logged once in an outage, whatever the details of its text, and
// the line about the next channel ends it.
func TestOneFactIsLoggedOnce(t *testing.T) {
	const peer = "/job:worker/replica:0/task:1"
	unfit := status.New(status.FailedPrecondition, "A and B cannot talk by verbs: GID 10.0.0.1")
	for name, c := range map[string]struct {
		client  bool
		reasons []error
		want    []string // beginnings of lines, without the quote after msg=
	}{
		"details that alternate": {reasons: []error{
			away("read tcp 10.0.0.1:4001->10.0.0.2:2222: connection reset by peer"), away("EOF"), away("read tcp 10.0.0.1:4002->10.0.0.2:2222: connection reset by peer"), away("EOF"),
		}, want: []string{`INFO msg="the peer does not answer yet"`}},
		"the peer stops, and is gone then": {reasons: []error{
			says(status.Unavailable, peer+" is stopping"), says(status.Unavailable, peer+" is stopping"), away("connection refused"), away("EOF"),
		}, want: []string{`INFO msg="the peer has stopped" peer=` + peer + ` reason="Unavailable: ` + peer + ` says: \"` + peer + ` is stopping\""`}},
		"a client stops": {client: true, reasons: []error{says(status.Unavailable, peer+" is stopping")}},
		"as earlier releases say it": {reasons: []error{
			says(status.Unavailable, "Unavailable: "+peer+" is stopping")}, want: []string{`INFO msg="the peer has stopped"`}},
		"the handshake goes on": {reasons: []error{status.Errorf(status.Unavailable, "%w", handshake.ErrNotKnown)}},
		"both sides judge": {reasons: []error{
			says(status.FailedPrecondition, "B and A cannot talk by verbs"), unfit, says(status.FailedPrecondition, "B and A cannot talk by verbs"), unfit,
		}, want: []string{`WARN msg="no verbs with the peer" peer=` + peer + ` reason="FailedPrecondition: ` + peer + ` says: \"B and A cannot talk by verbs\""`}},
		"a number in a judgement": {reasons: []error{
			unfit, status.New(status.FailedPrecondition, "A and B cannot talk by verbs: GID 10.0.0.9"),
		}, want: []string{`WARN msg="no verbs with the peer"`}},
		"another judgement": {reasons: []error{
			unfit, status.New(status.FailedPrecondition, "A and B cannot talk by verbs: the link layers differ"),
		}, want: []string{`WARN msg="no verbs with the peer"`, `WARN msg="no verbs with the peer"`}},
		"another kind": {reasons: []error{
			away("EOF"), unfit, away("EOF"), unfit,
		}, want: []string{`INFO msg="the peer does not answer yet"`, `WARN msg="no verbs with the peer"`}},
		"a client that does not fit logs it by itself": {client: true, reasons: []error{unfit}, want: []string{`INFO msg="no verbs with the peer"`}},
		"packets are lost twice": {reasons: []error{
			status.Errorf(status.DeadlineExceeded, "no message: %w", handshake.ErrNoPackets), status.Errorf(status.DeadlineExceeded, "no message: %w", handshake.ErrNoPackets),
			status.Errorf(status.DeadlineExceeded, "no message: %w", handshake.ErrNoPackets),
		}, want: []string{`INFO msg="no verbs with the peer"`, `WARN msg="no verbs with the peer"`}},
		"a wrong setting of TLS": {reasons: []error{
			away("h:1 requires a certificate of its clients, and this process has none: set tls.cert and tls.key"),
		}, want: []string{`WARN msg="no verbs with the peer"`}},
		"no device at the peer": {reasons: []error{
			says(status.Unavailable, peer+" has no verbs for now: the device is lost"),
		}, want: []string{`INFO msg="no verbs with the peer for now"`}},
		"the port is down": {reasons: []error{verbs.Errorf("use", "mlx5_0 port 1", errInactive, "the port is DOWN")}},
		"no memory here":   {reasons: []error{errors.New("cannot allocate memory")}, want: []string{`WARN msg="no verbs with the peer"`}},
	} {
		t.Run(name, func(t *testing.T) {
			p, lines := loggedPeer(t, c.client)
			for _, err := range c.reasons {
				p.logReason(err)
				p.logReason(err) // the state is looked at often
			}
			got := lines()
			if n := strings.Count(got, "\n") + min(len(got), 1); n != len(c.want) {
				t.Fatalf("%d lines, want %d:\n%s", n, len(c.want), got)
			}
			for i, line := range strings.Split(got, "\n")[:len(c.want)] {
				if !strings.HasPrefix(line, c.want[i]) {
					t.Errorf("line %d is %q, want %q", i, line, c.want[i])
				}
			}
			p.logUp(Connection{Verbs: true, Generation: 3, QueuePairs: 1})
			p.logUp(Connection{Verbs: true, Generation: 3, QueuePairs: 1})
			got = lines()
			if strings.Count(got, "go over verbs") != 1 || len(c.want) > 0 != strings.Contains(got, fmt.Sprintf("failures=%d", len(c.reasons))) {
				t.Errorf("after %d failures: %s", len(c.reasons), got)
			}
			p.logReason(c.reasons[0])
			if got = lines(); len(c.want) > 0 && !strings.HasPrefix(got, c.want[0]) {
				t.Errorf("in the next outage: %q, want %q", got, c.want[0])
			}
		})
	}
}

// TestEachEndOfAChannelIsLoggedOnce: at INFO if it needs nobody, and as WARN if it does.
func TestEachEndOfAChannelIsLoggedOnce(t *testing.T) {
	broken := status.New(status.Unavailable, "QP 0x000011: transport retry counter exceeded")
	for name, c := range map[string]struct {
		err     error
		present bool
		want    string
	}{
		"a break":                        {broken, true, `INFO msg="a channel broke"`},
		"silence":                        {status.New(status.DeadlineExceeded, "it has not answered QUERY"), true, `INFO msg="a channel broke"`},
		"another process":                {status.New(status.Aborted, "it has restarted"), false, `INFO msg="a channel was left"`},
		"the peer closes it":             {says(status.Unavailable, "the memory is overdue"), true, `INFO msg="the peer has closed the channel"`},
		"the peer stops":                 {says(status.Unavailable, "/job:worker/replica:0/task:1 is stopping"), true, `INFO msg="the peer has stopped"`},
		"closed here":                    {fmt.Errorf("%w: overdue", channel.ErrClosedHere), true, `INFO msg="a channel broke"`},
		"closed here, and logged as why": {fmt.Errorf("%w: no message", channel.ErrClosedHere), false, ""},
		"a fault of the peer":            {errors.New("HELLO twice"), true, `WARN msg="a channel was left because of a fault`},
		"the port has lost its address":  {ErrNoAddress, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p, lines := loggedPeer(t, false)
			p.logUp(Connection{Verbs: true})
			lines()
			p.logLeft(&link{}, c.err, c.present)
			if c.present {
				p.logReason(c.err) // it is the reason of the handshake, too
			}
			if got := lines(); !strings.HasPrefix(got, c.want) || strings.Contains(got, "\n") || c.want == "" && got != "" {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// TestChannelsThatBreakAgainAndAgain: one warning, and another one only after a channel has lasted.
func TestChannelsThatBreakAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, lines := loggedPeer(t, false)
		for _, lasted := range []time.Duration{time.Second, handshake.Steady, time.Second} {
			for range 2 * shortChannels {
				p.logUp(Connection{Verbs: true})
				p.cameUp = time.Now()
				time.Sleep(lasted)
				p.logLeft(&link{}, status.New(status.Unavailable, "retry exceeded"), true)
			}
			warned := strings.Count(lines(), "WARN")
			if want := map[bool]int{true: 0, false: 1}[lasted == handshake.Steady]; warned != want {
				t.Errorf("%d warnings about channels that break after %v, want %d", warned, lasted, want)
			}
		}
	})
}

// TestAutoHidesNoRefusedName: where nobody has asked for verbs, a peer without them is logged at debug level, and one that
// refuses this process, or that this process refuses, once as what somebody has to mend.
func TestAutoHidesNoRefusedName(t *testing.T) {
	for name, c := range map[string]struct {
		reason error
		warns  bool
	}{
		"no verbs":          {status.Errorf(status.Unimplemented, "it %w", handshake.ErrNotServed), false},
		"nothing in common": {status.New(status.FailedPrecondition, "it has shm, this process has tcp"), false},
		"a refused name":    {says(status.PermissionDenied, "the certificate is for another task"), true},
		"a proxy's answer":  {status.Errorf(status.PermissionDenied, "%w", &handshake.UnreachedError{Err: status.New(status.PermissionDenied, "HTTP 403")}), false},
		"no certificate":    {says(status.Unauthenticated, "a certificate is missing"), true},
	} {
		t.Run(name, func(t *testing.T) {
			p, lines := loggedPeer(t, false)
			p.transport.opts.Optional = true
			for range 3 {
				p.logReason(c.reason)
			}
			got := lines()
			if n := strings.Count(got, "WARN"); n != map[bool]int{false: 0, true: 1}[c.warns] || !c.warns && got != "" {
				t.Errorf("it is logged as %q", got)
			}
			if IsDenied(c.reason) != c.warns {
				t.Errorf("denied: %v", !c.warns)
			}
		})
	}
}
