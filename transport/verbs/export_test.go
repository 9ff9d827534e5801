package verbstransport

// SetMaxPeers sets how many records of peers there may be.
func (t *RdmaRemoteRendezvous) SetMaxPeers(n int) { t.clients.total = n }
