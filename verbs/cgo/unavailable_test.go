package libibverbs_test

import (
	"errors"
	"testing"

	"github.com/tryst-rdma/tryst/verbs"
	libibverbs "github.com/tryst-rdma/tryst/verbs/cgo"
)

// In every build: what the words are depends on it, and builds_test.go looks at them.
func TestUnavailableIsAnAnswer(t *testing.T) {
	p := libibverbs.New(libibverbs.Options{Library: "/nonexistent/libibverbs.so.1"})
	if p.Name() != libibverbs.Name {
		t.Errorf("Name is %q", p.Name())
	}
	infos, err := p.Devices()
	if len(infos) != 0 || !errors.Is(err, verbs.ErrUnavailable) {
		t.Errorf("Devices gives %v, %v", infos, err)
	}
	t.Log(err)
	d, err := p.Open("rxe0")
	if d != nil || !errors.Is(err, verbs.ErrUnavailable) {
		t.Errorf("Open gives %v, %v", d, err)
	}
	if _, ok := errors.AsType[*verbs.Error](err); !ok {
		t.Errorf("%v is no *verbs.Error", err)
	}
}
