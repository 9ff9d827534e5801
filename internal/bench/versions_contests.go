package bench

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/tryst-rdma/tryst/status"
)

// besidePublish compares a version by Update and Watch with one by PublishTensors and Pull. All elements change, so that
// both transfer the whole.
func (r *versionsRun) besidePublish(ctx context.Context, route string) error {
	p, ctx, err := r.startPair(ctx, route, false)
	if err != nil {
		return err
	}
	defer p.close()
	ours, first, second, err := turns(ctx, r.Pairs, p.next(change{Share: 1, How: changeRandom}), p.publishPull)
	if err != nil {
		return ended(ctx, err)
	}
	r.times(versionsRow{name: "versions-whole", route: route, baseline: PublishPull, target: versionsTarget("versions-whole", ""), size: r.model(route)}, ours, first, second)
	return nil
}

// publishPull publishes the next version as tensors that do not change, and has the watcher pull them.
func (p *versionsPair) publishPull(ctx context.Context) (got versionSample, err error) {
	if _, err := p.change(ctx, change{Share: 1, How: changeRandom}); err != nil {
		return got, err
	}
	published, err := p.publisher.tell(ctx, versionsCommand{Publish: true})
	if err != nil {
		return got, err
	}
	pulled, err := p.watchers[0].tell(ctx, versionsCommand{Pull: true})
	if err != nil {
		return got, err
	}
	got.time = time.Duration(published.End - published.Begin + pulled.End - pulled.Begin)
	_, err = p.publisher.tell(ctx, versionsCommand{Unpublish: true})
	return got, err
}

// randomBesideWhole compares versions of which all elements change at random with and without deltas.
func (r *versionsRun) randomBesideWhole(ctx context.Context, route string) error {
	return r.besideWhole(ctx, "versions-random", route, change{Share: 1, How: changeRandom}, versionsTarget("versions-random", ""))
}

// besideWhole compares the time of versions with and without deltas.
func (r *versionsRun) besideWhole(ctx context.Context, name, route string, how change, target float64) error {
	pairs := r.Pairs
	if route == routeProxy {
		pairs = min(pairs, fewPairs)
	}
	ours, first, second, err := r.withAndWithout(ctx, route, how, pairs)
	if err != nil {
		return err
	}
	r.times(versionsRow{name: name, route: route, baseline: WholeVersion, target: target, size: r.model(route), changed: &how.Share}, ours, first, second)
	return nil
}

// withAndWithout lets versions come with deltas, and without, in turn.
func (r *versionsRun) withAndWithout(ctx context.Context, route string, how change, pairs int) (ours, first, second []versionSample, err error) {
	deltas, ctx, err := r.startPair(ctx, route, false)
	if err != nil {
		return nil, nil, nil, err
	}
	defer deltas.close()
	whole, ctx, err := r.startPair(ctx, route, true)
	if err != nil {
		return nil, nil, nil, err
	}
	defer whole.close()
	ours, first, second, err = turns(ctx, pairs, deltas.next(how), whole.next(how))
	return ours, first, second, ended(ctx, err)
}

// bytes measures what the watcher receives of versions that differ in one of a hundred elements, beside zstd and beside
// the whole, and what it receives of one that does not differ. The model is the large one.
func (r *versionsRun) bytes(ctx context.Context, route string) error {
	p, ctx, err := r.startPairOf(ctx, route, false, r.model(""))
	if err != nil {
		return err
	}
	defer p.close()
	for _, how := range []string{changeLow, changeMantissa, changeRandom} {
		if err := r.bytesOf(ctx, p, route, change{Share: onePercent, How: how}); err != nil {
			return ended(ctx, err)
		}
	}
	return ended(ctx, r.unchanged(ctx, p, route))
}

