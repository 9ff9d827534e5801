package cluster

import (
	"crypto/rand"
	"encoding/binary"
)

// NewIncarnation returns a random number that identifies one run of a process. It is never 0:
// TensorFlow's master refuses a device without an incarnation. Incarnations have no order.
func NewIncarnation() uint64 {
	for {
		if n := random(); n != 0 {
			return n
		}
	}
}

// NotProven is the reason of an error that refuses a name: the caller has not proven that the name is its
// own. errors.As finds the reason in a status of this process; peers get the text alone.
type NotProven string

// Error returns the reason.
func (n NotProven) Error() string { return string(n) }

// ClientJob is the job of processes that are in no cluster spec (ClientTask).
const ClientJob = "client"

// ClientTask returns a name for a process that only receives, and so is in no cluster spec:
// /job:client/replica:0/task:<random 31 bits>.
func ClientTask() Task {
	return Task{Job: ClientJob, Index: int(random() & maxNumber)}
}

func random() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // crypto/rand.Read never returns an error
	return binary.NativeEndian.Uint64(b[:])
}
