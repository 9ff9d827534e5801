package frame

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestBytes(t *testing.T) {
	var w bytes.Buffer
	if err := Write(&w, Output, []byte("hi\n")); err != nil {
		t.Fatal(err)
	}
	if err := WriteJSON(&w, Exit, Result{Status: 3}); err != nil {
		t.Fatal(err)
	}
	if got, want := w.String(), "O\x00\x00\x00\x03hi\nX\x00\x00\x00\x0c{\"status\":3}"; got != want {
		t.Errorf("bytes %q, want %q", got, want)
	}
}

func TestRoundTrip(t *testing.T) {
	sent := Command{Args: []string{"bash", "-c", "echo \"a\"\x01"}, Dir: "/d", Env: []string{"A=b"}, Terminal: &WindowSize{Rows: 24, Columns: 80}}
	var w bytes.Buffer
	if err := WriteJSON(&w, Run, sent); err != nil {
		t.Fatal(err)
	}
	kind, payload, err := Read(&w)
	if err != nil || kind != Run {
		t.Fatalf("kind %q, error %v, want %q", kind, err, Run)
	}
	var got Command
	if err := Decode(kind, payload, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sent, got); diff != "" {
		t.Error(diff)
	}
	if _, _, err := Read(&w); !errors.Is(err, io.EOF) {
		t.Errorf("after the last frame: %v, want EOF", err)
	}
}

func TestReadRefuses(t *testing.T) {
	for _, tt := range []struct{ name, bytes, want string }{
		{"an unknown kind", "G\x00\x00\x00\x00", "unknown kind 'G'"},
		{"a length beyond the limit", "O\xff\xff\xff\xff", "announces 4294967295 bytes: the limit is 262144"},
		{"half a header", "O\x00\x00", "unexpected EOF"},
		{"half a payload", "O\x00\x00\x00\x05hi", "unexpected EOF"},
		{"no payload", "O\x00\x00\x00\x05", "unexpected EOF"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, _, err := Read(strings.NewReader(tt.bytes)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

func TestWriteRefusesTooLongPayload(t *testing.T) {
	if err := Write(io.Discard, Output, make([]byte, MaxPayload+1)); err == nil {
		t.Error("a payload beyond the limit: got no error")
	}
	if err := Write(io.Discard, Output, make([]byte, MaxPayload)); err != nil {
		t.Error(err)
	}
}

func TestDecodeNamesTheFrame(t *testing.T) {
	if err := Decode(Exit, []byte("{"), &Result{}); err == nil || !strings.HasPrefix(err.Error(), "frame 'X': ") {
		t.Errorf("error %v, want one that begins with frame 'X'", err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("O\x00\x00\x00\x03hi\nX\x00\x00\x00\x0c{\"status\":3}"))
	f.Add([]byte("O\xff\xff\xff\xff"))
	f.Add([]byte("A\x00\x00\x00\x00R\x00\x00\x00\x00F\x00\x00\x00\x01x"))
	f.Fuzz(func(t *testing.T, in []byte) {
		r := bytes.NewReader(in)
		var out bytes.Buffer
		for {
			kind, payload, err := Read(r)
			if err != nil {
				break
			}
			if err := Write(&out, kind, payload); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.HasPrefix(in, out.Bytes()) {
			t.Errorf("the frames of %q were written again as %q, want a prefix of it", in, &out)
		}
	})
}
