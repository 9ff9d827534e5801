// Package tryst moves tensors between processes, over RDMA, shared memory, TCP or gRPC, with
// TensorFlow's rendezvous semantics: a producer sends a tensor under a name, a consumer on another host
// receives it under that name, and either may come first.
//
// This program is both of two tasks of a cluster. Each exchanges tensors in registered memory of its
// own, without a copy, and none may go over gRPC. Run it with 0 on the first host and with 1 on the
// second:
//
//	package main
//
//	import (
//		"context"
//		"fmt"
//		"log"
//		"os"
//
//		"github.com/tryst-rdma/tryst"
//		"github.com/tryst-rdma/tryst/tensor"
//	)
//
//	func main() {
//		if err := run(context.Background(), os.Args[1]); err != nil {
//			log.Fatal(err)
//		}
//	}
//
//	func run(ctx context.Context, index string) error {
//		s, err := tryst.Serve(ctx, tryst.Config{
//			Cluster:   map[string][]string{"worker": {"10.0.0.1:2222", "10.0.0.2:2222"}},
//			Task:      "/job:worker/task:" + index, // listens at its address in the cluster
//			Transport: tryst.TransportVerbs,
//			Fallback:  tryst.FallbackNone, // a receive that verbs cannot serve waits, and then fails; set it on both sides
//		})
//		if err != nil {
//			return err
//		}
//		defer s.Close(ctx) // sends the last acknowledgements
//		t, err := tensor.Make[float32](s.Allocator(), 1024, 1024)
//		if err != nil {
//			return err
//		}
//		defer t.Release()
//		values, err := tensor.Values[float32](t) // a slice over the memory of t
//		if err != nil {
//			return err
//		}
//		step := s.Step(1) // both sides use the same number
//		for i := range 10 {
//			if index == "1" {
//				f, err := step.RecvInto(ctx, "/job:worker/task:0", "gradient", t)
//				if err != nil {
//					return err
//				}
//				fmt.Println(values[0], "over", f.Transport, "zero copy:", f.ZeroCopy)
//				continue
//			}
//			values[0] = float32(i)
//			d, err := step.SendWait(ctx, "/job:worker/task:1", "gradient", t) // waits beyond Limits.SendBound
//			if err != nil {
//				return err
//			}
//			if err := d.Wait(ctx); err != nil { // nil: the peer has the value
//				return err
//			}
//			if err := t.Buffer().WaitUnique(ctx); err != nil { // nobody reads t any more
//				return err
//			}
//		}
//		return nil
//	}
//
// To try it on one machine, use two ports of 127.0.0.1 in Cluster: the tensors then go through shared
// memory. An absent consumer is no error: the producer waits for it until ctx ends (see Delivery).
//
// The transport "verbs" reaches each peer over the best of these that both sides have: shared memory
// within a host, an RDMA device, TCP. The default "auto" does so, too, and takes gRPC without a word where
// a peer has none of them. It takes RDMA in user space, and with TLS any RDMA device, only if the settings name it.
// Links says which one it is.
//
// # What to use
//
//	Serve, Config           a task of a cluster
//	Server.Step, NewStep    a run, within which values have names
//	Step.Send, SendWait     to one receiver. Send never waits; SendWait keeps to a bound, and says when
//	                        the receiver has the value
//	Step.Recv, RecvInto     Recv gives new memory, RecvInto fills the caller's; the Async forms take
//	                        a callback
//	Edge                    a name and a peer that are checked once, for many steps
//	Server.Group            a group of processes: Group.AllReduce, Gather, Broadcast
//	Server.Update           the next version of weights that change; Client.Watch yields the newest one
//	Server.Publish          to any number of clients. Dial makes a client, Client.Pull gets the tensors,
//	                        verified; Into is the option for memory of the caller's
//	Server.Allocator        memory that is sent and filled without a copy; tensor.Make allocates in it
//	Value, Filled, Summary  which transport carried a value or a pull; Received, Sent and Links tell it for
//	                        a process. Config.Fallback "none" on both sides forbids gRPC
//
// # Memory
//
// A Tensor is a counted reference to memory that may be outside the Go heap. The caller of Recv, Pull
// or tensor.Make owns one reference and must release it; nothing else frees the memory. Send takes a
// reference of its own. Memory may be written only while one reference exists
// (Tensor.Buffer().Unique(); WaitUnique waits for that).
//
// # Errors
//
// Errors are *status.Error: a code (status.CodeOf), and one line of text that says what to do. Errors of
// contexts match context.Canceled and context.DeadlineExceeded by errors.Is.
//
// docs/library.md explains each of these, with the name of a runnable example.
package tryst

