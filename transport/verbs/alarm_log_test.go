package verbstransport_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/tryst-rdma/tryst/cluster"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
)

// logs has the log of each process, by the index of its task.
type logs struct {
	mu    sync.Mutex
	lines [3]bytes.Buffer
}

type logOf struct {
	*logs
	task int
}

func (l logOf) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines[l.task].Write(b)
}

func (l *logs) of(task int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines[task].String()
}

// TestPeerThatStopsIsNoAlarm: when a process stops, and comes back, neither side warns. The other
// side logs once that it has stopped, with the sentence of the peer in quotes, and once that it is
// back.
func TestPeerThatStopsIsNoAlarm(t *testing.T) {
	var all logs
	s := newStage(t, clusterOptions{tune: func(task cluster.Task, o *verbstransport.Options) {
		o.Logger = slog.New(slog.NewTextHandler(logOf{&all, task.Index}, nil))
		o.Backoff = gateBackoff
	}})
	from, to := s.pair()
	s.both(from, to, "before")
	channels := func(n int) {
		s.until(fmt.Sprint(n, " channels are logged"), func() bool { return strings.Count(all.of(0), "go over verbs") == n })
	}
	channels(1)
	to.stop()
	stopped := `msg="the peer has stopped" peer=` + to.task.String() + ` reason="Unavailable: ` + to.task.String() + ` says: \"` + to.task.String() + ` is stopping\""`
	s.until("the stop is logged", func() bool { return strings.Contains(all.of(0), stopped) })
	again := s.start(1)
	from.meets(again)
	s.both(from, again, "after")
	channels(2)
	again.stop()
	s.until("the second stop is logged", func() bool { return strings.Count(all.of(0), stopped) == 2 })
	from.stop()
	for task := range 2 {
		var of strings.Builder // without the third task, which is never up
		for line := range strings.Lines(all.of(task)) {
			if !strings.Contains(line, "peer=/job:worker/replica:0/task:2 ") {
				of.WriteString(line)
			}
		}
		if text := of.String(); strings.Contains(text, "WARN") || strings.Contains(text, "ERROR") || strings.Contains(text, "instead=") {
			t.Errorf("task %d has an alarm:\n%s", task, text)
		}
	}
	if text := all.of(0); strings.Count(text, "the peer has stopped") != 2 || strings.Count(text, "go over verbs") != 2 || strings.Contains(text, "a channel") {
		t.Errorf("two stops and two channels are logged so:\n%s", text)
	}
}

// TestPortThatIsDownIsOneWarning: on the host whose port it is, and not one for each peer.
func TestPortThatIsDownIsOneWarning(t *testing.T) {
	var all logs
	s := newStage(t, clusterOptions{tune: func(task cluster.Task, o *verbstransport.Options) {
		o.Logger = slog.New(slog.NewTextHandler(logOf{&all, task.Index}, nil))
		o.Backoff = gateBackoff
	}})
	a, b, c := s.start(0), s.start(1), s.start(2)
	a.meets(b)
	a.meets(c)
	a.nic().PortDown(1)
	for _, peer := range []*actor{b, c} {
		s.both(a, peer, "while the port is down")
		s.until("the reason", func() bool {
			l := a.connection(peer)
			return !l.Verbs && l.Reason != nil && strings.Contains(l.Reason.Error(), "DOWN")
		})
	}
	a.nic().PortUp(1)
	a.meets(b)
	a.meets(c)
	for task, want := range []int{1, 0, 0} {
		if text := all.of(task); strings.Count(text, "WARN") != want || strings.Count(text, `level=WARN msg="the port is down; `) != want {
			t.Errorf("task %d: want %d warnings:\n%s", task, want, text)
		}
	}
}
