package status_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/status"
)

// permutations calls f with every order of errs.
func permutations(errs []error, f func([]error)) {
	var permute func(i int)
	permute = func(i int) {
		if i == len(errs) {
			f(errs)
			return
		}
		for j := i; j < len(errs); j++ {
			errs[i], errs[j] = errs[j], errs[i]
			permute(i + 1)
			errs[i], errs[j] = errs[j], errs[i]
		}
	}
	errs = slices.Clone(errs)
	permute(0)
}

func group(errs ...error) *status.Error {
	var g status.Group
	for _, err := range errs {
		g.Add(err)
	}
	return g.Err()
}

func TestH13GroupSummary(t *testing.T) {
	internal := status.New(status.Internal, "kernel failed")
	lost := status.New(status.DataLoss, "bad block")
	cancelled := status.New(status.Cancelled, "stopped")
	aborted := status.New(status.Aborted, "step aborted").Derived()
	late := status.New(status.Cancelled, "RecvAsync is cancelled.").Derived()
	for name, c := range map[string]struct {
		errs    []error
		want    string // "" for no error
		derived bool
	}{
		"nothing":            {},
		"successes":          {errs: []error{nil, nil}},
		"one":                {errs: []error{internal}, want: "Internal: kernel failed"},
		"one and successes":  {errs: []error{nil, internal, nil}, want: "Internal: kernel failed"},
		"one twice":          {errs: []error{internal, status.New(status.Internal, "kernel failed")}, want: "Internal: kernel failed"},
		"one and derived":    {errs: []error{aborted, internal, late}, want: "Internal: kernel failed"},
		"one Cancelled":      {errs: []error{cancelled, aborted}, want: "Cancelled: stopped"},
		"not of the package": {errs: []error{io.EOF, late}, want: "Unknown: EOF"},
		"several": {
			errs: []error{internal, lost},
			want: "DataLoss: 2 root error(s) found.\n  (0) DataLoss: bad block\n  (1) Internal: kernel failed",
		},
		"several and all else": {
			errs: []error{internal, late, lost, nil, lost, aborted},
			want: "DataLoss: 2 root error(s) found.\n  (0) DataLoss: bad block\n  (1) Internal: kernel failed",
		},
		"Cancelled beside another": {
			errs: []error{cancelled, internal, context.Canceled},
			want: "Internal: 3 root error(s) found.\n  (0) Internal: kernel failed\n  (1) Cancelled: context canceled\n  (2) Cancelled: stopped",
		},
		"Cancelled alone": {
			errs: []error{cancelled, context.Canceled},
			want: "Cancelled: 2 root error(s) found.\n  (0) Cancelled: context canceled\n  (1) Cancelled: stopped",
		},
		"all derived":       {errs: []error{aborted, late, nil}, want: "Aborted: step aborted", derived: true},
		"derived Cancelled": {errs: []error{late, late}, want: "Cancelled: RecvAsync is cancelled.", derived: true},
		"derived in another": {
			errs: []error{fmt.Errorf("outer: %w", aborted), internal}, want: "Internal: kernel failed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			permutations(c.errs, func(errs []error) {
				got := group(errs...)
				switch {
				case c.want == "":
					if got != nil {
						t.Fatalf("summary of %v: got %v, want none", errs, got)
					}
				case got == nil || got.Error() != c.want:
					t.Fatalf("summary of %v: got\n%v, want\n%s", errs, got, c.want)
				case status.IsDerived(got) != c.derived:
					t.Fatalf("summary of %v: derived is %v, want %v", errs, !c.derived, c.derived)
				}
			})
		})
	}
}

