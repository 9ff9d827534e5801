package verbs_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

func TestWRIDParts(t *testing.T) {
	for _, p := range [][4]uint32{
		{0, 0, 0, 0},
		{1, 2, 3, 4},
		{verbs.MaxWRChannel - 1, verbs.MaxWRGeneration - 1, verbs.MaxWRSlot - 1, verbs.MaxWRKind - 1},
		{verbs.MaxWRChannel - 1, 0, verbs.MaxWRSlot - 1, 0},
	} {
		id := verbs.NewWRID(p[0], p[1], p[2], uint8(p[3]))
		if got := [4]uint32{id.Channel(), id.Generation(), id.Slot(), uint32(id.Kind())}; got != p {
			t.Errorf("NewWRID(%v) came back as %v", p, got)
		}
	}
	if a, b := verbs.NewWRID(1, 0, 0, 0), verbs.NewWRID(1, verbs.MaxWRGeneration, 0, 0); a != b {
		t.Errorf("a generation that wraps spills into the channel: %v and %v", a, b)
	}
}

func TestGIDString(t *testing.T) {
	four := verbs.GIDFromAddr(netip.MustParseAddr("192.0.2.1"))
	if got := four.String(); got != "192.0.2.1" {
		t.Errorf("an IPv4-mapped GID is %q", got)
	}
	six := verbs.GIDFromAddr(netip.MustParseAddr("fe80::a00:27ff:fe4e:66a1"))
	if got := six.String(); got != "fe80:0000:0000:0000:0a00:27ff:fe4e:66a1" {
		t.Errorf("a GID is %q", got)
	}
	prefix, id := six.Words()
	if prefix != 0x80fe || id != 0xa1664efeff27000a {
		t.Errorf("Words = %#x, %#x", prefix, id)
	}
	if got := verbs.GIDFromWords(prefix, id); got != six {
		t.Errorf("GIDFromWords gives %v", got)
	}
}

func TestCheckTransition(t *testing.T) {
	states := []verbs.QPState{verbs.StateReset, verbs.StateInit, verbs.StateRTR, verbs.StateRTS, verbs.StateErr}
	allowed := map[[2]verbs.QPState]bool{}
	for _, s := range states {
		allowed[[2]verbs.QPState{s, verbs.StateReset}] = true
		allowed[[2]verbs.QPState{s, verbs.StateErr}] = true
	}
	for _, step := range [][2]verbs.QPState{
		{verbs.StateReset, verbs.StateInit}, {verbs.StateInit, verbs.StateInit}, {verbs.StateInit, verbs.StateRTR},
		{verbs.StateRTR, verbs.StateRTS}, {verbs.StateRTS, verbs.StateRTS},
	} {
		allowed[step] = true
	}
	for _, from := range states {
		for _, to := range states {
			err := verbs.CheckTransition(from, to)
			if (err == nil) != allowed[[2]verbs.QPState{from, to}] {
				t.Errorf("%v to %v: %v", from, to, err)
			}
			if err != nil && (!errors.Is(err, verbs.ErrInvalid) || !strings.Contains(err.Error(), to.String())) {
				t.Errorf("%v to %v: the error does not name the state: %v", from, to, err)
			}
		}
	}
}

func TestTimeoutCode(t *testing.T) {
	for _, c := range []struct {
		d    time.Duration
		code uint8
	}{{0, 1}, {time.Nanosecond, 1}, {8192, 1}, {8193, 2}, {67108864, 14}, {67108865, 15}, {1000 * time.Hour, 31}} {
		if got := verbs.TimeoutCode(c.d); got != c.code {
			t.Errorf("TimeoutCode(%v) = %d, want %d", c.d, got, c.code)
		}
		if got := verbs.TimeoutDuration(verbs.TimeoutCode(c.d)); c.code < 31 && got < c.d {
			t.Errorf("TimeoutDuration(TimeoutCode(%v)) = %v, which is shorter", c.d, got)
		}
	}
}

func TestEveryStatusHasACause(t *testing.T) {
	for s := verbs.StatusOK + 1; s <= verbs.StatusGeneral+1; s++ {
		if s.String() == "" || s.Cause() == "" {
			t.Errorf("status %d: %q, %q", s, s, s.Cause())
		}
	}
}
