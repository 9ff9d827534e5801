package delivery

import (
	"errors"
	"testing"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
)

// Which process is accepted under a name.

func TestAnotherProcessIsVerified(t *testing.T) {
	const old, other, third = 7, 8, 9
	who := func(inc uint64) transport.Process { return transport.Process{Name: consumer, Incarnation: inc} }
	for _, c := range []struct {
		name   string
		during func(b *bench)
		is     uint64
		err    error
		code   status.Code // of the newcomer's introduction
		open   bool        // the error leaves open who has the name
		has    uint64      // the name, in the end
	}{
		{"the newcomer is at the address", nil, other, nil, status.OK, false, other},
		{"the present one is at the address", nil, old, nil, status.PermissionDenied, false, old},
		{"neither is", nil, third, nil, status.PermissionDenied, false, old},
		{"the address does not answer", nil, 0, errLost, status.Unavailable, true, old},
		{"the present one connects again meanwhile", func(b *bench) { b.down(); b.up() }, other, nil, status.Unavailable, true, old},
		{"it connects once more meanwhile", func(b *bench) { b.up(); b.down() }, other, nil, status.OK, false, other},
		{"it goes meanwhile", func(b *bench) { b.down() }, other, nil, status.OK, false, other},
		{"it goes, and a third one comes", func(b *bench) {
			b.down()
			b.inc = third
			b.up()
		}, other, nil, status.Unavailable, true, third},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, cacheLimits{addressed: everyName})
			b.up()
			b.request(1, 1, 1)
			b.value(1, 'a', 1)
			if k, acts, err := b.m.introduce(b.now, who(other), "h"); k != nil || err != nil || len(acts) > 0 {
				t.Fatalf("introduce: %v, %v, %q; want to verify", k, err, b.do(acts))
			}
			if _, _, err := b.m.introduce(b.now, who(third), "h"); !isOpen(err) {
				t.Errorf("a second newcomer meanwhile: %v", err)
			}
			if c.during != nil {
				c.during(b)
			}
			_, acts, err := b.m.verified(b.now, who(other), "h", c.is, c.err)
			b.do(acts)
			if status.CodeOf(err) != c.code || isOpen(err) != c.open {
				t.Errorf("the newcomer: %v, want %v", err, c.code)
			}
			if k := b.m.requesters[consumer]; k.incarnation != c.has || k.newcomer != 0 {
				t.Errorf("process %d has the name, %d is being verified", k.incarnation, k.newcomer)
			}
			if c.has == old {
				b.want("the present one keeps its answer", b.request(1, 2, 9), "call 9: value a")
			} else if _, _, err := b.m.introduce(b.now, who(old), "h"); status.CodeOf(err) != status.Aborted {
				t.Errorf("the displaced one comes back: %v", err)
			}
		})
	}
}

func isOpen(err error) bool {
	_, ok := errors.AsType[*transport.UndecidedError](err)
	return ok
}

// A name without an address stays with its process while that is connected, or answers
// are kept for it.
func TestNameWithoutAnAddressStaysWithItsProcess(t *testing.T) {
	b := newBench(t, cacheLimits{})
	newcomer := func() error {
		k, acts, err := b.m.introduce(b.now, transport.Process{Name: consumer, Incarnation: 8}, "h")
		b.do(acts)
		if k == nil && err == nil {
			t.Fatal("it is to be verified")
		}
		return err
	}
	b.up()
	b.wantCode("while it is connected", newcomer(), status.AlreadyExists, "draw a new name")
	b.request(1, 1, 1)
	b.value(1, 'a', 1)
	b.down()
	b.wantCode("while an answer is kept", newcomer(), status.AlreadyExists)
	b.ack(1)
	b.wantCode("when it has nothing here", newcomer(), status.OK)
	b.want("the earlier process", b.request(2, 1, 2), "call 2: Aborted")
}