// TestH13OneRootIsUnchanged: the summary of one root is that error itself, with its cause. A
// second call of Err returns the same.
func TestH13OneRootIsUnchanged(t *testing.T) {
	root := status.Errorf(status.Unavailable, "peer: %w", io.ErrUnexpectedEOF).WithPayload("k", []byte("v"))
	derived := status.New(status.Aborted, "x").Derived()
	var g status.Group
	g.Add(derived)
	if got := g.Err(); got != derived {
		t.Errorf("summary of one derived error: got %v, want that error", got)
	}
	g.Add(root)
	if got := g.Err(); got != root || g.Err() != root {
		t.Errorf("summary with one root: got %v, want the root", got)
	}
	g.Add(status.New(status.Internal, "y"))
	if got := g.Err(); got.Code() != status.Internal || !strings.Contains(got.Message(), root.Error()) {
		t.Errorf("summary of two roots: got %v, want Internal with both texts", got)
	}
}

// TestH13CauseIsTheFirst: errors.Is finds the cause of the error that gives the code.
func TestH13CauseIsTheFirst(t *testing.T) {
	got := group(context.Canceled, status.Errorf(status.DataLoss, "block 7: %w", io.ErrUnexpectedEOF))
	if !errors.Is(got, io.ErrUnexpectedEOF) || errors.Is(got, context.Canceled) {
		t.Errorf("errors.Is(%v): want io.ErrUnexpectedEOF and not context.Canceled", got)
	}
}

func TestH13PayloadsMerge(t *testing.T) {
	with := func(code status.Code, text string, payloads ...string) *status.Error {
		e := status.New(code, text)
		for i := 0; i < len(payloads); i += 2 {
			e = e.WithPayload(payloads[i], []byte(payloads[i+1]))
		}
		return e
	}
	for name, c := range map[string]struct {
		errs []error
		want map[string]string
	}{
		"one root over derived": {
			[]error{
				with(status.Internal, "root", "a", "root"),
				with(status.Aborted, "x", "a", "derived", "b", "derived").Derived(),
				with(status.Aborted, "x", "c", "derived").Derived(),
			},
			map[string]string{"a": "root", "b": "derived", "c": "derived"},
		},
		"the first root over the next": {
			[]error{
				with(status.Cancelled, "last", "a", "cancelled", "b", "cancelled", "c", "cancelled"),
				with(status.Aborted, "1", "a", "first"),
				with(status.Aborted, "2", "a", "second", "b", "second"),
			},
			map[string]string{"a": "first", "b": "second", "c": "cancelled"},
		},
		"the same but for payloads": {
			[]error{with(status.Internal, "x", "a", "2"), with(status.Internal, "x", "a", "1"), with(status.Internal, "x", "b", "1")},
			map[string]string{"a": "1", "b": "1"},
		},
		"all derived": {
			[]error{with(status.Aborted, "x", "a", "1").Derived(), with(status.Aborted, "y", "a", "2", "b", "2").Derived()},
			map[string]string{"a": "1", "b": "2", status.PayloadDerived: ""},
		},
	} {
		t.Run(name, func(t *testing.T) {
			permutations(c.errs, func(errs []error) {
				got := make(map[string]string)
				for k, v := range group(errs...).Payloads() {
					got[k] = string(v)
				}
				if !reflect.DeepEqual(got, c.want) {
					t.Errorf("payloads of the summary of %v: got %q, want %q", errs, got, c.want)
				}
			})
		})
	}
	root := with(status.Internal, "root", "a", "root")
	_ = group(root, with(status.Aborted, "x", "b", "derived").Derived())
	if len(root.Payloads()) != 1 {
		t.Error("the summary changed the payloads of the root")
	}
}

// TestH13LongListIsCut: the message of the summary of many errors has at most MaxMessage bytes and
// the mark.
func TestH13LongListIsCut(t *testing.T) {
	var g status.Group
	for i := range 1000 {
		g.Add(status.Errorf(status.Internal, "value %d", i))
	}
	text := g.Err().Message()
	if !strings.HasPrefix(text, "1000 root error(s) found.\n  (0) Internal: value 0\n") || text != status.Truncate(text[:status.MaxMessage]+" ") {
		t.Errorf("message of %d bytes that begins with %.80q, want one cut at %d", len(text), text, status.MaxMessage)
	}
}
