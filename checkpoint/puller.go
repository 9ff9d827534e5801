package checkpoint

import (
	"context"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/tryst-rdma/tryst/cluster"
	trystpb "github.com/tryst-rdma/tryst/proto/tryst"
	"github.com/tryst-rdma/tryst/proto/trystgrpc"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
)

// Receiver is the part of the pulling process' rendezvous that a Puller uses.
type Receiver interface {
	// RecvAsync receives the value of a key in a step, as in rendezvous.Rendezvous.
	RecvAsync(ctx context.Context, step int64, key rendezvous.Key, done rendezvous.DoneFunc)
	// EndStep releases the state of a step. It does not block.
	EndStep(step int64)
}

// NewReceiver returns a Receiver for the steps of a process. The manager's session must be that
// of the Puller's task.
func NewReceiver(m *rendezvous.Manager) Receiver { return receiver{m} }

type receiver struct{ m *rendezvous.Manager }

func (r receiver) RecvAsync(ctx context.Context, step int64, key rendezvous.Key, done rendezvous.DoneFunc) {
	r.m.Find(step).RecvAsync(ctx, key, rendezvous.Args{}, done)
}

func (r receiver) EndStep(step int64) { r.m.Cleanup(step) }

// PullerOptions configures a Puller. All fields are needed.
type PullerOptions struct {
	// Conn is a connection to the server that has the publications.
	Conn grpc.ClientConnInterface
	// Task and Incarnation are those of this process, and of the Receiver's session.
	Task        cluster.Task
	Incarnation uint64
	// Receiver receives the tensors.
	Receiver Receiver
}

// Puller pulls publications of one server. It is safe for concurrent use and need not be
// closed.
type Puller struct {
	o      PullerOptions
	client trystgrpc.PublicationsClient
}

// NewPuller returns a Puller.
func NewPuller(o PullerOptions) *Puller {
	return &Puller{o: o, client: trystgrpc.NewPublicationsClient(o.Conn)}
}

// List returns the publications of the server, sorted by name.
func (p *Puller) List(ctx context.Context) ([]Publication, error) {
	resp, err := p.client.List(ctx, &trystpb.ListRequest{}, grpc.MaxCallRecvMsgSize(maxManifest))
	if err != nil {
		return nil, fromGRPC("asking for the publications", err)
	}
	var all []Publication
	for _, pub := range resp.GetPublications() {
		all = append(all, publicationOf(pub))
	}
	slices.SortFunc(all, byName)
	return all, nil
}

// Describe returns the manifest of a publication. An empty name means the server's only
// publication; it is InvalidArgument if there are several. An empty version means the current
// one.
func (p *Puller) Describe(ctx context.Context, name, version string) (*Manifest, error) {
	if name == "" {
		only, err := p.only(ctx)
		if err != nil {
			return nil, err
		}
		name = only
	}
	what := "asking for publication " + quote(name)
	resp, err := p.client.Describe(ctx, &trystpb.DescribeRequest{Publication: name, Version: version}, grpc.MaxCallRecvMsgSize(maxManifest))
	if err != nil {
		return nil, fromGRPC(what, err)
	}
	m, err := manifestOf(resp)
	if err != nil {
		return nil, wrap("the server's description of publication "+quote(name), err)
	}
	return m, nil
}

// only returns the name of the server's only publication.
func (p *Puller) only(ctx context.Context) (string, error) {
	all, err := p.List(ctx)
	if err != nil {
		return "", err
	}
	switch len(all) {
	case 0:
		return "", status.New(status.NotFound, "the server has no publication")
	case 1:
		return all[0].Name, nil
	}
	names := make([]string, 0, suggestions)
	for _, pub := range all[:min(len(all), suggestions)] {
		names = append(names, quote(pub.Name))
	}
	if len(all) > suggestions {
		names = append(names, "...")
	}
	return "", status.Errorf(status.InvalidArgument, "the server has %d publications (%s): say which one", len(all), strings.Join(names, ", "))
}

