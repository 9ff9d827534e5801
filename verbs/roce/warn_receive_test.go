package roce

import (
	"bytes"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/roce/internal/udp"
)

// failingHost has receivers that fail some times.
type failingHost struct {
	*memoryHost
	failures *atomic.Int64 // that are left
}

type failingReceiver struct {
	receiver
	failures *atomic.Int64
}

func (h failingHost) listen(a netip.Addr) (receiver, error) {
	r, err := h.memoryHost.listen(a)
	return failingReceiver{r, h.failures}, err
}

func (r failingReceiver) Receive(idle func()) ([]udp.Datagram, error) {
	if r.failures.Add(-1) >= 0 {
		return nil, syscall.ENOMEM
	}
	return r.receiver.Receive(idle)
}

// lockedText collects a log.
type lockedText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lockedText) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// TestFailingReceiveIsOneWarning: a short shortage of the kernel passes by itself. A long one is a
// warning once, and the line about its end counts the failures.
func TestFailingReceiveIsOneWarning(t *testing.T) {
	for failures, want := range map[int64]int{failuresWarned: 0, 5 * failuresWarned: 1} {
		synctest.Test(t, func(t *testing.T) {
			var log lockedText
			f := newFabric()
			h := failingHost{f.host(hostA), new(atomic.Int64)}
			h.failures.Store(failures)
			p := newProvider(Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}, h)
			x := newTestEnd(t, p, "roce-eth0", netip.MustParseAddr(hostA), 1<<16)
			time.Sleep(2 * time.Minute)
			y := newTestEnd(t, newProvider(Options{}, f.host(hostB)), "roce-eth0", netip.MustParseAddr(hostB), 1<<16)
			joinEnds(x, y, nil)
			y.post(y.to(x, 1, verbs.OpWrite, 0, 8, 0)) // it receives again
			y.ends(1, verbs.StatusOK)
			log.mu.Lock()
			defer log.mu.Unlock()
			text := log.text.String()
			if strings.Count(text, "WARN") != want || strings.Contains(text, "failures=45") != (want == 1) || strings.Count(text, "receiving") != 2*want {
				t.Errorf("%d failures are logged so:\n%s", failures, text)
			}
		})
	}
}
