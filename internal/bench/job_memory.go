package bench

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/tryst-rdma/tryst/internal/checkpoint"
	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/status"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
)

// besideMemory compares pulls into memory of this process, over an open connection, with a copy of the
// content from memory into memory and its digest.
func (j *job) besideMemory(ctx context.Context, route string) (err error) {
	s, err := j.startServe(ctx, route)
	if err != nil {
		return err
	}
	defer s.stop()
	return j.besideMemoryOf(ctx, route, s.address)
}

// besideMemoryOf is besideMemory with a server at an address.
func (j *job) besideMemoryOf(ctx context.Context, route, address string) (err error) {
	c := server.Config{}
	c.Transport = grpctransport.Name
	if route != grpctransport.Name {
		c.Transport, c.Provider, c.Fallback = verbstransport.Name, route, server.FallbackNone
	}
	client, err := server.Dial(ctx, c, address, server.Options{})
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, client.Close(context.WithoutCancel(ctx)))
	}()
	content, err := os.ReadFile(j.model)
	if err != nil {
		return status.Errorf(status.Unavailable, "the checkpoint: %w", err)
	}
	into := make([]byte, len(content))
	o, a, b, err := j.turns(ctx,
		func(ctx context.Context) (sample, error) { return pullMemory(ctx, client) },
		func(context.Context) (sample, error) { return copyMemory(into, content), nil })
	if err != nil {
		return err
	}
	j.compare("pull-memory", route, CopyMemory, timeOf, o, a, b)
	return nil
}

// pullMemory pulls all tensors into memory, and releases each.
func pullMemory(ctx context.Context, c *server.Client) (sample, error) {
	begin := time.Now()
	var sum checkpoint.Summary
	for t, err := range c.Puller().Pull(ctx, checkpoint.PullRequest{Summary: &sum}) {
		if err != nil {
			return sample{}, err
		}
		t.Release()
	}
	if !sum.Verified {
		return sample{}, status.New(status.Internal, "the pull was not verified")
	}
	return sample{time: time.Since(begin)}, nil
}

// copyMemory copies content in pieces of the length of a pull's, and computes the digest of each.
func copyMemory(into, content []byte) sample {
	begin := time.Now()
	for len(content) > 0 {
		n := copy(into[:min(len(into), jobPiece)], content)
		xxhash.Sum64(into[:n])
		into, content = into[n:], content[n:]
	}
	return sample{time: time.Since(begin)}
}
