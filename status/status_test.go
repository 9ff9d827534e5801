package status_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tryst-rdma/tryst/status"
)

func TestCodeOf(t *testing.T) {
	wrapped := fmt.Errorf("outer: %w", status.New(status.NotFound, "no such key"))
	for _, c := range []struct {
		err  error
		want status.Code
	}{
		{nil, status.OK},
		{io.EOF, status.Unknown},
		{context.Canceled, status.Cancelled},
		{fmt.Errorf("x: %w", context.DeadlineExceeded), status.DeadlineExceeded},
		{status.New(status.Aborted, "a"), status.Aborted},
		{wrapped, status.NotFound},
		{status.New(status.OK, "never success"), status.Unknown},
	} {
		if got := status.CodeOf(c.err); got != c.want {
			t.Errorf("CodeOf(%v) = %v, want %v", c.err, got, c.want)
		}
	}
	if got := status.From(wrapped).Message(); !strings.HasPrefix(got, "outer: ") {
		t.Errorf("From: got message %q, want the outer text in it", got)
	}
	if status.From(nil) != nil {
		t.Error("From(nil) is not nil")
	}
}

func TestErrorfKeepsTheCause(t *testing.T) {
	err := status.Errorf(status.Unavailable, "peer %s: %w", "/task:1", io.ErrUnexpectedEOF)
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error("errors.Is does not find the wrapped error")
	}
	if want := "Unavailable: peer /task:1: unexpected EOF"; err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
}

func TestContextErrorsMatch(t *testing.T) {
	if !errors.Is(status.New(status.Cancelled, "c"), context.Canceled) {
		t.Error("Cancelled does not match context.Canceled")
	}
	late := status.New(status.DeadlineExceeded, "d")
	if !errors.Is(late, context.DeadlineExceeded) || !late.Timeout() {
		t.Error("DeadlineExceeded does not match context.DeadlineExceeded, or Timeout is false")
	}
	if errors.Is(late, context.Canceled) {
		t.Error("DeadlineExceeded matches context.Canceled")
	}
}

func TestDerivedAndPayloads(t *testing.T) {
	root := status.New(status.Internal, "kernel failed")
	d := root.Derived()
	if status.IsDerived(root) {
		t.Error("Derived changed its receiver")
	}
	if !status.IsDerived(d) || !status.IsDerived(fmt.Errorf("wrapped: %w", d)) {
		t.Error("IsDerived is false for a derived error, or for one that wraps it")
	}
	if d.Derived() != d {
		t.Error("Derived of a derived error returns a copy, want the error itself")
	}
	p := d.WithPayload("k", []byte("v"))
	if v, ok := p.Payload("k"); !ok || string(v) != "v" {
		t.Error("Payload does not return the value of WithPayload")
	}
	if _, ok := d.Payload("k"); ok {
		t.Error("WithPayload changed its receiver")
	}
}

// TestWithoutQPNs uses texts of package verbs and of drivers.
func TestWithoutQPNs(t *testing.T) {
	for text, want := range map[string]string{
		"channel, generation 3: QP 0x8c3dd6: flushed (0x0000f9)":     "channel, generation 3: QP: flushed (0x0000f9)",
		"QP 0x000007 at GID 0000:0000:0000:0000:0000:0000:0000:0001": "QP at GID 0000:0000:0000:0000:0000:0000:0000:0001",
		"queue pair 0x000012 is that of another rail":                "queue pair is that of another rail",
		"nothing": "nothing",
	} {
		if got := status.WithoutQPNs(text); got != want {
			t.Errorf("WithoutQPNs(%q) = %q, want %q", text, got, want)
		}
	}
	if got := status.ForPeer("QP 0x8c3dd6 " + strings.Repeat("a", 2*status.MaxMessage)); strings.Contains(got, "8c3dd6") || !strings.HasSuffix(got, "[truncated]") {
		t.Errorf("ForPeer returned %.40q..., want no queue pair number and a text that was cut", got)
	}
}

// TestForPeerLooksAtTheBeginning: what it takes does not grow with the message, and the result is as if it
// had looked at all of it.
func TestForPeerLooksAtTheBeginning(t *testing.T) {
	for _, part := range []string{"a", "日本", "QP 0x8c3dd6 ", "queue pair 0x8c3dd6,", "a QP 0x8c3dd6\x80"} {
		for n := 0; n < 3000; n += 307 {
			text := strings.Repeat("b", n%31) + strings.Repeat(part, n)
			if got, want := status.ForPeer(text), status.Truncate(status.WithoutQPNs(text)); got != want {
				t.Fatalf("%d times %q: %q, want %q", n, part, got, want)
			}
		}
	}
	large := strings.Repeat("QP 0x8c3dd6 日本", 4<<20)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	status.ForPeer(large)
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > uint64(len(large))/4 {
		t.Errorf("a text of %d bytes takes %d", len(large), n)
	}
}