import (
	"context"
	"net"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/checkpoint"
	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/tensor"
)

// Publication identifies a published set of tensors: Name, Version (derived from the content), the
// number of Tensors, the Bytes of their content, when it was Published, and the Number of the version, which
// ascends within an Epoch.
type Publication = checkpoint.Publication

// Server is a task of a cluster, and serves publications. It is safe for
// concurrent use.
type Server struct{ s *server.Server }

// Serve starts a server and returns when it listens. ctx bounds the start only;
// Close ends the server. Invalid settings are InvalidArgument, an address in use
// is Unavailable.
func Serve(ctx context.Context, cfg Config, opts ...Option) (*Server, error) {
	o, err := newOptions(opts)
	if err != nil {
		return nil, err
	}
	s, err := server.Start(ctx, cfg, o)
	if err != nil {
		return nil, err
	}
	return &Server{s}, nil
}

// Addr returns the address that the server listens on.
func (s *Server) Addr() net.Addr { return s.s.Addr() }

// Task returns the name of this process in the cluster.
func (s *Server) Task() cluster.Task { return s.s.Task() }

// Cluster returns the present cluster, in the form of Config.Cluster; nil without one.
func (s *Server) Cluster() map[string][]string { return s.s.Cluster() }

// SetCluster makes tasks, in the form of Config.Cluster, the cluster while the server runs. Numbers stay with their
// tasks: after task 1 of three has left, the job is {"h0:2222", "2@h2:2222"}. Each task of the cluster has to learn of
// the change by a call of its own; the order does not matter.
//
//	a task comes    it is reached, and may reach this process, from now on
//	a task leaves   steps with it end here with Aborted (ErrTaskLeft): those in which a value for it is not received, a
//	                receive from it waits, or a request of it. Later calls for it are NotFound, and ErrTaskLeft, too.
//	                Its requests are refused, what is kept for it is released, and connections and channels to it are
//	                closed
//	a task moves    (its address is another one) it is reached at its new address. Receives that are under way go on, if
//	                the process there is the same one, and otherwise end as after a restart (ErrPeerRestarted)
//
// This task stays where it is: a cluster without it, or with another address for it, is FailedPrecondition; what is no
// cluster is InvalidArgument. After an error of these, or of a server that closes (ErrShutdown), the cluster is as it
// was. Calls at the same time take effect one after the other. SetCluster returns when the channels are closed, or with
// the error of ctx; the cluster is set then, too. A session whose TensorFlow master has given it a cluster keeps that
// one. It must not be called from a callback of Step.Rendezvous.
func (s *Server) SetCluster(ctx context.Context, tasks map[string][]string) error {
	return s.s.SetCluster(ctx, tasks)
}

// Publish offers the tensors of files under a name to any number of clients,
// until Withdraw or Close. A path is a .safetensors file, the index of a sharded
// checkpoint, a directory that contains one of these, or an .npy file. An empty
// name means the base name of the path. Publish returns when the digests of all
// tensors are computed. The files stay open. When other files are renamed onto
// the names of all of them, the publication gets a new version; Reload takes some
// of several files.
func (s *Server) Publish(ctx context.Context, name string, paths ...string) (Publication, error) {
	return s.s.Catalog().Publish(ctx, name, paths...)
}

