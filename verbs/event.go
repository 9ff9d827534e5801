package verbs

// AsyncEvent is an asynchronous event of a device (Device.NextEvent).
type AsyncEvent struct {
	Kind EventKind
	Port uint8 // set for events of a port
	QPN  QPN   // set for events of a queue pair
}

// EventKind is the type of an asynchronous event.
type EventKind uint8

// The events of ibv_get_async_event(3). Those without a constant are EventOther.
const (
	EventOther EventKind = iota
	EventCQError
	EventQPFatal         // the queue pair failed without a fault of the peer
	EventQPRequest       // the queue pair rejected a request of the peer
	EventQPAccess        // the queue pair rejected a memory access of the peer
	EventCommEstablished // the first packet arrived in RTR
	EventLastWQEReached  // the queue pair takes no more from its shared receive queue
	EventDeviceFatal     // the device failed: all its objects are lost
	EventPortActive      // the port is up
	EventPortDown        // the port is down
	EventGIDChange       // the GID table changed; a removed device may report only this
	EventLIDChange
	EventPKeyChange
	EventSMChange
	EventClientReregister
	EventQPProtocol // the peer broke the protocol of a device in software; ibverbs has no such event
)

// Cause returns the usual cause of a queue pair event, as text for the user; empty for
// other events.
func (k EventKind) Cause() string {
	switch k {
	case EventQPFatal:
		return "the queue pair failed without a fault of the peer: look at the kernel's log (dmesg) and the device's firmware"
	case EventQPProtocol:
		return "the peer broke the protocol of the device: it is of another release, faulty or hostile; the log of this host says how"
	case EventQPRequest:
		return "it rejected a request of the peer: a message longer than the posted receive, or an operation that is not allowed; both sides must run the same protocol version"
	case EventQPAccess:
		return "it rejected a memory access of the peer: the key or the address is not valid, or no longer valid"
	}
	return ""
}

func (k EventKind) String() string {
	return nameOf(k, "other event", "CQ error", "QP fatal error", "QP request error", "QP access error",
		"communication established", "last WQE reached", "device fatal error", "port active", "port down", "GID table change",
		"LID change", "PKey table change", "subnet manager change", "client reregister", "QP protocol error")
}
