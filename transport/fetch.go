package transport

import (
	"context"

	"github.com/tryst-rdma/tryst/rendezvous"
)

// fetch is one receive that the table of answers has in the source.
type fetch struct {
	kept *Kept
	id   uint64
	ask  Ask

	ctx    context.Context // ends when the receive is taken back, or has ended
	cancel context.CancelFunc
}

// begin asks the source.
func (f *fetch) begin() { f.kept.source.RecvLocalAsync(f.ctx, f.ask.Step, f.ask.Key, f.end) }

// end is what the source calls.
func (f *fetch) end(v rendezvous.Value, _ rendezvous.Args, err error) {
	defer f.kept.work.Done()
	f.cancel()
	f.kept.fetched(f, Answer{Value: v, Err: err})
}
