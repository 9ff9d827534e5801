package checkpoint

import (
	"context"
	"strconv"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/tryst-rdma/tryst/status"
)

// PullEnd is a pull that has ended, as its server sees it.
type PullEnd struct {
	// Code is OK if all that the puller wanted was handed to the transport, NotFound if what it asked for was withdrawn,
	// Cancelled if it ended the pull before that, and otherwise the code of the error with which the server ended it.
	Code status.Code
	// Took is zero for a pull that was refused.
	Took time.Duration
}

// Complete reports whether the pull was complete.
func (e PullEnd) Complete() bool { return e.Code == status.OK }

// outcome names the end of a pull in one word, for the log.
func (e PullEnd) outcome() string {
	switch e.Code {
	case status.OK:
		return "complete"
	case status.NotFound:
		return "withdrawn"
	case status.Cancelled:
		return "left"
	}
	return "failed"
}

// code returns how a pull has ended that began. failure is the server's error.
func (n *pullCount) code(failure error) status.Code {
	switch {
	case failure != nil:
		return status.CodeOf(failure)
	case n.missed.Load():
		return status.NotFound
	case n.sent.Load() >= n.Bytes:
		return status.OK
	}
	return status.Cancelled
}

// reportEnd reports the end of a pull, unless it is a measurement.
func (c *Catalog) reportEnd(ctx context.Context, e PullEnd) {
	if c.o.PullEnded != nil && !isMeasurement(ctx) {
		c.o.PullEnded(e)
	}
}

// isMeasurement reports whether the call of Open is that of a measurement.
func isMeasurement(ctx context.Context) bool {
	return len(metadata.ValueFromIncomingContext(ctx, measurementKey)) > 0
}

// wantedBytes returns how many bytes the puller of a call of Open wants; all of them if it does not say. A pull that
// resumes has some of them.
func wantedBytes(ctx context.Context, all int64) int64 {
	if said := metadata.ValueFromIncomingContext(ctx, wantedKey); len(said) == 1 {
		if n, err := strconv.ParseInt(said[0], 10, 64); err == nil && n >= 0 && n <= all {
			return n
		}
	}
	return all
}

// wants adds to the call of Open how many bytes it is for.
func wants(ctx context.Context, bytes int64) context.Context {
	return metadata.AppendToOutgoingContext(ctx, wantedKey, strconv.FormatInt(bytes, 10))
}

// wantedBytes returns how many bytes of the missing tensors have not come.
func (pl *pull) wantedBytes(missing []int, to sink) (sum int64) {
	for _, i := range missing {
		all := pl.manifest.Entries[i].Bytes
		if all <= pieceBytes {
			sum += all
			continue
		}
		for off := int64(0); off < all; off += pieceBytes {
			x := piece{off, min(pieceBytes, all-off)}
			if !to.has(part{i: i, piece: x}) {
				sum += x.n
			}
		}
	}
	return sum
}

const (
	// measurementKey is the metadata of the call Open of a pull that is a measurement, and wantedKey that with the bytes
	// that a pull wants (PROTOCOL.md section 7).
	measurementKey = "tryst-measurement"
	wantedKey      = "tryst-wanted-bytes"
)