// PublishTensors offers tensors in memory, each under the name that
// tensor.Tensor.Named gave it. It takes a reference of its own to each. Their
// memory must not be written to from now on. PublishTensors returns when the digests of all are computed,
// or with the error of ctx, and then nothing is published. Update makes further versions.
func (s *Server) PublishTensors(ctx context.Context, name string, tensors ...*tensor.Tensor) (Publication, error) {
	return s.s.Catalog().PublishTensors(ctx, name, tensors...)
}

// Reload reads the files of all publications again, and takes what has changed as
// a new version. Pulls in progress go on with the old files, except with those that
// were written in place: they get FailedPrecondition. A publication that cannot be
// read, or is being written, stays as it is and is named in the error. Without
// Reload files are taken when they are renamed onto the names of all tensor files
// of a publication.
func (s *Server) Reload(ctx context.Context) error { return s.s.Catalog().Reload(ctx) }

// Lent says when memory that was published is the caller's again: Done and Wait. Then no puller, no response and no
// device reads it. It does not wait for references of the caller's own.
type Lent = checkpoint.Lent

// UpdateOption is an option of Server.Update.
type UpdateOption func(*UpdateOptions)

// UpdateOptions says what Update does. The options below set its fields.
type UpdateOptions = checkpoint.UpdateOptions

// UpdateNumber gives the version a number, such as that of a training step. It must be above that of the version
// before: otherwise Update fails with InvalidArgument. Without it numbers count from 1.
func UpdateNumber(n uint64) UpdateOption {
	return func(o *UpdateOptions) { o.Number = n }
}

// UpdateDrop lets Update replace the version before, if no pull of it has begun, where it would otherwise wait for
// memory. Pullers never see a version that was dropped so, and its memory comes back at once.
func UpdateDrop() UpdateOption {
	return func(o *UpdateOptions) { o.Drop = true }
}

// Update makes tensors in memory the next version of a publication, or its first one, atomically: a pull gets
// all of one version. It takes a reference of its own to each tensor, whose memory must not be written to until the
// returned Lent is done. Its Publication has the Number, which ascends, and the Epoch, which is another one
// after a withdrawal and in each process.
//
// Pulls of the version before go on. They end with FailedPrecondition, and a text that says that there is a newer
// one, when Publications.ReplacedPulls has passed. At most two versions of a name are in memory: while there are two, Update
// waits until the memory of the older one is back, in the order of the calls; see UpdateDrop. Without pulls that
// is when the deltas between the two are made, for which it is read for 10 s at most. After an
// error, also that of ctx, nothing has changed: FailedPrecondition for a publication of files, and when it was withdrawn
// meanwhile. (docs/versions.md)
func (s *Server) Update(ctx context.Context, name string, tensors []*tensor.Tensor, opts ...UpdateOption) (*Lent, error) {
	var o UpdateOptions
	for _, opt := range opts {
		opt(&o)
	}
	return s.s.Catalog().Update(ctx, name, tensors, o)
}

// Withdraw ends a publication. Pulls of it that are under way end with NotFound, and watchers wait for the name to
// come back. Lent says when the memory of all its versions is the caller's again. If ctx has ended, it stays.
func (s *Server) Withdraw(ctx context.Context, name string) (*Lent, error) {
	return s.s.Catalog().Withdraw(ctx, name)
}

// Done returns a channel that is closed when the server has ended: when Close is complete, or by itself
// when its listener failed, which Err tells. Close it then as well; its receives still work until then.
// Close waits for callbacks, so a callback must not wait for Done.
func (s *Server) Done() <-chan struct{} { return s.s.Done() }

// Err returns nil until Done is closed. Then it returns the reason: Internal with the error of the
// listener, or Cancelled after Close.
func (s *Server) Err() error { return s.s.Err() }

// Close stops gracefully. Pulls and responses in progress may complete until ctx ends or
// Config.ShutdownTimeout passes; the error names what was cut off. Values that nobody has requested are
// dropped: a producer waits for the Delivery of its last values first. A consumer tells its peers which
// values it has. Close returns when all goroutines of the server have ended.
func (s *Server) Close(ctx context.Context) error { return s.s.Close(ctx) }
