package handshake

import (
	"errors"
	"strings"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/status"
)

// Reasons why there is no channel that the caller tells apart, beside the codes of errors.
var (
	// ErrNotKnown is wrapped when the peer has not accepted this process yet. It calls back at
	// once: this is how every channel to a peer begins that was there before this process.
	ErrNotKnown = errors.New("it does not know this process yet, and will call it")
	// ErrNotServed is wrapped when the peer does not serve the bootstrap: it uses gRPC alone, until it is started
	// with other settings, or is no Tryst at all.
	ErrNotServed = errors.New("does not serve verbs: its setting transport is grpc, or it is not Tryst")
	// ErrNoPackets is wrapped when both sides have connected, and no packet has come.
	ErrNoPackets = errors.New("RDMA packets do not pass from its host to this one: check firewalls (RoCE v2 uses UDP port 4791) and the MTU on the way, by `tryst doctor --transport verbs --cluster ...`")
)

// noPath is ErrNoPackets of a device of TCP or shared memory: other words, and the same to do.
type noPath struct{}

func (noPath) Error() string {
	return "their queue pairs have not reached each other; the logs of both processes say why"
}

func (noPath) Is(target error) bool { return target == ErrNoPackets }

// silence is why no packet has come to a side.
func silence(self Offer) error {
	if self.ofProcess() {
		return noPath{}
	}
	return ErrNoPackets
}

// UnreachedError is the error of a call that has not reached the peer, or of which it is not
// known. Err says why: it is an error of the connection, and no sentence of the peer.
type UnreachedError struct{ Err error }

func (e *UnreachedError) Error() string { return e.Err.Error() }
func (e *UnreachedError) Unwrap() error { return e.Err }

// WillStay reports whether an error of a bootstrap call will not change soon. own is the task of this process: one that was
// removed from the peer's cluster may come back at any time.
func WillStay(own cluster.Task, err error) bool {
	if IsRemoved(own, err) {
		return false
	}
	switch status.CodeOf(err) {
	case status.FailedPrecondition, status.InvalidArgument, status.PermissionDenied, status.Unauthenticated, status.Unimplemented:
		return true
	}
	return false
}

// isOfferRefused reports whether err is the peer's own and says that it does not take this offer. It may hold another one
// of that generation, from an earlier record that this process had of the peer.
func isOfferRefused(err error) bool {
	_, said := errors.AsType[*status.Said](err)
	return said && status.CodeOf(err) == status.Aborted
}

// noQueuePairs is what an older build answers to a request without queue pairs, after its name.
const noQueuePairs = "shows no queue pairs"

// HasNoInventory reports whether err has the sentence by which an older build refuses to show its
// inventory.
func HasNoInventory(peer cluster.Task, err error) bool {
	said, ok := errors.AsType[*status.Said](err)
	return ok && said.Peer == peer.String() && status.CodeOf(err) == status.FailedPrecondition && strings.HasSuffix(said.Text, noQueuePairs)
}

// stopping is the reason of a process that stops, as its peers get it (PROTOCOL.md section 9).
func stopping(t cluster.Task) string { return t.String() + " is stopping" }

// Stopping is the error of a process that stops.
func Stopping(self cluster.Task) *status.Error { return status.New(status.Unavailable, stopping(self)) }

// withoutDevice is the beginning of the reason of a process without a device, as its peers get it.
func withoutDevice(t cluster.Task) string { return t.String() + " has no verbs for now" }

// IsWithoutDevice reports whether err has the sentence by which a peer says that it has no device
// for now.
func IsWithoutDevice(peer cluster.Task, err error) bool {
	said, ok := errors.AsType[*status.Said](err)
	return ok && strings.HasPrefix(strings.TrimPrefix(said.Text, status.Unavailable.String()+": "), withoutDevice(peer))
}

// changes begins the reason of a process that uses another device, or another address.
const changes = "it changes from "

// Changes is the error of channels that end because their process uses another device or address
// from now on.
func Changes(from, to string) *status.Error {
	return status.New(status.Unavailable, changes+from+" to "+to)
}

// IsChanging reports whether err has the sentence by which a peer ends a channel to use another
// device or address from now on.
func IsChanging(peer cluster.Task, err error) bool {
	said, ok := errors.AsType[*status.Said](err)
	return ok && IsWithoutDevice(peer, err) && strings.Contains(said.Text, ": "+changes)
}

// Sentences of a process whose cluster does not have the task of the peer: the BYE when it is removed, and the refusal of its
// calls from then on, which may end with noTaskMore.
const (
	hasLeft    = " has left the cluster"
	noTask     = "the cluster has no task "
	noTaskMore = " any more"
)

// IsRemoved reports whether err has a sentence by which a peer says that its cluster does not have the task of this
// process, own.
func IsRemoved(own cluster.Task, err error) bool {
	said, ok := errors.AsType[*status.Said](err)
	return ok && (said.Text == own.String()+hasLeft || strings.TrimSuffix(said.Text, noTaskMore) == noTask+own.String())
}

// Removed is the error by which the calls of a task are refused that was removed from the cluster.
func Removed(task cluster.Task) *status.Error {
	return status.New(status.FailedPrecondition, noTask+task.String()+noTaskMore)
}

// IsStopping reports whether err has the sentence by which a peer says that it stops. Earlier
// releases sent it with the code before it.
func IsStopping(peer cluster.Task, err error) bool {
	said, ok := errors.AsType[*status.Said](err)
	return ok && strings.TrimPrefix(said.Text, status.Unavailable.String()+": ") == stopping(peer)
}
