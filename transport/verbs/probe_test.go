package verbstransport_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/status"
)

// TestProbe: a probe reports that full packets pass, and does not change the channel.
func TestProbe(t *testing.T) {
	p := newPair(t, clusterOptions{})
	first := p.until("verbs at first", isUp)
	ctx, cancel := context.WithTimeout(t.Context(), p.slow)
	defer cancel()
	got, err := p.to.transport.Probe(ctx, p.from.task)
	if err != nil {
		t.Fatal(err)
	}
	if got.GID != p.address(p.from).GID || got.MTU != 4096 || got.Bytes < 2*4096 || got.Generation != first.Generation {
		t.Errorf("%+v", got)
	}
	p.exchange()
	if l := p.connection(); l.Generation != first.Generation || l.Stats.Received != 1 {
		t.Errorf("after the probe: %+v", l)
	}
}

// TestProbeWhoseFullPacketsAreLost: when small messages pass and full packets do not, the
// error says so and what to do.
func TestProbeWhoseFullPacketsAreLost(t *testing.T) {
	p := newPair(t, clusterOptions{})
	p.until("verbs at first", isUp)
	ctx, cancel := context.WithTimeout(t.Context(), p.slow)
	defer cancel()
	lost := p.to.c.fabric.OneWay(p.to.task.String(), p.from.task.String()).CutAfter(4096)
	_, err := p.to.transport.Probe(ctx, p.from.task)
	<-lost
	if err == nil || !strings.Contains(err.Error(), "smaller packets") || !strings.Contains(err.Error(), "try 2048 as the setting rdma.mtu") ||
		!strings.Contains(err.Error(), "transport retry counter exceeded") {
		t.Errorf("the probe returns %v", err)
	}
}

// TestProbeWithoutAnyPacket: when no packet passes, the probe returns the error of the
// queue pair, and soon.
func TestProbeWithoutAnyPacket(t *testing.T) {
	p := newPair(t, clusterOptions{})
	p.until("verbs at first", isUp)
	p.to.c.fabric.Wires(p.to.task.String(), p.from.task.String()).Cut()
	p.exchange() // detects the broken path
	ctx, cancel := context.WithTimeout(t.Context(), p.slow)
	defer cancel()
	_, err := p.to.transport.Probe(ctx, p.from.task)
	if err == nil || !strings.Contains(err.Error(), "transport retry counter exceeded") || !strings.Contains(err.Error(), "UDP port 4791") || ctx.Err() != nil {
		t.Errorf("the probe returns %v; %v", err, ctx.Err())
	}
}

// TestProbeOfNobody: a probe of a peer that never comes ends with its context. One of a
// task that cannot exist ends at once.
func TestProbeOfNobody(t *testing.T) {
	p := newPair(t, clusterOptions{})
	p.until("verbs at first", isUp)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := p.to.transport.Probe(ctx, cluster.Task{Job: "worker", Index: 7})
	if err == nil || ctx.Err() == nil {
		t.Errorf("a task that is not there: %v, %v", err, ctx.Err())
	}
	ctx, cancel = context.WithTimeout(t.Context(), p.slow)
	defer cancel()
	start := time.Now()
	if _, err := p.to.transport.Probe(ctx, p.to.task); status.CodeOf(err) != status.InvalidArgument || time.Since(start) > p.slow/2 {
		t.Errorf("itself: %v after %v", err, time.Since(start))
	}
}
