//go:build rxe && linux

package verbs_test

import "time"

// settings make a node.
type settings struct {
	// Task is its index in the job worker, and Cluster where all of them are
	// called. Without a Cluster it is a client of the server at Dial.
	Task    int
	Cluster map[int]string
	Dial    string

	Device      string
	Fallback    string        // grpc when ""
	PeerTimeout time.Duration // longer than anything in a test when 0
	ArenaLimit  int64         // as the default when 0
	QueueDepth  int           // as the default when 0
}

// command is what a test asks of a node.
type command struct {
	ID int
	Op op

	Step int64
	Peer int // whom a tensor is for, or from
	Name string
	Key  string // instead of Peer and Name, of a peer that is none of ours: any content will do
	Size int64
	Seed uint64 // of the content
	Path string // that is published, or that a pull writes
	Of   int    // the receive that is cancelled
}

type op string

const (
	opSend    op = "send"
	opRecv    op = "recv" // answered when the receive has ended
	opCancel  op = "cancel"
	opAbort   op = "abort"
	opEndStep op = "end step"
	opState   op = "state"
	opPublish op = "publish"
	opPull    op = "pull"
	opClose   op = "close" // the last
)

// reply is what a node says: once for each command, and with the ID 0 that it is up.
type reply struct {
	ID      int
	Address string // where it listens
	Code    string // of an error; "" for none
	Text    string
	State   *state
}

// state is what a node knows of itself.
type state struct {
	Links map[int]link // by the index of the peer
	// Tensors and Bytes that it has received, by the wire that carried them.
	Tensors map[string]int
	Bytes   map[string]int64
	// Registered memory in use, and how much of it waits for peers' words.
	Sending, Receiving, Quarantined int64
	Kept                            int // answers
}

// link is which wire carries a peer's tensors.
type link struct {
	Verbs      bool
	Handshake  bool // queue pairs are offered, and there is no channel yet
	Generation uint64
	Reason     string
	// Breaks counts channels that were left; the others are receives that were
	// asked again since theirs was, that had no room, or that found none.
	Breaks, Lost, Elsewhere, Without uint64
}
