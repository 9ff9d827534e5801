package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/tryst-rdma/tryst"
	"github.com/tryst-rdma/tryst/tensor"
)

// seen is what a rollout tells of a version, as a line of JSON.
type seen struct {
	Rollout string
	Number  uint64
	Lag     time.Duration // from when the trainer has made it; of one host, whose processes have one clock
	Bytes   int64         // that were carried
	Route   string
}

// follow takes each newest version into use until ctx ends.
func follow(ctx context.Context, out io.Writer, o options) error {
	c, err := tryst.Dial(ctx, o.address, o.config())
	if err != nil {
		return err
	}
	defer c.Close(context.WithoutCancel(ctx))
	var serving *tryst.Version // its memory stays as it is until its Release
	defer func() {
		if serving != nil {
			serving.Release()
		}
	}()
	lines := json.NewEncoder(out)
	for v, err := range c.Watch(ctx, publication) {
		if err != nil {
			return ended(ctx, err)
		}
		if serving != nil {
			serving.Release() // the next version comes into its memory
		}
		serving = v
		s, err := look(v)
		if err != nil {
			return err
		}
		s.Rollout = o.name
		if err := lines.Encode(s); err != nil {
			return err
		}
		select { // a rollout computes here with serving.Tensors
		case <-time.After(o.work):
		case <-ctx.Done():
		}
	}
	return nil
}

// look tells how a version came.
func look(v *tryst.Version) (seen, error) {
	s := seen{Number: v.Number}
	for _, t := range v.Tensors {
		if t.Name() != madeName {
			continue
		}
		made, err := tensor.Values[int64](t)
		if err != nil || len(made) != 1 {
			return s, fmt.Errorf("the tensor %q of version %d is no time: %v", madeName, v.Number, t)
		}
		s.Lag = time.Since(time.Unix(0, made[0]))
	}
	s.Bytes = v.Summary.Received() // what differs from the version that the rollout has, or all of it
	for _, c := range v.Summary.Carried[:min(1, len(v.Summary.Carried))] {
		s.Route = strings.TrimSpace(c.Transport + " " + c.Device)
	}
	return s, nil
}
