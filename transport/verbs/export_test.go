package verbstransport

// SetMaxPeers sets the limit of records of peers without an address.
func (t *RdmaRemoteRendezvous) SetMaxPeers(n int) { t.clients.total = n }