func (r *versionsRun) bytesOf(ctx context.Context, p *versionsPair, route string, how change) error {
	if _, err := p.change(ctx, how); err != nil {
		return err
	}
	compressed, err := p.publisher.tell(ctx, versionsCommand{Compress: true})
	if err != nil {
		return err
	}
	got, err := p.update(ctx)
	if err != nil {
		return err
	}
	name := "versions-bytes-" + how.How
	beside := map[string]int64{WholeVersion: r.model("")}
	maps.Copy(beside, compressed.Compressed)
	for _, k := range []string{ZstdC, ZstdGo, WholeVersion} {
		if beside[k] == 0 {
			r.say("%s: %s is left out: there is no command zstd", name, k)
			continue
		}
		w := versionsRow{name: name, route: route, baseline: k, target: versionsTarget(name, k), size: got.bytes, changed: &how.Share}
		r.value(w, []float64{float64(got.bytes)}, float64(beside[k]))
	}
	return nil
}

// unchanged measures a version that differs in nothing.
func (r *versionsRun) unchanged(ctx context.Context, p *versionsPair, route string) error {
	none := change{How: changeLow}
	var all []versionSample
	for range fewPairs {
		got, err := p.next(none)(ctx)
		if err != nil {
			return err
		}
		all = append(all, got)
	}
	var bytes []float64
	for _, s := range all {
		bytes = append(bytes, versionBytes(s))
	}
	w := versionsRow{name: "versions-unchanged", route: route, baseline: WholeVersion, target: versionsTarget("versions-unchanged", ""), size: all[0].bytes, changed: &none.Share}
	r.value(w, bytes, float64(r.model("")), all...)
	return nil
}

// memory measures the most memory of both processes beside the model, while it changes as a whole once, and then a little.
func (r *versionsRun) memory(ctx context.Context, route string) error {
	p, ctx, err := r.startPair(ctx, route, false)
	if err != nil {
		return err
	}
	defer p.close()
	processes := []versionsChild{p.publisher, p.watchers[0]}
	for _, c := range processes {
		if _, err := c.tell(ctx, versionsCommand{Watch: true}); err != nil {
			return ended(ctx, err)
		}
	}
	for i := range memoryUpdates {
		how := change{Share: onePercent, How: changeLow}
		if i == 0 {
			how = change{Share: 1, How: changeRandom}
		}
		if _, err := p.next(how)(ctx); err != nil {
			return ended(ctx, err)
		}
	}
	for i, c := range processes {
		got, err := c.tell(ctx, versionsCommand{Peak: true})
		if err != nil {
			return ended(ctx, err)
		}
		name := "versions-memory-" + []string{"publisher", "watcher"}[i]
		r.value(versionsRow{name: name, route: route, baseline: TheModel, target: versionsTarget("versions-memory", ""), size: got.Peak}, []float64{float64(got.Peak)}, float64(r.model(route)))
	}
	return nil
}

// back measures when the memory of a withdrawn publication comes back after a puller was stopped.
func (r *versionsRun) back(ctx context.Context, route string) error {
	var took []time.Duration
	for range min(r.Pairs, backTries) {
		d, err := r.backOnce(ctx, route)
		if err != nil {
			return err
		}
		took = append(took, d)
	}
	var seconds []float64
	for _, d := range took {
		seconds = append(seconds, d.Seconds())
	}
	w := versionsRow{name: "versions-back", route: route, baseline: TheBound, target: versionsTarget("versions-back", ""), size: r.model(route)}
	r.value(w, seconds, backBounds[route].Seconds(), durations(took)...)
	return nil
}

func (r *versionsRun) backOnce(ctx context.Context, route string) (time.Duration, error) {
	p, ctx, err := r.startPair(ctx, route, false)
	if err != nil {
		return 0, err
	}
	defer p.close()
	puller := p.watchers[0]
	p.watchers = nil
	defer puller.kill() // it is stopped
	if _, err := puller.tell(ctx, versionsCommand{Hold: true}); err != nil {
		return 0, ended(ctx, err)
	}
	if err := puller.signal(syscall.SIGSTOP); err != nil {
		return 0, err
	}
	got, err := p.publisher.tell(ctx, versionsCommand{Withdraw: true})
	return got.Waited, ended(ctx, err)
}

