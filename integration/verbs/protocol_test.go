//go:build rxe && linux

package verbs_test

import "time"

// settings configure a node.
type settings struct {
	// Task is the node's index in the job worker, and Cluster the addresses of all tasks. Without a
	// Cluster the node is a client of the server at Dial.
	Task    int
	Cluster map[int]string
	Dial    string

	Device      string
	Fallback    string        // grpc when ""
	PeerTimeout time.Duration // longer than any test when 0
	ArenaLimit  int64         // the default when 0
	QueueDepth  int           // the default when 0
}

// command is a command of a test to a node.
type command struct {
	ID int
	Op op

	Step int64
	Peer int // the task that sends or receives a tensor
	Name string
	Key  string // in place of Peer and Name, for the hostile peer: any content is accepted
	Size int64
	Seed uint64 // of the content
	Path string // the file to publish, or that a pull writes
	Of   int    // the ID of the receive to cancel
}

type op string

const (
	opSend    op = "send"
	opRecv    op = "recv" // its reply comes when the receive has ended
	opCancel  op = "cancel"
	opAbort   op = "abort"
	opEndStep op = "end step"
	opState   op = "state"
	opPublish op = "publish"
	opPull    op = "pull"
	opClose   op = "close" // the last command
)

// reply is the reply of a node to a command. The first one, with ID 0, reports that the node has
// started.
type reply struct {
	ID      int
	Address string // on which it listens
	Code    string // of an error; "" for none
	Text    string
	State   *state
}

// state is the state of a node.
type state struct {
	Connections map[int]connection // by the index of the peer
	// Tensors and Bytes that it has received, by transport.
	Tensors map[string]int
	Bytes   map[string]int64
	// Registered memory in use, in bytes, and how much of it is in quarantine.
	Sending, Receiving, Quarantined int64
	Kept                            int // responses
}

// connection is the state of the channel to a peer.
type connection struct {
	Verbs      bool
	Handshake  bool // queue pairs are offered, and there is no channel yet
	Generation uint64
	Reason     string
	// Breaks counts the channels that were left. The other counts are of receives: Lost were sent
	// again because their channel was left, Elsewhere took gRPC although a channel was up, Without
	// took gRPC because there was none.
	Breaks, Lost, Elsewhere, Without uint64
}
