package verbstest

import (
	"context"
	"slices"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

func deviceCases() []testCase {
	return []testCase{
		{name: "Info", run: deviceInfo},
		{name: "OpenUnknown", run: openUnknown},
		{name: "PortUnknown", run: portUnknown},
		{name: "Counts", run: countsOpen},
		{name: "UnsupportedMatchesInfo", run: unsupportedMatchesInfo},
	}
}

func deviceInfo(w *world) {
	n := w.nodes[0]
	infos, err := n.end.Provider.Devices()
	if err != nil {
		w.Fatal(err)
	}
	i := slices.IndexFunc(infos, func(d verbs.DeviceInfo) bool { return d.Name == n.end.Device })
	if i < 0 {
		w.Fatalf("%s is not among the devices %+v", n.end.Device, infos)
	}
	if infos[i] != n.dev.Info() {
		w.Errorf("Devices has %+v, Info has %+v", infos[i], n.dev.Info())
	}
	if n.end.Provider.Name() == "" {
		w.Error("the provider has no name")
	}
	info := infos[i]
	if info.Ports < n.end.Port || info.Limits.QPs < 1 || info.Limits.CQEntries < 1 || info.Limits.SendWR < 1 || info.Limits.MRSize < memorySize {
		w.Errorf("%+v", info)
	}
	port, err := n.dev.Port(n.end.Port)
	if err != nil {
		w.Fatal(err)
	}
	if port.State != verbs.PortActive || !port.ActiveMTU.Valid() || port.ActiveMTU > port.MaxMTU || port.MaxMessage < memorySize ||
		port.Link == verbs.LinkUnspecified || port.GIDs <= int(n.end.GIDIndex) {
		w.Errorf("%+v", port)
	}
}

// openUnknown: Provider.Open.
func openUnknown(w *world) {
	_, err := w.nodes[0].end.Provider.Open("no-such-device")
	w.errorIs(err, verbs.ErrNotFound)
	w.errorContains(err, "no-such-device", w.nodes[0].end.Device)
}

func portUnknown(w *world) {
	dev := w.nodes[0].dev
	for _, port := range []uint8{0, dev.Info().Ports + 1} {
		if _, err := dev.Port(port); err == nil {
			w.Errorf("there is a port %d", port)
		}
		if _, err := dev.GIDs(port); err == nil {
			w.Errorf("there are GIDs of port %d", port)
		}
	}
}

func countsOpen(w *world) {
	dev := w.nodes[0].dev
	want := verbs.Counts{}
	same := func() {
		w.Helper()
		if c := dev.Counts(); c != want {
			w.Errorf("%+v are open, want %+v", c, want)
		}
	}
	same()
	e := w.end(w.nodes[0], w.params())
	want = verbs.Counts{PDs: 1, MRs: 1, CQs: 1, QPs: 1}
	same()
	w.noError(e.qp.Close())
	want.QPs--
	same()
	w.noError(e.mr.Close())
	want.MRs--
	same()
	w.noError(e.cq.Close())
	want.CQs--
	same()
	w.noError(e.pd.Close())
	want.PDs--
	same()
}

// unsupportedMatchesInfo: Env.Unsupported agrees with DeviceInfo.
func unsupportedMatchesInfo(w *world) {
	a, b := w.nodes[0].dev.Info(), w.nodes[1].dev.Info()
	if b.Windows == w.unsupported(Windows) {
		w.Errorf("the second device has Windows: %v, but Env.Unsupported has it: %v", b.Windows, w.unsupported(Windows))
	}
	if has := a.Limits.Atomics && b.Limits.Atomics; has == w.unsupported(Atomics) {
		w.Errorf("the devices have Atomics: %v, but Env.Unsupported has it: %v", has, w.unsupported(Atomics))
	}
	for f, reason := range w.env.Unsupported {
		if reason == "" {
			w.Errorf("Env.Unsupported gives no reason for %s", f)
		}
	}
}

// nextEvent waits for an asynchronous event that want accepts, and discards others. It
// returns false after d.
func (n *node) nextEvent(d time.Duration, want func(verbs.AsyncEvent) bool) (verbs.AsyncEvent, bool) {
	ctx, cancel := context.WithTimeout(n.w.ctx, n.w.scaled(d))
	defer cancel()
	for {
		e, err := n.dev.NextEvent(ctx)
		if err != nil {
			return e, false
		}
		if want(e) {
			return e, true
		}
	}
}
