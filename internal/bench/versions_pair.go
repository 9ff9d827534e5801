package bench

import (
	"context"
	"time"
)

// versionsPair is a publisher with watchers, over one route.
type versionsPair struct {
	publisher versionsChild
	watchers  []versionsChild
	proxy     *slowProxy // nil without a slow network between
	setup     versionsSetup
	command   VersionsOptions
	number    uint64 // of the last version
}

// startPair starts a publisher and a watcher, which has the first version. The context that it returns ends when one of the
// two processes does.
func (r *versionsRun) startPair(ctx context.Context, route string, whole bool) (p *versionsPair, _ context.Context, err error) {
	return r.startPairOf(ctx, route, whole, r.model(route))
}

// startPairOf is startPair with a model of so many bytes.
func (r *versionsRun) startPairOf(ctx context.Context, route string, whole bool, bytes int64) (p *versionsPair, _ context.Context, err error) {
	p = &versionsPair{setup: versionsSetup{Route: route, Whole: whole}, command: r.VersionsOptions}
	made := p.setup
	made.Bytes, made.Tensors = bytes, r.Tensors
	if p.publisher, ctx, err = startVersionsChild(ctx, r.Command, made); err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	p.setup.From = p.publisher.Server
	if route == routeProxy {
		if p.proxy, err = newSlowProxy(ctx, p.publisher.Server, r.SlowBits); err != nil {
			return nil, nil, err
		}
		p.setup.From = p.proxy.address()
	}
	if ctx, err = p.watch(ctx); err != nil {
		return nil, nil, err
	}
	_, err = p.update(ctx) // at 80 Mbit/s it takes 55 s
	return p, ctx, err
}

// watch starts one more watcher.
func (p *versionsPair) watch(ctx context.Context) (context.Context, error) {
	w, ctx, err := startVersionsChild(ctx, p.command.Command, p.setup)
	if err == nil {
		p.watchers = append(p.watchers, w)
	}
	return ctx, err
}

// change makes the next version, and returns how long the publisher has waited for memory.
func (p *versionsPair) change(ctx context.Context, how change) (waited time.Duration, err error) {
	got, err := p.publisher.tell(ctx, versionsCommand{Change: &how})
	return got.Waited, err
}

// update publishes the next version, and waits until the watchers have it. It returns how long that took, until
// the last one had it, and the bytes at the first one.
func (p *versionsPair) update(ctx context.Context) (got versionSample, err error) {
	before := p.moved()
	began, err := p.publisher.tell(ctx, versionsCommand{Update: true})
	if err != nil {
		return got, err
	}
	p.number = began.Number
	for i, w := range p.watchers {
		came, err := w.tell(ctx, versionsCommand{Await: began.Number})
		if err != nil {
			return got, err
		}
		got.time = max(got.time, time.Duration(came.End-began.Begin))
		if i == 0 {
			got.bytes = came.Bytes
		}
	}
	if p.proxy != nil { // with all that is sent beside the content
		got.bytes = p.moved() - before
	}
	return got, nil
}

// next returns a side that makes a version, and then lets it come.
func (p *versionsPair) next(how change) versionSide {
	return func(ctx context.Context) (versionSample, error) {
		if _, err := p.change(ctx, how); err != nil {
			return versionSample{}, err
		}
		return p.update(ctx)
	}
}

func (p *versionsPair) moved() int64 {
	if p.proxy == nil {
		return 0
	}
	return p.proxy.moved()
}

// close ends all processes.
func (p *versionsPair) close() {
	for _, w := range p.watchers {
		w.close()
	}
	if p.proxy != nil {
		p.proxy.close()
	}
	p.publisher.close()
}

// versionSample is one version that came.
type versionSample struct {
	time  time.Duration
	bytes int64
}

func versionTime(s versionSample) float64  { return s.time.Seconds() }
func versionBytes(s versionSample) float64 { return float64(s.bytes) }

// versionSide lets one version come.
type versionSide func(context.Context) (versionSample, error)
