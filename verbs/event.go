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

// Cause is what usually is behind the event of a queue pair, for a person; empty
// for other events.
func (k EventKind) Cause() string {
	switch k {
	case EventQPFatal:
		return "it broke by itself: look at the kernel's log (dmesg) and the device's firmware"
	case EventQPRequest:
		return "it refused a request of the peer: a message longer than the posted receive, or an operation that was not allowed; both sides must run the same protocol version"
	case EventQPAccess:
		return "it refused an access of the peer: a key or an address that was not given to it, or not any more"
	}
	return ""
}

func (k EventKind) String() string {
	return nameOf(k, "other event", "CQ error", "QP fatal error", "QP request error", "QP access error",
		"communication established", "last WQE reached", "device fatal error", "port active", "port down", "GID table change",
		"LID change", "PKey table change", "subnet manager change", "client reregister")
}
