package verbstransport

// SetMaxPeers sets the limit of records of peers without an address.
func (t *RdmaRemoteRendezvous) SetMaxPeers(n int) { t.clients.total = n }

// DevicesChanged passes the present devices to all peers, as an event of a device does.
func (t *RdmaRemoteRendezvous) DevicesChanged() { t.devicesChanged() }
