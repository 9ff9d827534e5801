package verbs_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"github.com/tryst-rdma/tryst/verbs"
)

func TestCheckNamesTheWrongAttribute(t *testing.T) {
	rtr := verbs.RTRAttr{
		Peer: verbs.Endpoint{QPN: 0x11, PSN: 5, GID: verbs.GIDFromAddr(netip.MustParseAddr("192.0.2.1"))},
		MTU:  verbs.MTU1024, MinRNRTimer: verbs.DefaultMinRNRTimer,
	}
	if err := rtr.Check(); err != nil {
		t.Errorf("good attributes: %v", err)
	}
	lid := rtr
	lid.Peer.GID, lid.Peer.LID = verbs.GID{}, 3
	if err := lid.Check(); err != nil {
		t.Errorf("a peer with a LID alone: %v", err)
	}
	for word, change := range map[string]func(*verbs.RTRAttr){
		"1500":          func(a *verbs.RTRAttr) { a.MTU = 1500 },
		"MTU 0":         func(a *verbs.RTRAttr) { a.MTU = 0 },
		"0x1 ":          func(a *verbs.RTRAttr) { a.Peer.QPN = 1 },
		"0x1000000 is":  func(a *verbs.RTRAttr) { a.Peer.QPN = 1 << 24 },
		"0x1000000 has": func(a *verbs.RTRAttr) { a.Peer.PSN = 1 << 24 },
		"neither GID":   func(a *verbs.RTRAttr) { a.Peer.GID = verbs.GID{} },
		"level 16":      func(a *verbs.RTRAttr) { a.ServiceLevel = 16 },
		"timer 32":      func(a *verbs.RTRAttr) { a.MinRNRTimer = 32 },
	} {
		a := rtr
		change(&a)
		if err := a.Check(); !errors.Is(err, verbs.ErrInvalid) || !strings.Contains(err.Error(), word) {
			t.Errorf("%q is not in the error: %v", word, err)
		}
	}
	rts := verbs.RTSAttr{PSN: 0xffffff, Timeout: 31, Retry: 7, RNRRetry: 7}
	if err := rts.Check(); err != nil {
		t.Errorf("good attributes: %v", err)
	}
	for word, change := range map[string]func(*verbs.RTSAttr){
		"0x1000000": func(a *verbs.RTSAttr) { a.PSN = 1 << 24 },
		"code 32":   func(a *verbs.RTSAttr) { a.Timeout = 32 },
		"count 8":   func(a *verbs.RTSAttr) { a.Retry = 8 },
		"RNR retry": func(a *verbs.RTSAttr) { a.RNRRetry = 8 },
	} {
		a := rts
		change(&a)
		if err := a.Check(); !errors.Is(err, verbs.ErrInvalid) || !strings.Contains(err.Error(), word) {
			t.Errorf("%q is not in the error: %v", word, err)
		}
	}
}

// recorder is a queue pair that records its transitions and their attributes.
type recorder struct {
	verbs.QP
	init verbs.InitAttr
	rtr  verbs.RTRAttr
	rts  verbs.RTSAttr
	fail error
	seen []string
}

func (r *recorder) ToInit(a verbs.InitAttr) error {
	r.init, r.seen = a, append(r.seen, "INIT")
	return nil
}

func (r *recorder) ToRTR(a verbs.RTRAttr) error {
	r.rtr, r.seen = a, append(r.seen, "RTR")
	return r.fail
}

func (r *recorder) ToRTS(a verbs.RTSAttr) error {
	r.rts, r.seen = a, append(r.seen, "RTS")
	return nil
}

// TestPathConnects: Path passes all its fields to the queue pair, and makes the
// transitions in order.
func TestPathConnects(t *testing.T) {
	p := verbs.Path{
		Port: 2, PKeyIndex: 3, Access: verbs.AccessRemoteWrite, SGIDIndex: 4, MTU: verbs.MTU2048, TrafficClass: 5,
		ServiceLevel: 6, Timeout: 14, Retry: 5, RNRRetry: 4, MinRNRTimer: 12, ReadAtomic: 7,
	}
	peer := verbs.Endpoint{QPN: 8, PSN: 9, GID: verbs.GIDFromAddr(netip.MustParseAddr("192.0.2.1"))}
	r := &recorder{}
	if err := p.Init(r); err != nil {
		t.Fatal(err)
	}
	if err := p.Connect(r, 10, peer); err != nil {
		t.Fatal(err)
	}
	wantInit := verbs.InitAttr{Port: 2, PKeyIndex: 3, Access: verbs.AccessRemoteWrite, SGIDIndex: 4}
	wantRTR := verbs.RTRAttr{Peer: peer, MTU: verbs.MTU2048, SGIDIndex: 4, TrafficClass: 5, ServiceLevel: 6, MaxDestReadAtomic: 7, MinRNRTimer: 12}
	wantRTS := verbs.RTSAttr{PSN: 10, Timeout: 14, Retry: 5, RNRRetry: 4, MaxReadAtomic: 7}
	if !reflect.DeepEqual([]any{r.init, r.rtr, r.rts}, []any{wantInit, wantRTR, wantRTS}) || fmt.Sprint(r.seen) != "[INIT RTR RTS]" {
		t.Errorf("%+v", r)
	}
	r = &recorder{fail: verbs.ErrDeviceGone}
	if err := p.Connect(r, 10, peer); !errors.Is(err, verbs.ErrDeviceGone) || len(r.seen) != 1 {
		t.Errorf("%v after %v", err, r.seen)
	}
}

