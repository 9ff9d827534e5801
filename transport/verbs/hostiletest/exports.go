package hostiletest

import (
	"github.com/tryst-rdma/tryst/transport/internal/wire"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/handshake"
)

// Constants of internal packages for the tests in integration/, which cannot import these.
const (
	// CheckEvery is the shortest time between two calls that verify the incarnation of a peer.
	CheckEvery = handshake.CheckEvery
	// KindEager is the kind of a message that carries a value.
	KindEager = wire.KindEager
)
