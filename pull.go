package tryst

import (
	"iter"
	"time"

	"github.com/tryst-rdma/tryst/internal/checkpoint"
	"github.com/tryst-rdma/tryst/tensor"
)

// PullOption is an option of Client.Pull. A function that sets other fields of the request, such as
// InflightBytes or SkipDigests, is one, too.
type PullOption func(*PullRequest)

// PullRequest says what a pull does. The options below set its fields.
type PullRequest = checkpoint.PullRequest

// PullProgress says what has come of a pull (PullRequest.Progress): the name of the last Tensor, how many Tensors of
// Total, and Bytes of TotalBytes.
type PullProgress = checkpoint.Progress

// PullTensors pulls only the tensors whose names match one of the patterns. In a
// pattern * stands for any characters and ? for one. A pattern without a match is
// NotFound.
func PullTensors(patterns ...string) PullOption {
	return func(r *PullRequest) { r.Tensors = append(r.Tensors, patterns...) }
}

// PullInto receives tensors into memory of the caller's, by name: m["h.0.weight"] gets the tensor of that
// name. Without PullTensors, the pull is of these alone. Describe tells the names, types and shapes, and
// TensorsFor makes m in one call, in memory of Client.Allocator, which is filled without a
// copy.
//
// The digest is checked in that memory. Pull yields the same tensor with a reference of its own, which
// the loop releases; the caller keeps those in m, which must be the only ones when the pull begins,
// until it has ended. A name that the publication does not have, and memory of another type or
// shape, is InvalidArgument, memory with other references FailedPrecondition, before anything is
// transferred. After an error, and when the loop was left, the content of tensors that were not yielded
// is undefined, and they must not be read, written, sent or pulled into until Buffer().Unique() reports
// true, which takes seconds at most; Buffer().WaitUnique waits for it.
func PullInto(m map[string]*tensor.Tensor) PullOption {
	return func(r *PullRequest) { r.Into = m }
}

// TensorsFor returns memory for tensors of a publication, by name, as PullInto takes it, from an allocator such
// as Client.Allocator. The caller releases each; after an error there is none. Manifest.Entries has the tensors of a
// publication.
func TensorsFor(entries iter.Seq[TensorInfo], a tensor.Allocator) (map[string]*tensor.Tensor, error) {
	return checkpoint.TensorsFor(entries, a)
}

// PullVersion pulls the named version of the publication. The pull fails with NotFound if the server does
// not have it. Without this option, the current version is pulled.
func PullVersion(v string) PullOption {
	return func(r *PullRequest) { r.Version = v }
}

// PullInflight sets how many tensors, or pieces of 4 MiB of larger ones, are received at once.
func PullInflight(n int) PullOption {
	return func(r *PullRequest) { r.Inflight = n }
}

// PullRetry sets how long a pull tries to go on without progress when a connection or
// the server fails, or the server has no room for a call; a negative value means not at all. The default is
// one minute. The server may restart meanwhile, if it then
// has the same version of the publication.
func PullRetry(d time.Duration) PullOption {
	return func(r *PullRequest) { r.Retry = d }
}

// Interruption says that a connection or the server failed during a pull (Err) and for how long the pull
// now tries to go on (Retry); or, without Err, that it goes on, and how long it was interrupted (Lasted).
type Interruption = checkpoint.Interruption

// OnInterruption calls f when a failure interrupts the pull, and when the pull goes on after it: twice for
// each interruption that PullRetry covers, not for every attempt. A server that is not up yet interrupts the
// pull, too. The calls come one at a time on a goroutine of the pull, which waits for them. The error
// that ends a pull is that of the loop.
func OnInterruption(f func(Interruption)) PullOption {
	return func(r *PullRequest) { r.Interrupted = f }
}

// PulledTensor says how a tensor of a pull came: its Name, and an Arrival for each transport and device
// that has carried the tensor or a piece of it (Arrivals), the one with the most bytes first.
type PulledTensor = checkpoint.PulledTensor

// OnPulled calls f for each tensor with how it came, on the goroutine of the loop, right before Pull
// yields the tensor.
func OnPulled(f func(PulledTensor)) PullOption {
	return func(r *PullRequest) { r.Received = f }
}

// Summary is the result of a pull: Tensors and Bytes that came, the time (Total, and Transfer without
// checks), BytesPerSecond, the Digest of all, and Carried: the sums of Arrival for each transport and device.
// Over("grpc") is how many tensors gRPC carried, whole or in part.
type Summary = checkpoint.Summary

// Deltas says how the tensors of a version came to a watch (Summary.Deltas): whole, or as what differs from the version before.
type Deltas = checkpoint.Deltas

// Saved is a part of Deltas: how many Tensors, their Bytes, and how many were Received instead.
type Saved = checkpoint.Saved

// Carried is what one transport and device has carried of a pull (Summary.Carried).
type Carried = checkpoint.Carried

// Summarize sets *s when the loop over Pull has ended without an error, also when it was left: then *s
// is about the tensors that had come, and has no Digest. One line then asserts that no
// tensor went over gRPC:
//
//	if s.Over("grpc") > 0 { … }
func Summarize(s *Summary) PullOption {
	return func(r *PullRequest) { r.Summary = s }
}
