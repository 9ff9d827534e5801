package tensortest_test

import (
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/tryst-rdma/tryst"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
)

// The code between "page" and "end" is quoted by docs/leaks.md.

// page
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) } // fails when goroutines are left

func TestPull(t *testing.T) {
	ctx := t.Context()
	sending := tensortest.NewAllocator(t) // fails t when buffers are left
	s, err := tryst.Serve(ctx, tryst.Config{Listen: "127.0.0.1:0"}, tryst.WithAllocator(sending))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(ctx)

	want := tensortest.Tensor(t, tensor.Float32, 2, 3) // random elements, released by t
	x, err := want.Clone(sending)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.PublishTensors(ctx, "model", x.Named("weights"))
	x.Release() // the publication has a reference of its own
	if err != nil {
		t.Fatal(err)
	}

	receiving := tensortest.NewAllocator(t)
	c, err := tryst.Dial(ctx, s.Addr().String(), tryst.Config{}, tryst.WithAllocator(receiving))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(ctx)
	for y, err := range c.Pull(ctx, "model") {
		if err != nil {
			t.Fatal(err)
		}
		tensortest.RequireEqual(t, want, y)
		y.Release() // without this the test fails
	}
}

// end

// TestLeaksPage: docs/leaks.md quotes the code above.
func TestLeaksPage(t *testing.T) {
	source, err := os.ReadFile("leaks_test.go")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/leaks.md")
	if err != nil {
		t.Fatal(err)
	}
	_, code, _ := strings.Cut(string(source), "\n// page\n")
	code, _, ok := strings.Cut(code, "\n// end\n")
	if !ok || !strings.Contains(string(page), "\n```go\n"+code+"```\n") {
		t.Error("docs/leaks.md does not quote the code of leaks_test.go; copy it from // page to // end")
	}
}
