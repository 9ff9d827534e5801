package verbstransport

import (
	"errors"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/verbs"
)

// kind is what a device reaches peers over. A process has at most one device of each kind, and
// a peer a route of each.
type kind uint8

const (
	kindFabric kind = iota // InfiniBand and RoCE: libibverbs, verbs/roce
	kindTCP
	kindShared // shared memory
	kinds
)

func (k kind) String() string {
	return [...]string{"RDMA", "TCP", "shared memory"}[min(k, kindShared)]
}

// kindOf returns the kind of devices with a link layer.
func kindOf(l verbs.LinkLayer) kind {
	switch l {
	case verbs.LinkTCP:
		return kindTCP
	case verbs.LinkShared:
		return kindShared
	}
	return kindFabric
}

// Why there is no device of a kind.
var (
	errNoDevice = errors.New("this process has no usable RDMA device")
	errNoTCP    = errors.New("this process has no queue pairs over TCP")
	errNoShared = errors.New("this process has no shared memory with others")
)

// openPorts opens a port on each device of the options. When it fails, none is open.
func (t *RdmaRemoteRendezvous) openPorts() error {
	t.lost = [kinds]error{errNoDevice, errNoTCP, errNoShared}
	all := t.opts.Others
	if t.opts.Device != nil {
		all = append([]PortOptions{t.opts.PortOptions}, all...)
	}
	for _, o := range all {
		o.Rails = max(1, o.Rails)
		p, err := openPort(&t.opts, t.memory, o)
		if err == nil && t.ports[p.kind] != nil {
			err = errors.Join(status.Errorf(status.InvalidArgument, "%v and %v are both devices for %v; a process has one of each kind", t.ports[p.kind], p, p.kind), p.close())
		}
		if err != nil {
			for _, open := range t.inUseLocked() {
				err = errors.Join(err, open.close())
			}
			return err
		}
		t.ports[p.kind] = p
	}
	return nil
}
