package verbstransport

import (
	"errors"
	"slices"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/route"
)

// routes is the size of tables with an entry for each route.Route. That of route.None is unused.
const routes = route.TCP + 1

// Why there is no device for a route.
var (
	errNoDevice = errors.New("this process has no usable RDMA device")
	errNoTCP    = errors.New("this process has no queue pairs over TCP")
	errNoShared = errors.New("this process has no shared memory with others")
)

// openPorts opens a port on each device of the options. When it fails, none is open.
func (t *RdmaRemoteRendezvous) openPorts() error {
	t.lost = [routes]error{route.Fabric: errNoDevice, route.TCP: errNoTCP, route.Shared: errNoShared}
	// The fabric comes last: a NIC pins the memory that it registers, and shared memory has the
	// arenas for sending made anew.
	all := slices.Clone(t.opts.Fixed)
	if t.opts.Device != nil {
		all = append(all, t.opts.PortOptions)
	}
	for _, o := range all {
		p, err := openPort(&t.opts, t.memory, o)
		if err == nil && t.ports[p.route] != nil {
			err = errors.Join(status.Errorf(status.InvalidArgument, "%v and %v are both devices for %v; a process has at most one of them", t.ports[p.route], p, p.route), p.close())
		}
		if err != nil {
			for _, open := range t.inUseLocked() {
				err = errors.Join(err, open.close())
			}
			return err
		}
		t.ports[p.route] = p
	}
	return nil
}

// neverHad reports whether a reason in RdmaRemoteRendezvous.lost is that the process was started
// without such a device.
func neverHad(lost error) bool {
	return lost == errNoDevice || lost == errNoTCP || lost == errNoShared //nolint:errorlint // never wrapped
}

// deviceWords is how a sentence names the device of a route.
func deviceWords(k route.Route) string {
	if k == route.Fabric {
		return "RDMA device"
	}
	return k.String() + " device"
}
