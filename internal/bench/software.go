package bench

import (
	"context"
	"errors"

	"github.com/tryst-rdma/tryst/internal/config"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
)

// softwareTargets are what receives over verbs should reach with the device in
// software, several in flight: by baseline and size.
var softwareTargets = map[string]map[int64]float64{
	UDPLoop: {1 << 20: 0.75, 16 << 20: 0.75},
	OwnGRPC: {1 << 20: 1.15, 16 << 20: 1.15},
}

func softwareTarget(baseline string, size int64, inflight int) float64 {
	if inflight < 2 {
		return 0
	}
	return softwareTargets[baseline][size]
}

// smallTarget is the median of one small receive over verbs, beside that over gRPC.
const smallTarget = 0.6

// withGRPC is a second process, and beside the receiver over verbs one over gRPC, with
// the same tensors.
func (s *suite) withGRPC(ctx context.Context, sizes []int64, do func(ctx context.Context, verbs, grpc *receiver, ours, theirs []target) error) (err error) {
	p, ctx, err := s.pair(ctx, sizes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	client := s.client()
	client.Transport = grpctransport.Name
	g, err := dialReceiver(ctx, client, p.child.Server, p.pool)
	if err != nil {
		return ended(ctx, err)
	}
	defer func() { err = errors.Join(err, g.close()) }()
	ours, err := p.ours.targets(sizes)
	if err != nil {
		return ended(ctx, err)
	}
	theirs, err := g.targets(sizes)
	if err != nil {
		return ended(ctx, err)
	}
	return ended(ctx, do(ctx, p.ours, g, ours, theirs))
}

// besideGRPC sets receives over verbs against those over gRPC, from the same process.
func (s *suite) besideGRPC(ctx context.Context) error {
	return s.withGRPC(ctx, s.Sizes, func(ctx context.Context, v, g *receiver, ours, theirs []target) error {
		return s.eachBesideGRPC(ctx, v, g, ours, theirs, func(size int64, inflight int) float64 { return softwareTarget(OwnGRPC, size, inflight) })
	})
}

// eachBesideGRPC does so for each tensor and number in flight.
func (s *suite) eachBesideGRPC(ctx context.Context, v, g *receiver, ours, theirs []target, aim func(size int64, inflight int) float64) error {
	for i, t := range ours {
		for _, inflight := range s.Inflight {
			s.say("%s, %d in flight, beside %s", config.FormatSize(t.size), inflight, OwnGRPC)
			o, own, err := s.contest().compare(ctx, load(inflight, 1, v.receive(t, inflight)), load(inflight, 1, g.receive(theirs[i], inflight)))
			if err != nil {
				return err
			}
			s.addPair(&o, &own, OwnGRPC, Higher, aim(t.size, inflight), func(r *Row) {
				r.Inflight = inflight
				r.moved(t.size)
				r.providedBy(v)
			})
		}
	}
	return nil
}

// smallBesideGRPC sets one small receive over verbs, from the request to the callback,
// against one over gRPC.
func (s *suite) smallBesideGRPC(ctx context.Context) error {
	return s.withGRPC(ctx, []int64{smallSize}, func(ctx context.Context, v, g *receiver, ours, theirs []target) error {
		s.say("%s, beside %s", config.FormatSize(smallSize), OwnGRPC)
		o, own, err := s.contest().compare(ctx, v.callback(ours[0]), g.callback(theirs[0]))
		if err != nil {
			return err
		}
		o.ratio, own.ratio = o.ratio.inverse(), own.ratio.inverse()
		s.addPair(&o, &own, OwnGRPC, Lower, smallTarget, func(r *Row) {
			r.Inflight, r.Size = 1, smallSize
			r.providedBy(v)
		})
		return nil
	})
}

// providedBy says whose device moved the bytes of a row of ours.
func (r *Row) providedBy(from *receiver) {
	if !r.itself {
		r.Provider = from.provider()
	}
}

// provider is the provider that moves the bytes; "" for gRPC.
func (r *receiver) provider() string {
	s, ok := r.client.Verbs()
	if !ok {
		return ""
	}
	return s.Name()
}