func TestTruncate(t *testing.T) {
	short := strings.Repeat("a", status.MaxMessage)
	if status.Truncate(short) != short {
		t.Error("Truncate changed a message of MaxMessage bytes")
	}
	for shift := range 4 { // the cut falls on each byte of a four-byte character
		long := strings.Repeat("a", shift) + strings.Repeat("\U0001F600", status.MaxMessage)
		got := status.Truncate(long)
		if !utf8.ValidString(got) || !strings.HasSuffix(got, "[truncated]") {
			t.Errorf("shift %d: got an end of %q, want a cut between two characters", shift, got[len(got)-24:])
		}
	}
}

// TestTruncatedMessageFitsAHeader: TensorFlow's gRPC refuses headers of more than 8 KiB, and
// gRPC writes bytes that are not printable ASCII in three.
func TestTruncatedMessageFitsAHeader(t *testing.T) {
	const limit = 6<<10 + 20 // and the mark
	for name, c := range map[string]struct {
		part    string
		encoded int // bytes of the part in the header
	}{
		"two bytes":  {"\u00e9", 6},
		"control":    {"\x01", 3},
		"line feed":  {"\n", 3},
		"percent":    {"%", 3},
		"four bytes": {"\U0001F600", 12},
		"no text":    {"\x80", 9}, // as U+FFFD
		"mixed":      {"a\u00e9", 7},
	} {
		got := status.Truncate(strings.Repeat(c.part, 5000))
		if n := status.EncodedLen(got); n > limit || n < limit-40 {
			t.Errorf("%s: cut to %d bytes of a header, want just below %d", name, n, limit)
		}
		kept, marked := strings.CutSuffix(got, " ... [truncated]")
		if !marked || strings.Trim(kept, c.part) != "" {
			t.Errorf("%s: not cut at a character: %q", name, got[len(got)-24:])
		}
		if n := status.EncodedLen(strings.Repeat(c.part, 10)); n != 10*c.encoded {
			t.Errorf("%s: 10 parts have %d bytes in a header, want %d", name, n, 10*c.encoded)
		}
		if fits := strings.Repeat(c.part, 6<<10/c.encoded); len(fits) <= status.MaxMessage && status.Truncate(fits) != fits {
			t.Errorf("%s: a message that fits was cut", name)
		}
	}
}

func TestCodeString(t *testing.T) {
	if s := status.Unauthenticated.String(); s != "Unauthenticated" {
		t.Errorf("got %q, want Unauthenticated", s)
	}
	if s := status.Code(99).String(); s != "Code(99)" {
		t.Errorf("got %q, want Code(99)", s)
	}
}

// TestSaidQuotesThePeer: the sentence of a peer is quoted with its name, whatever is in it.
func TestSaidQuotesThePeer(t *testing.T) {
	err := status.Errorf(status.Unavailable, "%w", &status.Said{Peer: "/job:w/task:1", Text: "no\nlevel=ERROR"})
	if got := err.Message(); got != `/job:w/task:1 says: "no\nlevel=ERROR"` {
		t.Errorf("%s", got)
	}
	for text, want := range map[string]string{
		`no "x"`: "`no \"x\"`", "no \"x\"\x1b": `"no \"x\"\x1b"`, "no `x` of \"y\"": "\"no `x` of \\\"y\\\"\"",
		"\" \u009b2J": `"\" \u009b2J"`, "\"\u0085": `"\"\u0085"`, "\" \u202e": `"\" \u202e"`, "\"\xff": `"\"\xff"`, `"é世"`: "`\"é世\"`",
	} {
		if got := (&status.Said{Peer: "p", Text: text}).Error(); got != "p says: "+want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if said, ok := errors.AsType[*status.Said](error(err)); !ok || said.Text != "no\nlevel=ERROR" {
		t.Errorf("%v", said)
	}
}

// TestErrorOfAPeerIsNotOfTheCallersContext: the end of a peer's context says nothing about the
// caller's. Copies and wrapping keep the mark.
func TestErrorOfAPeerIsNotOfTheCallersContext(t *testing.T) {
	for code, target := range map[status.Code]error{status.Cancelled: context.Canceled, status.DeadlineExceeded: context.DeadlineExceeded} {
		own := status.New(code, "stopped")
		for _, err := range []error{own.FromPeer(), own.FromPeer().WithPrefix("receive").Derived(), status.From(fmt.Errorf("outer: %w", own.FromPeer()))} {
			if errors.Is(err, target) || !status.IsFromPeer(err) || status.CodeOf(err) != code {
				t.Errorf("%v: matches %v: %v, is of a peer: %v", err, target, errors.Is(err, target), status.IsFromPeer(err))
			}
		}
		if !errors.Is(own, target) || status.IsFromPeer(own) {
			t.Errorf("%v is not the caller's own", own)
		}
	}
}
