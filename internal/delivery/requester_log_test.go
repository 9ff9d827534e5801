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
