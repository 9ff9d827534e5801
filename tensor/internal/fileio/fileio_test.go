package fileio_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor/internal/fileio"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestCode(t *testing.T) {
	for _, c := range []struct {
		err  error
		want status.Code
	}{
		{&fs.PathError{Op: "open", Path: "x", Err: syscall.ENOENT}, status.NotFound},
		{&fs.PathError{Op: "open", Path: "x", Err: syscall.EACCES}, status.PermissionDenied},
		{os.ErrClosed, status.FailedPrecondition},
		{fmt.Errorf("w: %w", syscall.ENOSPC), status.ResourceExhausted},
		{syscall.EFBIG, status.ResourceExhausted},
		{io.EOF, status.DataLoss},
		{io.ErrUnexpectedEOF, status.DataLoss},
		{errors.New("other"), status.Unknown},
		{status.New(status.Aborted, "changed"), status.Aborted},
	} {
		if got := fileio.Code(c.err); got != c.want {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
	}
}

func TestQuote(t *testing.T) {
	if got := fileio.Quote("a\"\n"); got != `"a\"\n"` {
		t.Error(got)
	}
	if got := fileio.Quote(strings.Repeat("\x00", 1<<20)); len(got) > 600 || !strings.HasSuffix(got, "... (1048576 bytes)") {
		t.Error(got)
	}
}

// oddReader returns n bytes and err, whatever is asked for.
type oddReader struct {
	n   int
	err error
}

func (r oddReader) ReadAt(p []byte, _ int64) (int, error) { return min(r.n, len(p)), r.err }

func TestReadAt(t *testing.T) {
	p := make([]byte, 4)
	if err := fileio.ReadAt(oddReader{4, io.EOF}, p, 0); err != nil {
		t.Errorf("a full read at the end: %v", err)
	}
	for _, r := range []oddReader{{3, io.EOF}, {3, nil}, {0, io.ErrUnexpectedEOF}} {
		err := fileio.ReadAt(r, p, 7)
		if want := "DataLoss: reading 4 bytes at offset 7: unexpected EOF"; err == nil || err.Error() != want {
			t.Errorf("%+v: got %v, want %s", r, err, want)
		}
	}
}

func TestMapMisuse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("abc"), 0o600); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken header")
	if _, err := fileio.Map(path, func(*os.File, int64) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	m, err := fileio.Map(path, func(*os.File, int64) error { return nil })
	if status.CodeOf(err) == status.Unimplemented {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	b, err := m.Buffer(1, 2)
	if err != nil {
		t.Fatal(err)
	}
	again, err := m.Buffer(1, 2)
	if err != nil {
		t.Fatal(err)
	}
	if again != b {
		t.Error("the same bytes in two buffers: each would seem unique")
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	b.Release()
	if !bytes.Equal(again.Bytes(), []byte("bc")) || cap(again.Bytes()) != 2 {
		t.Errorf("got %q, capacity %d", again.Bytes(), cap(again.Bytes()))
	}
	again.Release()
	if _, err := m.Buffer(1, 2); status.CodeOf(err) != status.FailedPrecondition {
		t.Errorf("after Close: %v", err)
	}
}
