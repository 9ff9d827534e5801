package regmem

import (
	"bytes"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

// TestIdlePagesGoBackToTheSystem: free memory that stays registered with a device in software loses
// its pages, and then reads as zero. Tensors in the same arena keep their content. A device that
// locks pages keeps them.
func TestIdlePagesGoBackToTheSystem(t *testing.T) {
	for _, software := range []bool{false, true} {
		m, _ := newMemoryOn(t, verbs.DeviceInfo{Name: "fake0", GoMemory: software}, Options{Arena: 4 * mib, SendLimit: 4 * mib, RecvLimit: 4 * mib, Start: 4 * mib})
		kept, freed := allocate(t, m, mib), allocate(t, m, mib)
		content := bytes.Repeat([]byte{7}, mib)
		copy(kept.Bytes(), content)
		copy(freed.Bytes(), content)
		freed.Release()
		now, _ := sweepFor(t, m, zero, DefaultIdle-time.Second)
		again := allocate(t, m, mib) // restarts the time
		if again.Bytes()[mib/2] != 7 {
			t.Error("pages went too early")
		}
		again.Release()
		now, more := sweepFor(t, m, now, DefaultIdle+2*time.Second)
		absent := int64(0)
		if software && !raceBuild {
			absent = 3 * mib // all but the tensor
		}
		if got := m.Stats(now).Sending.Absent; got != absent {
			t.Errorf("software %v: %d bytes of free memory have no pages, want %d", software, got, absent)
		}
		again = allocate(t, m, mib)
		gone := again.Bytes()[mib/2] == 0
		if want := software && !raceBuild; gone != want || more {
			t.Errorf("software %v: the pages went: %v, more to sweep: %v", software, gone, more)
		}
		if !bytes.Equal(kept.Bytes(), content) {
			t.Error("a tensor in the same arena has changed")
		}
		again.Release()
		kept.Release()
		check(t, &m.sending)
	}
}
