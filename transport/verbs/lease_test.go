package verbstransport_test

import (
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/roce"
	"github.com/tryst-rdma/tryst/verbs/verbstest"
)

// TestEachTransferHasAKeyOfItsOwn: each transfer has one memory window, which is closed
// when the receive has ended. The device refuses a later write, which lands nowhere and
// breaks the channel. The next receive succeeds.
func TestEachTransferHasAKeyOfItsOwn(t *testing.T) {
	o, spies := watched(tuned(clusterOptions{}, func(o *verbstransport.Options) { o.Memory.LateWrite = nil }))
	eachTransfer(t, o, spies)
}

// TestRoceEachTransferHasAKeyOfItsOwn is the same over the user-space device.
func TestRoceEachTransferHasAKeyOfItsOwn(t *testing.T) {
	o, spies := watched(clusterOptions{path: verbs.Path{Port: 1, Timeout: verbs.TimeoutCode(time.Second), Retry: 6, RNRRetry: 6}})
	o.open = func(task cluster.Task) (verbs.Device, error) {
		d, err := roce.New(roce.Options{}).Open("roce-lo")
		if err != nil {
			return nil, err
		}
		return o.wrap(task, d), nil
	}
	eachTransfer(t, o, spies)
}

func eachTransfer(t *testing.T, o clusterOptions, spies spies) {
	const size, steps = 200 * kib, 20
	s := newStage(t, o)
	from, to := s.pair()
	k := from.key(to, "v")
	keys := make(map[verbs.RKey]bool)
	watch := spies.of(from)
	for step := range int64(steps) {
		from.sendsBlob(step, k, uint64(step), size)
		to.recv(step, k).isBlob(uint64(step), size)
		watch.mu.Lock()
		keys[watch.write.RKey] = true
		watch.mu.Unlock()
	}
	if len(keys) != steps {
		t.Errorf("%d transfers had %d keys", steps, len(keys))
	}
	receiver := spies.of(to)
	receiver.mu.Lock()
	bound := receiver.windows
	for _, m := range receiver.memory {
		if keys[m.RKey()] {
			t.Error("the sender was told the key of an arena")
		}
	}
	receiver.mu.Unlock()
	if bound != steps {
		t.Errorf("%d transfers took %d windows", steps, bound)
	}
	if n := to.device.Counts().Windows; n != 0 {
		t.Errorf("%d windows are left", n)
	}

	from.sendsBlob(steps, k, steps, size)
	x := to.recv(steps, k).value()
	defer x.Release()
	watch.mu.Lock()
	late, post := watch.write, watch.late
	watch.mu.Unlock()
	late.Op, late.SGL, late.Inline = verbs.OpWrite, nil, []byte("late")
	if err := post(late); err != nil {
		t.Fatal(err)
	}
	s.until("the device has refused the late write", func() bool { return to.connection(from).Stats.Breaks == 1 })
	if !isNoise(x.Bytes(), steps) {
		t.Error("a write by a key that has ended was taken")
	}
	from.sendsBlob(steps+1, k, steps+1, size)
	to.recv(steps+1, k).isBlob(steps+1, size)
}

// TestArenaKeysWhereWindowsCost: with a device without windows the peer gets the rkey of
// the arena.
func TestArenaKeysWhereWindowsCost(t *testing.T) {
	for name, d := range map[string]verbstest.DeviceOptions{"none": {NoWindows: true}, "pinned": {NoGoMemory: true}} {
		t.Run(name, func(t *testing.T) {
			o, spies := watched(clusterOptions{fabric: verbstest.Options{Devices: []verbstest.DeviceOptions{d}}})
			s := newStage(t, o)
			from, to := s.pair()
			k := from.key(to, "v")
			from.sendsBlob(1, k, 1, 200*kib)
			to.recv(1, k).isBlob(1, 200*kib)
			spy := spies.of(to)
			spy.mu.Lock()
			defer spy.mu.Unlock()
			if spy.windows != 0 {
				t.Errorf("%d windows were bound", spy.windows)
			}
		})
	}
}
