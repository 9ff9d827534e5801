package httpserver

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/tryst-rdma/tryst/server/internal/listen"
	"github.com/tryst-rdma/tryst/server/internal/overview"
)

// eventsHandler serves the status as a stream of events, one at once, one each eventInterval and one when the channel of changed
// is closed, until streamTime has passed or closing is closed.
func eventsHandler(status func(context.Context) (overview.Encoded, error), changed func() <-chan struct{}, closing <-chan struct{}, refuse refuser) http.Handler {
	of := &streamCounts{ofAddress: make(map[string]int)}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		leave, ok := of.enter(r.RemoteAddr)
		if !ok {
			refuse(w, r, listen.RefusedByCalls, http.StatusServiceUnavailable, "there are too many streams of events already; try again later")
			return
		}
		defer leave()
		ctx, cancel := context.WithTimeout(r.Context(), streamTime)
		defer cancel()
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Cache-Control", "no-store")
		sendEvents(ctx, w, status, changed, closing)
	})
}

// sendEvents sends events until ctx ends, closing is closed, or the client does not read.
func sendEvents(ctx context.Context, w http.ResponseWriter, status func(context.Context) (overview.Encoded, error), changed func() <-chan struct{}, closing <-chan struct{}) {
	control := http.NewResponseController(w)
	tick := time.NewTicker(eventInterval)
	defer tick.Stop()
	var event bytes.Buffer
	early := false // the last event came before its time: the next one does not
	for first := true; ; first = false {
		next := changed() // before the status, so that no change is missed
		if early {
			next = nil
		}
		now, err := status(ctx)
		if err != nil {
			return
		}
		event.Reset()
		event.WriteString("data: ")
		if first {
			event.Write(now.Full)
		} else {
			event.Write(now.Event)
		}
		event.WriteString("\n\n")
		_ = control.SetWriteDeadline(time.Now().Add(eventTimeout)) // only the writers of tests have no deadline
		if _, err := w.Write(event.Bytes()); err != nil {
			return
		}
		if err := control.Flush(); err != nil {
			return
		}
		select {
		case <-tick.C:
			early = false
		case <-next:
			early = true
		case <-ctx.Done():
			return
		case <-closing:
			return
		}
	}
}

// streamCounts counts the streams that are open.
type streamCounts struct {
	mu        sync.Mutex // guards what follows
	all       int
	ofAddress map[string]int
}

// enter counts a stream of a client until leave is called. ok is false when there are too many.
func (c *streamCounts) enter(remote string) (leave func(), ok bool) {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		host = remote
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all >= maxStreams || c.ofAddress[host] >= maxStreamsOfAddress {
		return nil, false
	}
	c.all++
	c.ofAddress[host]++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.all--
		if c.ofAddress[host]--; c.ofAddress[host] == 0 {
			delete(c.ofAddress, host)
		}
	}, true
}