// session is a step that the server opened, and the stream that keeps it open.
type session struct {
	step int64
	keys map[string]rendezvous.Key // by tensor

	receiver Receiver
	cancel   func()        // ends the stream
	ended    chan struct{} // closed when the stream has ended
}

// open gets a step with the keys of the chosen tensors from the server. When the stream ends
// before close, lost is called with the reason.
func (p *Puller) open(ctx context.Context, m *Manifest, chosen []int, lost context.CancelCauseFunc) (*session, error) {
	what := "opening publication " + quote(m.Name)
	// The stream ends with ctx, but does not have its deadline: the server would end the
	// stream first, with a less precise error.
	streamCtx, end := context.WithCancel(context.WithoutCancel(ctx))
	unwatch := context.AfterFunc(ctx, end)
	cancel := func() {
		unwatch()
		end()
	}
	stream, err := p.client.Open(streamCtx, &trystpb.OpenRequest{
		Publication: m.Name, Version: m.Version, Tensors: m.namesOf(chosen),
		Puller: p.o.Task.String(), PullerIncarnation: p.o.Incarnation,
	})
	if err != nil {
		cancel()
		return nil, fromGRPC(what, err)
	}
	s := &session{keys: make(map[string]rendezvous.Key, len(m.Entries)), receiver: p.o.Receiver, cancel: cancel, ended: make(chan struct{})}
	for last := false; !last; {
		resp, err := stream.Recv()
		if err != nil {
			cancel()
			return nil, fromGRPC(what, err)
		}
		if err := s.take(resp, len(m.Entries)); err != nil {
			cancel()
			return nil, wrap(what, err)
		}
		last = resp.GetLast()
	}
	for _, i := range chosen {
		if _, ok := s.keys[m.Entries[i].Name]; !ok {
			cancel()
			return nil, status.Errorf(status.Internal, "%s: the server gave no key for tensor %s", what, quote(m.Entries[i].Name))
		}
	}
	go func() {
		defer close(s.ended)
		for {
			if _, err := stream.Recv(); err != nil {
				lost(fromGRPC("the server has ended the pull of "+quote(m.Name), err))
				return
			}
		}
	}()
	return s, nil
}

// take stores the keys of one message.
func (s *session) take(resp *trystpb.OpenResponse, atMost int) error {
	if s.step != 0 && resp.GetStepId() != s.step {
		return status.Errorf(status.Internal, "the server changed the step from %d to %d", s.step, resp.GetStepId())
	}
	s.step = resp.GetStepId()
	for _, k := range resp.GetKeys() {
		key, err := rendezvous.ParseKey(k.GetKey())
		if err != nil {
			return wrap("tensor "+quote(k.GetName()), err)
		}
		if s.keys[k.GetName()] = key; len(s.keys) > atMost {
			return status.Errorf(status.Internal, "the server gave keys for more than the %d tensors of the publication", atMost)
		}
	}
	return nil
}

// cause returns the cause of a receive's error err: the cause of ctx if that has ended. An error
// may follow from the end of the stream, for instance when the server stops and ends the step.
// Then cause waits up to causeDelay for the stream's error.
func (s *session) cause(ctx context.Context, err *status.Error) error {
	if status.IsDerived(err) || err.Code() == status.Aborted {
		timer := time.NewTimer(causeDelay)
		defer timer.Stop()
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// close ends the stream, and with it the step on both sides.
func (s *session) close() {
	s.cancel()
	<-s.ended
	s.receiver.EndStep(s.step)
}

// namesOf returns the names to open. It returns none, which means all tensors, if all are
// chosen or the list would be longer than maxOpenNames.
func (m *Manifest) namesOf(chosen []int) []string {
	if len(chosen) == len(m.Entries) {
		return nil
	}
	names, size := make([]string, 0, len(chosen)), 0
	for _, i := range chosen {
		names = append(names, m.Entries[i].Name)
		if size += len(m.Entries[i].Name) + 4; size > maxOpenNames { // with tag and length
			return nil
		}
	}
	return names
}
