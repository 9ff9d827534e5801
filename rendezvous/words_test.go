package rendezvous_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
)

// TestErrorsNameTheCallAndTheEdge: an error of a receive has the name of the method that was
// called, wherever the value would come from, and describes the key. No error has the text of
// a valid key.
func TestErrorsNameTheCallAndTheEdge(t *testing.T) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	late, stop := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer stop()
	b := initialized(t, failing{})
	defer b.Close()
	alone := initialized(t, nil) // without a transport
	defer alone.Close()
	unknown := between(t, gpu, ps, "x") // of a device that is not here
	remote, local := remoteKey(t, "x"), key(t, "x")
	recv := func(ctx context.Context, r rendezvous.Rendezvous, k rendezvous.Key) error {
		_, err := r.Recv(ctx, k, noArgs)
		return err
	}
	async := func(ctx context.Context, r rendezvous.Rendezvous, k rendezvous.Key) error {
		return recvAsync(ctx, r, k).wait(t).err
	}
	const from = ` of edge "x" from /job:ps/replica:0/task:`
	for _, c := range []struct {
		what  string
		err   error
		texts []string
	}{
		{"Recv, cancelled", recv(cancelled, b, local), []string{"Recv" + from, "cancelled before a value arrived"}},
		{"Recv, late", recv(late, b, local), []string{"Recv" + from, "the deadline passed"}},
		{"Recv from another task, cancelled", recv(cancelled, b, remote), []string{"Recv" + from, "cancelled before"}},
		{"Recv from another task, late", recv(late, b, remote), []string{"Recv" + from, "the deadline passed"}},
		{"RecvAsync, cancelled", async(cancelled, b, local), []string{"RecvAsync" + from, "cancelled before"}},
		{"RecvAsync from another task, late", async(late, b, remote), []string{"RecvAsync" + from, "the deadline passed"}},
		{"Recv without a transport", recv(t.Context(), alone, remote), []string{"Recv" + from, "no transport to reach"}},
		{"RecvAsync without a transport", async(t.Context(), alone, remote), []string{"RecvAsync" + from, "no transport to reach"}},
		{"Recv for another task", recv(t.Context(), b, between(t, ps, ps1, "x")), []string{`Invalid rendezvous key (dst): edge "x" from /job:ps/`}},
		{"Send of another task", b.Send(between(t, ps1, ps, "x"), noArgs, nil, true), []string{`Invalid rendezvous key (src): edge "x" from /job:ps/`}},
		{"Send of nothing", b.Send(local, noArgs, nil, false), []string{"Send" + from, "no tensor"}},
		{"a request for an unknown device", session(t).CheckSource(unknown), []string{"RecvTensor" + from, "no device"}},
	} {
		if c.err == nil {
			t.Errorf("%s: no error", c.what)
			continue
		}
		for _, text := range c.texts {
			if !strings.Contains(c.err.Error(), text) {
				t.Errorf("%s: no %q in %q", c.what, text, c.err)
			}
		}
		for _, k := range []rendezvous.Key{remote, local, unknown} {
			if strings.Contains(c.err.Error(), k.String()) {
				t.Errorf("%s: the text of a key is in %q", c.what, c.err)
			}
		}
	}
}

// TestPeerGetsTensorFlowsText: a worker of TensorFlow that requests a value of another task gets
// TensorFlow's text, which has the text of the key.
func TestPeerGetsTensorFlowsText(t *testing.T) {
	foreign := between(t, ps1, ps, "x")
	want := "Invalid rendezvous key (src): " + foreign.String() + " @ /job:ps/replica:0/task:0"
	b := initialized(t, nil)
	defer b.Close()
	after := make(chan outcome, 1)
	b.RecvLocalAsync(t.Context(), foreign, func(_ rendezvous.Value, _ rendezvous.Args, err error) { after <- outcome{err: err} })
	mustBe(t, (<-after).err, status.InvalidArgument, want)

	m := manager(t)
	waits := ask(t.Context(), m, 1, foreign) // until this process begins the step
	m.Find(1)
	mustBe(t, waits.wait(t).err, status.InvalidArgument, want)
	m.Cleanup(1)
}