// shares measures bytes and time by the share of elements that changed, for the plot.
func (r *versionsRun) shares(ctx context.Context, route string) error {
	for _, share := range r.Shares {
		r.say("versions-share over %s: %s of the elements", route, percent(share))
		ours, first, second, err := r.withAndWithout(ctx, route, change{Share: share, How: changeLow}, min(r.Pairs, slowPairs))
		if err != nil {
			return err
		}
		w := versionsRow{name: "versions-share-time-" + percent(share), route: route, baseline: WholeVersion, size: r.model(route), changed: &share}
		r.times(w, ours, first, second)
		w.name, w.size = "versions-share-bytes-"+percent(share), slices.MaxFunc(ours, func(a, b versionSample) int { return int(a.bytes - b.bytes) }).bytes
		var bytes []float64
		for _, s := range ours {
			bytes = append(bytes, versionBytes(s))
		}
		r.value(w, bytes, float64(r.model(route)))
	}
	return nil
}

func percent(share float64) string { return strconv.FormatFloat(100*share, 'g', 4, 64) + "%" }

// stopped compares how late versions come to two rollouts, with and without a third one that is stopped in its pull.
func (r *versionsRun) stopped(ctx context.Context, route string) error {
	p, ctx, err := r.startPair(ctx, route, false)
	if err != nil {
		return err
	}
	defer p.close()
	if ctx, err = p.watch(ctx); err != nil {
		return err
	}
	var lags [2][]time.Duration // of each version, without and with it
	side := func(i int) func(context.Context) (versionSample, error) {
		return func(ctx context.Context) (s versionSample, err error) {
			all, err := r.lags(ctx, p, i == 1)
			if err != nil {
				return s, err
			}
			lags[i] = append(lags[i], all...)
			slices.Sort(all)
			s.time = all[len(all)/2]
			return s, nil
		}
	}
	ours, first, second, err := turns(ctx, min(r.Pairs, slowPairs), side(1), side(0))
	if err != nil {
		return ended(ctx, err)
	}
	r.times(versionsRow{name: "versions-stopped", route: route, baseline: WithoutIt, target: versionsTarget("versions-stopped", ""), size: r.model(route)}, ours, first, second)
	// The longest lag is that of the version whose memory a stopped puller has. It is reported.
	most := slices.Max(lags[1])
	r.value(versionsRow{name: "versions-stopped-most", route: route, baseline: WithoutIt, size: r.model(route)},
		[]float64{most.Seconds()}, slices.Max(lags[0]).Seconds(), durations(lags[1])...)
	return nil
}

// lags returns how late each version came to the last one of the rollouts in a time, in which one more is
// stopped, in its pull, if there shall be one. What the publisher waits for memory belongs to it.
func (r *versionsRun) lags(ctx context.Context, p *versionsPair, stop bool) (all []time.Duration, err error) {
	if stop {
		w, _, err := startVersionsChild(ctx, p.command.Command, p.setup)
		if err != nil {
			return nil, err
		}
		defer w.kill()
		if _, err := w.tell(ctx, versionsCommand{Hold: true}); err != nil {
			return nil, err
		}
		if err := w.signal(syscall.SIGSTOP); err != nil {
			return nil, err
		}
		defer func() { _ = w.signal(syscall.SIGCONT) }() // before it is killed
	}
	tick := time.NewTicker(r.Every)
	defer tick.Stop()
	for begin := time.Now(); time.Since(begin) < r.Stop; {
		waited, err := p.change(ctx, change{Share: onePercent, How: changeLow})
		if err != nil {
			return nil, err
		}
		got, err := p.update(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, waited+got.time)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	if len(all) == 0 {
		return nil, status.New(status.Internal, "no version came")
	}
	return all, nil
}
