package checkpoint

import (
	"errors"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/status"
)

func TestOutageLastsAsLongAsItMay(t *testing.T) {
	start := time.Unix(1000, 0)
	gone, other := status.New(status.Unavailable, "gone"), status.New(status.NotFound, "no")
	o := outage{retry: time.Minute}
	now, tries := start, 0
	for {
		pause, first, final := o.failed(now, gone)
		if first != (tries == 0) {
			t.Fatalf("try %d: first %v", tries, first)
		}
		if final != nil {
			if status.CodeOf(final) != status.Unavailable || status.From(final).Message() != "gone; it was tried again for 1m0s" {
				t.Errorf("got %v", final)
			}
			break
		}
		if pause <= 0 || pause > retryMax*3/2 {
			t.Fatalf("try %d: a pause of %v", tries, pause)
		}
		now = now.Add(pause)
		tries++
	}
	if d := now.Sub(start); d != time.Minute || tries < 20 || tries > 200 {
		t.Errorf("%d tries in %v", tries, d)
	}
	// Progress ends the outage, so that the next one may last as long again.
	o.over()
	if _, first, final := o.failed(now, gone); !first || final != nil {
		t.Errorf("after progress: first %v, %v", first, final)
	}
	if _, _, final := o.failed(now, other); !errors.Is(final, other) {
		t.Errorf("an error that does not pass: %v", final)
	}
	none := outage{}
	if _, first, final := none.failed(now, gone); first || !errors.Is(final, gone) {
		t.Errorf("without retry: first %v, %v", first, final)
	}
}