// TestStatusNumbers: the numbers are those of enum ibv_wc_status in
// <infiniband/verbs.h>, which providers pass through.
func TestStatusNumbers(t *testing.T) {
	for want, s := range []verbs.Status{
		verbs.StatusOK, verbs.StatusLocalLength, verbs.StatusLocalQPOperation, verbs.StatusLocalEEC, verbs.StatusLocalProtection,
		verbs.StatusFlushed, verbs.StatusWindowBind, verbs.StatusBadResponse, verbs.StatusLocalAccess, verbs.StatusRemoteInvalidRequest,
		verbs.StatusRemoteAccess, verbs.StatusRemoteOperation, verbs.StatusRetryExceeded, verbs.StatusRNRRetryExceeded,
		verbs.StatusLocalRDDViolation, verbs.StatusRemoteInvalidRD, verbs.StatusRemoteAborted, verbs.StatusInvalidEEC,
		verbs.StatusInvalidEECState, verbs.StatusFatal, verbs.StatusResponseTimeout, verbs.StatusGeneral,
	} {
		if int(s) != want {
			t.Errorf("%v is %d, want %d", s, s, want)
		}
	}
	for status, word := range map[verbs.Status]string{
		verbs.StatusRetryExceeded: "4791", verbs.StatusRNRRetryExceeded: "credits", verbs.StatusRemoteAccess: "key",
		verbs.StatusFlushed: "first error", verbs.StatusLocalLength: "posted receive",
	} {
		if !strings.Contains(status.Cause(), word) {
			t.Errorf("the cause of %q does not contain %q: %q", status, word, status.Cause())
		}
	}
	if got := verbs.Status(200).String(); !strings.Contains(got, "200") {
		t.Errorf("an unknown status is %q", got)
	}
}

// TestEnumerationNames: each value of an enumeration has a name of its own.
func TestEnumerationNames(t *testing.T) {
	check := func(kind string, n int, name func(int) string) {
		seen := map[string]bool{}
		for i := range n {
			s := name(i)
			if s == "" || s == fmt.Sprint(i) || seen[s] {
				t.Errorf("%s %d is %q", kind, i, s)
			}
			seen[s] = true
		}
		if s := name(250); s != "250" {
			t.Errorf("%s 250 is %q", kind, s)
		}
	}
	check("QPState", int(verbs.StateErr)+1, func(i int) string { return verbs.QPState(i).String() })
	check("Opcode", int(verbs.OpFetchAdd)+1, func(i int) string { return verbs.Opcode(i).String() })
	check("WCOp", int(verbs.WCRecvWrite)+1, func(i int) string { return verbs.WCOp(i).String() })
	check("EventKind", int(verbs.EventClientReregister)+1, func(i int) string { return verbs.EventKind(i).String() })
	check("PortState", int(verbs.PortActiveDefer)+1, func(i int) string { return verbs.PortState(i).String() })
	check("LinkLayer", int(verbs.LinkEthernet)+1, func(i int) string { return verbs.LinkLayer(i).String() })
	check("GIDType", int(verbs.GIDTypeRoCEv2)+1, func(i int) string { return verbs.GIDType(i).String() })
}

func TestErrorText(t *testing.T) {
	err := error(&verbs.Error{Op: "register memory", Object: "mlx5_0", Err: syscall.ENOMEM, Hint: "raise the limit"})
	if got := err.Error(); got != "register memory mlx5_0: cannot allocate memory (raise the limit)" {
		t.Errorf("%q", got)
	}
	if !errors.Is(err, syscall.ENOMEM) {
		t.Error("the system's error number is lost")
	}
	err = verbs.Errorf("open", "", verbs.ErrNotFound, "there is no %q", "x")
	if got := err.Error(); got != `open: there is no "x"` || !errors.Is(err, verbs.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%q", got)
	}
	if _, ok := errors.AsType[*verbs.Error](fmt.Errorf("outside: %w", err)); !ok {
		t.Error("the error is not found through another one")
	}
}

func TestWorkRequestLen(t *testing.T) {
	sgl := []verbs.SGE{{Length: 1<<32 - 1}, {Length: 1<<32 - 1}, {Length: 3}}
	if got := (&verbs.SendWR{SGL: sgl}).Len(); got != 2*(1<<32-1)+3 {
		t.Errorf("a send of more than 32 bits has %d bytes", got)
	}
	if got := (&verbs.RecvWR{SGL: sgl}).Len(); got != 2*(1<<32-1)+3 {
		t.Errorf("a receive of more than 32 bits has %d bytes", got)
	}
	if got := (&verbs.SendWR{SGL: sgl, Inline: []byte{1, 2}}).Len(); got != 2 {
		t.Errorf("Inline replaces the list, but Len is %d", got)
	}
	if got := (&verbs.SendWR{SGL: sgl, Inline: []byte{}}).Len(); got != 0 {
		t.Errorf("empty Inline: Len is %d", got)
	}
}

func TestEndpointString(t *testing.T) {
	e := verbs.Endpoint{QPN: 0x12, GID: verbs.GIDFromAddr(netip.MustParseAddr("192.0.2.1"))}
	if got := e.String(); got != "QP 0x000012 at GID 192.0.2.1" {
		t.Errorf("%q", got)
	}
	e.LID = 7
	if got := e.String(); !strings.Contains(got, "LID 7") {
		t.Errorf("%q", got)
	}
}

func TestMTUs(t *testing.T) {
	for m := range verbs.MTU(5000) {
		want := m == 256 || m == 512 || m == 1024 || m == 2048 || m == 4096
		if m.Valid() != want {
			t.Errorf("MTU %d valid: %v", m, m.Valid())
		}
	}
}
