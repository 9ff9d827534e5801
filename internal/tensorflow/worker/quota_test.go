package worker

import (
	"fmt"
	"testing"

	"github.com/tryst-rdma/tryst/status"
)

// TestQuotaForgetsHosts: hosts without waiting receives use no memory.
func TestQuotaForgetsHosts(t *testing.T) {
	q := newQuota(2, 100)
	for i := range 1000 {
		address := fmt.Sprintf("10.0.%d.%d:%d", i/256, i%256, i+1)
		first, err := q.take(address, 60)
		if err != nil {
			t.Fatal(err)
		}
		second, err := q.take(address, 40)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := q.take(address, 0); status.CodeOf(err) != status.ResourceExhausted {
			t.Fatalf("a third receive: %v", err)
		}
		first()
		if _, err := q.take(address, 61); status.CodeOf(err) != status.ResourceExhausted {
			t.Fatalf("a key that is too long: %v", err)
		}
		third, err := q.take(address, 60)
		if err != nil {
			t.Fatalf("room that was given back: %v", err)
		}
		second()
		third()
	}
	if len(q.count) != 0 {
		t.Errorf("%d hosts are counted, and none has anything waiting", len(q.count))
	}
}
