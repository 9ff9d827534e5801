package verbs

// Status is the result of a work request. The values are those of enum ibv_wc_status.
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

// statusTexts holds for each status its name, as ibv_wc_status_str(3) has it, and its
// usual cause with the remedy.
var statusTexts = [...]struct{ name, cause string }{
	StatusOK:               {"success", ""},
	StatusLocalLength:      {"local length error", "a message is longer than the posted receive, or than the port's limit: both sides must run the same protocol version"},
	StatusLocalQPOperation: {"local QP operation error", "the work request does not fit the queue pair: a fault of this program or of the driver, please report it"},
	StatusLocalEEC:         {"local EE context operation error", "not used by reliable connections: a fault of the driver"},
	StatusLocalProtection:  {"local protection error", "a work request names memory that is not registered, or not with the rights that it needs: a fault of this program, please report it"},
	StatusFlushed:          {"work request flushed", "the queue pair broke before: see the first error of the connection. If there is none, this side rejected a request of the peer (its key, address or length), and the error is in the peer's log"},
	StatusWindowBind:       {"memory window bind error", "the device refused to bind a memory window"},
	StatusBadResponse:      {"bad response", "the peer's device sent an unexpected response: look for mixed firmware, or another program on the same queue pair"},
	StatusLocalAccess:      {"local access error", "the peer wrote beyond the memory granted to it, or without the right to write: both sides must run the same protocol version"},
	StatusRemoteInvalidRequest: {"remote invalid request error",
		"the peer's device rejected the request: it is longer than the posted receive, or its queue pair does not allow the operation"},
	StatusRemoteAccess: {"remote access error",
		"the peer's address or key is no longer valid there: the peer restarted, or closed the connection"},
	StatusRemoteOperation: {"remote operation error", "the peer's device failed while it executed the request: look at the peer's log"},
	StatusRetryExceeded: {"transport retry counter exceeded",
		"no acknowledgement arrived: the peer is down, or RoCE packets do not get through. Compare GID and RoCE version of both sides (the setting rdma.gid-index), MTU (rdma.mtu), and look for a firewall on UDP port 4791; on a lossy network raise rdma.timeout"},
	StatusRNRRetryExceeded: {"RNR retry counter exceeded",
		"the peer does not post receives in time, although credits bound what is sent to it: it is stopped or overloaded; on a busy host raise the setting rdma.queue-depth there"},
	StatusLocalRDDViolation: {"local RDD violation error", "not used by reliable connections: a fault of the driver"},
	StatusRemoteInvalidRD:   {"remote invalid RD request", "not used by reliable connections: a fault of the driver"},
	StatusRemoteAborted:     {"remote aborted error", "the peer's device aborted the request"},
	StatusInvalidEEC:        {"invalid EE context number", "not used by reliable connections: a fault of the driver"},
	StatusInvalidEECState:   {"invalid EE context state", "not used by reliable connections: a fault of the driver"},
	StatusFatal:             {"fatal error", "the device failed: look at the kernel's log (dmesg) and the device's firmware"},
	StatusResponseTimeout:   {"response timeout", "the peer's device received the request and did not respond in time: raise the setting rdma.timeout"},
	StatusGeneral:           {"general error", "the device gives no reason: only the vendor error may tell more"},
}

// String returns the name of the status.
func (s Status) String() string {
	if int(s) < len(statusTexts) {
		return statusTexts[s].name
	}
	return "status " + nameOf(s)
}

// Cause returns the usual cause of the status and the remedy, as text for the user;
// empty for StatusOK.
func (s Status) Cause() string {
	if int(s) < len(statusTexts) {
		return statusTexts[s].cause
	}
	return "this status is not in the specification: look at the driver's documentation"
}
