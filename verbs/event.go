package verbs

// AsyncEvent is what a device tells unasked.
type AsyncEvent struct {
	Kind EventKind
	Port uint8 // of port events
	QPN  QPN   // of queue pair events
}

// EventKind says what happened.
type EventKind uint8

// The events of ibv_get_async_event(3) that this project tells apart.
const (
	EventOther EventKind = iota
	EventCQError
	EventQPFatal         // this queue pair broke
	EventQPRequest       // it refused a request of the peer
	EventQPAccess        // it refused an access of the peer
	EventCommEstablished // a packet came while it was in RTR
	EventLastWQEReached  // its shared receive queue is drained
	EventDeviceFatal     // everything on the device is lost
	EventPortActive      // the port came up
	EventPortDown        // the port went down
	EventGIDChange       // the GID table changed: also all that a removed device may say
	EventLIDChange
	EventPKeyChange
	EventSMChange
	EventClientReregister
)

func (k EventKind) String() string {
	return nameOf(k, "other event", "CQ error", "QP fatal error", "QP request error", "QP access error",
		"communication established", "last WQE reached", "device fatal error", "port active", "port down", "GID table change",
		"LID change", "PKey table change", "subnet manager change", "client reregister")
}
