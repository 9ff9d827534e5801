package verbstransport

// SetMaxPeers sets how many records of peers there may be.
func (t *Transport) SetMaxPeers(n int) { t.clients.total = n }
