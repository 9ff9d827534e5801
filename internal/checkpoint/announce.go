package checkpoint

import (
	"time"

	"google.golang.org/grpc"

	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/status"
)

// A watcher has a stream. Its goroutine sends the current version, waits for a change of the line, and sends
// what is current then. So a watcher that does not read skips versions, and holds back nobody.

func (s *service) Watch(req *trystpb.WatchRequest, stream grpc.ServerStreamingServer[trystpb.WatchResponse]) error {
	return answer(s.catalog.announce(req, stream), stream.SetTrailer)
}

// announced is what a watcher was told last.
type announced struct {
	epoch, number uint64
	absent        bool // that there is no publication
}

// announce sends the current version of a publication, and then each newer one.
func (c *Catalog) announce(req *trystpb.WatchRequest, stream grpc.ServerStreamingServer[trystpb.WatchResponse]) error {
	if err := c.prepared(); err != nil {
		return err
	}
	if err := checkName("publication", req.GetPublication()); err != nil {
		return err
	}
	if n := c.watchers.Add(1); n > maxWatchers {
		c.watchers.Add(-1)
		return status.Passing("%d watchers are here, as many as this server takes; try again later", n-1)
	}
	defer c.watchers.Add(-1)
	w, err := c.newWatcher(stream.Context(), req)
	if err != nil {
		return err
	}
	l := c.use(req.GetPublication())
	defer c.leave(l)
	defer c.watches(l, w)()
	last := announced{epoch: req.GetEpoch(), number: req.GetNumber()}
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		resp, now, changed := c.announcement(l)
		if now != last {
			if err := stream.Send(resp); err != nil {
				return err
			}
			last = now
			pause.Reset(announceEvery)
			if err := until(c, stream, pause.C); err != nil {
				return err
			}
		}
		if err := until(c, stream, changed); err != nil {
			return err
		}
	}
}

// announcement returns what to tell a watcher, and what is closed when that has changed.
func (c *Catalog) announcement(l *line) (*trystpb.WatchResponse, announced, <-chan struct{}) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	p := c.publications[l.name]
	if p == nil {
		return &trystpb.WatchResponse{}, announced{absent: true}, l.changed
	}
	m := &p.manifest
	return &trystpb.WatchResponse{Publication: m.Publication.proto()}, announced{epoch: m.Epoch, number: m.Number}, l.changed
}

// until waits for event. It returns an error when the stream, or the server, ends first.
func until[T any](c *Catalog, stream grpc.ServerStream, event <-chan T) error {
	select {
	case <-event:
		return nil
	case <-stream.Context().Done():
		return status.From(stream.Context().Err())
	case <-c.streams.stopping:
	case <-c.streams.closing:
	}
	return errClosed()
}

// Watchers returns how many streams of Watch are open.
func (c *Catalog) Watchers() int64 { return c.watchers.Load() }
