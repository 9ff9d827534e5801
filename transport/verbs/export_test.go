package verbstransport

import "github.com/tryst-rdma/tryst/cluster"

// SetMaxPeers sets the limit of records of peers without an address.
func (t *RdmaRemoteRendezvous) SetMaxPeers(n int) { t.clients.total = n }

// DevicesChanged passes the present devices to all peers, as an event of a device does.
func (t *RdmaRemoteRendezvous) DevicesChanged() { t.devicesChanged() }

// HoldDevices delays what a lost device leads to until release is called.
func (t *RdmaRemoteRendezvous) HoldDevices() (release func()) {
	t.changing.Lock()
	return t.changing.Unlock
}

// Expects reports whether receives from a task wait for a channel that is to come, and do not take gRPC.
func (t *RdmaRemoteRendezvous) Expects(task cluster.Task) bool {
	p, err := t.peer(task)
	if err != nil {
		return false
	}
	_, _, until, _ := p.carrier()
	return !until.IsZero()
}
