package verbstransport

// SetMaxPeers sets how many records of peers there may be.
func (t *Transport) SetMaxPeers(n int) { t.maxPeers = n }

// SetVersion has the transport speak an earlier version of the protocol.
func (t *Transport) SetVersion(v uint32) { t.port.self.Version = v }
