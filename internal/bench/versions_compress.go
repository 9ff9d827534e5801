package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os/exec"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// The compressors of the XOR of two versions, at level 1.
const (
	ZstdGo = "zstd-1 of XOR, in Go" // klauspost/compress, SpeedFastest
	ZstdC  = "zstd-1 of XOR, in C"  // the command zstd, if there is one
)

// compressedXOR returns the length of the XOR of two versions as one stream, by compressor.
func compressedXOR(ctx context.Context, a, b []*tensor.Tensor) (map[string]int64, error) {
	all := make(map[string]int64)
	var n lengthWriter
	w, err := zstd.NewWriter(&n, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.EncoderLevelFromZstd(1)))
	if err == nil {
		if err = writeXOR(w, a, b); err == nil {
			err = w.Close()
		}
	}
	if err != nil {
		return nil, status.Errorf(status.Internal, "zstd: %w", err)
	}
	all[ZstdGo] = int64(n)
	if all[ZstdC], err = compressedByC(ctx, a, b); err != nil {
		delete(all, ZstdC)
	}
	return all, nil
}

// compressedByC is what the command makes of it.
func compressedByC(ctx context.Context, a, b []*tensor.Tensor) (int64, error) {
	var (
		n    lengthWriter
		said strings.Builder
	)
	c := exec.CommandContext(ctx, "zstd", "-1", "-c", "-q")
	c.Stdout, c.Stderr = &n, &said
	in, err := c.StdinPipe()
	if err != nil {
		return 0, err
	}
	if err := c.Start(); err != nil {
		return 0, err
	}
	wrote := errors.Join(writeXOR(in, a, b), in.Close())
	if err := c.Wait(); err != nil {
		return 0, status.Errorf(status.Unavailable, "zstd: %w: %s", err, &said)
	}
	return int64(n), wrote
}

// writeXOR writes the XOR of two versions.
func writeXOR(w io.Writer, a, b []*tensor.Tensor) error {
	var block []byte
	for i := range a {
		x, y := a[i].Bytes(), b[i].Bytes()
		for len(x) > 0 {
			n := min(len(x), xorBlock)
			block = appendXOR(block[:0], x[:n], y[:n])
			if _, err := w.Write(block); err != nil {
				return err
			}
			x, y = x[n:], y[n:]
		}
	}
	return nil
}

func appendXOR(to, x, y []byte) []byte {
	for ; len(x) >= 8; x, y = x[8:], y[8:] {
		to = binary.LittleEndian.AppendUint64(to, binary.LittleEndian.Uint64(x)^binary.LittleEndian.Uint64(y))
	}
	for i := range x {
		to = append(to, x[i]^y[i])
	}
	return to
}

// lengthWriter counts what is written.
type lengthWriter int64

func (n *lengthWriter) Write(b []byte) (int, error) {
	*n += lengthWriter(len(b))
	return len(b), nil
}
