package verbs

// Status is how a work request ended: ibv_wc_status, number for number.
type Status uint8

// The statuses of <infiniband/verbs.h>, IBV_WC_*.
const (
	StatusOK Status = iota
	StatusLocalLength
	StatusLocalQPOperation
	StatusLocalEEC
	StatusLocalProtection
	StatusFlushed
	StatusWindowBind
	StatusBadResponse
	StatusLocalAccess
	StatusRemoteInvalidRequest
	StatusRemoteAccess
	StatusRemoteOperation
	StatusRetryExceeded
	StatusRNRRetryExceeded
	StatusLocalRDDViolation
	StatusRemoteInvalidRD
	StatusRemoteAborted
	StatusInvalidEEC
	StatusInvalidEECState
	StatusFatal
	StatusResponseTimeout
	StatusGeneral
)

// statusWords has for each status its name in ibv_wc_status_str(3)'s sense, and
// what usually is behind it with what mends it.
var statusWords = [...]struct{ name, cause string }{
	StatusOK:               {"success", ""},
	StatusLocalLength:      {"local length error", "a message is longer than the posted receive, or than the port's largest message: both sides must run the same protocol version"},
	StatusLocalQPOperation: {"local QP operation error", "the work request does not fit the queue pair: a fault of this program or of the driver"},
	StatusLocalEEC:         {"local EE context operation error", "not used by reliable connections: a fault of the driver"},
	StatusLocalProtection:  {"local protection error", "a work request names memory that is not registered, or not for that: a fault of this program, please report it"},
	StatusFlushed:          {"work request flushed", "the queue pair broke before: the first error of the connection tells why; without one it refused what the peer asked of it (a key, an address, a length), and the peer was told"},
	StatusWindowBind:       {"memory window bind error", "the device refused to bind a memory window"},
	StatusBadResponse:      {"bad response", "the peer's device answered with a packet that does not fit: look for mixed firmware, or another program on the same queue pair"},
	StatusLocalAccess:      {"local access error", "the peer wrote past the memory that was given to it, or without the right: both sides must run the same protocol version"},
	StatusRemoteInvalidRequest: {"remote invalid request error",
		"the peer's device refused the request: longer than the receive posted for it, or an operation that its queue pair does not allow"},
	StatusRemoteAccess: {"remote access error",
		"the address or key given by the peer is not valid there any more: the peer restarted, or closed the connection"},
	StatusRemoteOperation: {"remote operation error", "the peer's device failed while it carried out the request: look at the peer's log"},
	StatusRetryExceeded: {"transport retry counter exceeded",
		"no acknowledgement came: the peer is down, or no packet of RoCE arrives. Compare both sides' GID and RoCE version (--rdma-gid-index), MTU (--rdma-mtu), and look for a firewall on UDP port 4791; on a lossy network raise --rdma-timeout"},
	StatusRNRRetryExceeded: {"RNR retry counter exceeded",
		"the peer posts no receives in time, though credits keep that from being needed: it is stopped or overloaded; on a busy host raise --rdma-queue-depth there"},
	StatusLocalRDDViolation: {"local RDD violation error", "not used by reliable connections: a fault of the driver"},
	StatusRemoteInvalidRD:   {"remote invalid RD request", "not used by reliable connections: a fault of the driver"},
	StatusRemoteAborted:     {"remote aborted error", "the peer's device gave the request up"},
	StatusInvalidEEC:        {"invalid EE context number", "not used by reliable connections: a fault of the driver"},
	StatusInvalidEECState:   {"invalid EE context state", "not used by reliable connections: a fault of the driver"},
	StatusFatal:             {"fatal error", "the device failed: look at the kernel's log (dmesg) and the device's firmware"},
	StatusResponseTimeout:   {"response timeout", "the peer's device took the request and did not answer in time; raise --rdma-timeout"},
	StatusGeneral:           {"general error", "the device gives no reason: its vendor's error number is all there is"},
}

// String is the status in words.
func (s Status) String() string {
	if int(s) < len(statusWords) {
		return statusWords[s].name
	}
	return "status " + nameOf(s)
}

// Cause is what usually is behind the status and what to do about it, for a
// person; empty for success.
func (s Status) Cause() string {
	if int(s) < len(statusWords) {
		return statusWords[s].cause
	}
	return "a status that is not in the specification: look at the driver's documentation"
}
