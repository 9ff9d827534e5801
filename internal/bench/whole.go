package bench

import (
	"bufio"
	"context"
	"errors"
	"os"
	"strconv"
	"strings"

	"github.com/tryst-rdma/tryst/internal/config"
)

// recvWhole pulls one tensor that no single message could hold, and checks its
// digest.
func (s *suite) recvWhole(ctx context.Context) (err error) {
	if free, known := memoryAvailable(); known && free < wholeMemory {
		s.say("left out: it takes %s of memory and %s are available", config.FormatSize(wholeMemory), config.FormatSize(free))
		r := rowOf(s.now.name, new(outcome)) // a row that is not ok: nothing is left out unseen
		r.Transport, r.Size, r.OK = s.now.transport, whole, false
		s.add(r)
		return nil
	}
	s.say("%s, digest checked", config.FormatSize(whole))
	p, ctx, err := s.pair(ctx, []int64{whole})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	sum, err := p.ours.pull(publication)
	if err != nil {
		return ended(ctx, err)
	}
	o := outcome{run: run{count: int64(sum.Tensors), time: sum.Transfer}}
	o.latencies.add(sum.Transfer, 1)
	r := rowOf(s.now.name, &o)
	r.Transport, r.Inflight = s.now.transport, 1
	r.moved(sum.Bytes)
	r.OK = sum.Verified && sum.Tensors == 1 && sum.Bytes == whole
	s.add(r)
	return nil
}

// memoryAvailable returns how much memory new processes may take; false where
// the system does not say.
func memoryAvailable() (bytes int64, known bool) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0, false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text()) // "MemAvailable:   23018340 kB"
		if len(fields) == 3 && fields[0] == "MemAvailable:" {
			kib, err := strconv.ParseInt(fields[1], 10, 64)
			return kib << 10, err == nil
		}
	}
	return 0, false
}
