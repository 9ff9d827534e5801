package delivery

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
)

// TestUnreachedPeerIsOneWarning: however many receives end since a peer is not reached, there is one
// warning, and the line about the next connection counts them.
func TestUnreachedPeerIsOneWarning(t *testing.T) {
	var b bytes.Buffer
	log := slog.New(slog.NewTextHandler(&b, nil))
	bubble(t, memOptions{log: log}, func(t *testing.T, p *pair) {
		k := key(t, "k")
		p.set(func() { p.down = true })
		for range 3 {
			p.wantError(p.begin(context.Background(), k), status.Unavailable)
			synctest.Wait() // the line follows
		}
		if text := b.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, `level=WARN msg="the peer is not reached`) {
			t.Errorf("three receives that ended are logged so:\n%s", text)
		}
		b.Reset()
		p.set(func() { p.down = false })
		p.send(k, 'a')
		p.wantValue(p.begin(context.Background(), k), 'a')
		if text := b.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, `level=INFO msg="peer reached again" peer=/job:p/replica:0/task:0 failed_receives=3`) {
			t.Errorf("the next connection is logged so:\n%s", text)
		}
	})
}

// TestPeerThatIsGoneAfterTheLastReceiveIsNoWarning: only acknowledgements are left, and nothing has
// failed.
func TestPeerThatIsGoneAfterTheLastReceiveIsNoWarning(t *testing.T) {
	var b bytes.Buffer
	bubble(t, memOptions{log: slog.New(slog.NewTextHandler(&b, nil))}, func(t *testing.T, p *pair) {
		k := key(t, "k")
		p.send(k, 'a')
		p.wantValue(p.begin(context.Background(), k), 'a')
		p.set(func() { p.down = true })
		p.breakConn()
		time.Sleep(2 * transport.DefaultPeerTimeout) // acknowledgements are tried, and lost
		synctest.Wait()
		if text := b.String(); !strings.Contains(text, "lost") || strings.Contains(text, "WARN") {
			t.Errorf("a peer that is not needed is logged so:\n%s", text)
		}
		p.set(func() { p.down = false })
	})
}

// TestRefusalIsLoggedWhileOthersAskAgain: what began before the hello has ended, and what began since asks again.
func TestRefusalIsLoggedWhileOthersAskAgain(t *testing.T) {
	var b bytes.Buffer
	bubble(t, memOptions{log: slog.New(slog.NewTextHandler(&b, nil))}, func(t *testing.T, p *pair) {
		k, refuses := key(t, "k"), make(chan error)
		p.set(func() { p.refuses = refuses })
		first := p.begin(context.Background(), k)
		synctest.Wait()
		time.Sleep(time.Millisecond)
		second := p.begin(context.Background(), k)
		refuses <- status.New(status.Aborted, "has left the cluster")
		p.wantError(first, status.Aborted)
		synctest.Wait()
		if text := b.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "level=WARN") || !strings.Contains(text, "has left the cluster") {
			t.Errorf("a receive that ended is logged so:\n%s", text)
		}
		b.Reset()
		p.send(k, 'a')
		refuses <- nil
		p.wantValue(second, 'a')
		if text := b.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "failed_receives=1") {
			t.Errorf("the next connection is logged so:\n%s", text)
		}
	})
}
