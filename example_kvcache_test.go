package tryst_test

import (
	"context"
	"fmt"
	"log"

	"github.com/tryst-rdma/tryst"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

const (
	kvBlocks     = 4
	kvBlockBytes = 64 << 10
)

// A decode host asks a prefill host for the blocks of a KV cache. They come into a cache that it allocated
// once, as a whole. When it does not want a sequence any more, it cancels the blocks that are missing.
func Example_kvCache() {
	ctx := context.Background()
	tasks := startVerbs(ctx)
	defer tasks.close(ctx)
	prefill, decode := tasks.a, tasks.b

	cache, err := tensor.Make[byte](decode.Allocator(), kvBlocks, kvBlockBytes)
	if err != nil {
		log.Fatal(err)
	}
	defer cache.Release()               // at any time, also while a cancelled receive is cleaned up
	var blocks [kvBlocks]*tensor.Tensor // parts of cache
	var edges [kvBlocks]*tryst.Edge     // prepared once, used for each sequence
	for i := range blocks {
		if blocks[i], err = cache.Index(int64(i)); err != nil {
			log.Fatal(err)
		}
		defer blocks[i].Release()
		if edges[i], err = decode.Edge("/job:worker/task:0", fmt.Sprintf("kv/%d", i)); err != nil {
			log.Fatal(err)
		}
	}

	sequence := decode.NewStep() // its id goes to the prefill host with the request
	want, cancel := context.WithCancel(ctx)
	var ended [kvBlocks]chan error
	for i, e := range edges {
		ended[i] = make(chan error, 1)
		e.RecvIntoAsync(want, sequence, blocks[i], func(f tryst.Filled, err error) {
			if err == nil && !f.ZeroCopy {
				err = status.Errorf(status.Internal, "block %d was copied, from %s", i, f.Transport)
			}
			ended[i] <- err
		})
	}
	computeBlocks(prefill, sequence.ID(), 0, 1)
	for i := range 2 {
		fmt.Println("block", i, <-ended[i], blocks[i].Bytes()[0])
	}
	cancel() // blocks 2 and 3 are not wanted any more
	for i := 2; i < kvBlocks; i++ {
		fmt.Println("block", i, status.CodeOf(<-ended[i]))
	}
	sequence.Close()
	prefill.Step(sequence.ID()).Close()

	// The next sequence uses the same memory. That of a cancelled block is free when the prefill host
	// cannot write to it any more; until then its reference is not the only one.
	next := decode.NewStep()
	defer next.Close()
	for _, block := range blocks {
		if !block.Buffer().Unique() {
			continue
		}
		computeBlocks(prefill, next.ID(), 3)
		_, err := edges[3].RecvInto(ctx, next, block)
		fmt.Println("next", err, block.Bytes()[0])
		break
	}
	prefill.Step(next.ID()).Close()
	// Output:
	// block 0 <nil> 100
	// block 1 <nil> 101
	// block 2 Cancelled
	// block 3 Cancelled
	// next <nil> 103
}

// computeBlocks is what the prefill host does for a sequence.
func computeBlocks(prefill *tryst.Server, sequence int64, blocks ...int) {
	step := prefill.Step(sequence)
	for _, i := range blocks {
		t, err := tensor.Make[byte](prefill.SendAllocator(), kvBlockBytes)
		if err != nil {
			log.Fatal(err)
		}
		t.Bytes()[0] = byte(100 + i)
		if err := step.Send("/job:worker/task:1", fmt.Sprintf("kv/%d", i), t); err != nil {
			log.Fatal(err)
		}
		t.Release()
	}
}
