package tensortest_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
)

// fakeTB is a testing.TB that records the failures instead of reporting them.
type fakeTB struct {
	testing.TB
	errors   []string
	cleanups []func()
}

func (f *fakeTB) Helper()          {}
func (f *fakeTB) Cleanup(c func()) { f.cleanups = append(f.cleanups, c) }
func (f *fakeTB) Errorf(format string, a ...any) {
	f.errors = append(f.errors, fmt.Sprintf(format, a...))
}
func (f *fakeTB) Fatal(a ...any) { f.errors = append(f.errors, fmt.Sprint(a...)) }

func (f *fakeTB) end() []string {
	for _, c := range slices.Backward(f.cleanups) {
		c()
	}
	return f.errors
}

func allocate(t *testing.T, a *tensortest.Allocator, n int) *tensor.Buffer {
	t.Helper()
	b, err := a.Allocate(n)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// wantError checks that there is one error, with all the parts.
func wantError(t *testing.T, errors []string, parts ...string) {
	t.Helper()
	if len(errors) != 1 {
		t.Fatalf("%d errors: %q", len(errors), errors)
	}
	for _, p := range parts {
		if !strings.Contains(errors[0], p) {
			t.Errorf("%q is not in\n%s", p, errors[0])
		}
	}
}

func leakHere(t *testing.T, a *tensortest.Allocator) *tensor.Buffer { return allocate(t, a, 48) }

func releaseHere(b *tensor.Buffer) { b.Release() }

func TestLeakIsReported(t *testing.T) {
	tb := &fakeTB{}
	a := tensortest.NewAllocator(tb)
	allocate(t, a, 16).Release()
	b := leakHere(t, a)
	if a.Outstanding() != 1 || a.InUse() != 48 {
		t.Errorf("%d outstanding with %d bytes", a.Outstanding(), a.InUse())
	}
	wantError(t, tb.end(), "1 buffers with 48 bytes are not released", "leakHere")
	b.Release()
}

func TestNoLeakIsNotReported(t *testing.T) {
	tb := &fakeTB{}
	a := tensortest.NewAllocator(tb)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for n := range 100 {
				b, err := a.Allocate(n)
				if err != nil {
					t.Error(err)
					return
				}
				for i := range b.Bytes() {
					b.Bytes()[i] = 1
				}
				b.Release()
			}
		})
	}
	wg.Wait()
	if errors := tb.end(); len(errors) != 0 {
		t.Error(errors)
	}
}

func TestLateWriteIsReported(t *testing.T) {
	for _, again := range []bool{false, true} {
		tb := &fakeTB{}
		a := tensortest.NewAllocator(tb)
		b := leakHere(t, a)
		late := b.Bytes()
		releaseHere(b)
		late[5] = 1
		if again { // found when the block is reused
			allocate(t, a, 48).Release()
			wantError(t, tb.errors, "byte 5")
		}
		wantError(t, tb.end(), "byte 5 of a block of 48 bytes was written after its release (0x1)", "leakHere", "releaseHere")
	}
}

func TestReleasedMemoryIsReused(t *testing.T) {
	a := tensortest.NewAllocator(t)
	b := allocate(t, a, 100)
	first := &b.Bytes()[0]
	b.Release()
	b = allocate(t, a, 100)
	defer b.Release()
	if &b.Bytes()[0] != first || b.Bytes()[99] != 0xDB {
		t.Errorf("other memory, or without the pattern (%#x)", b.Bytes()[99])
	}
	big := allocate(t, a, 40<<20)
	big2 := allocate(t, a, 40<<20)
	big.Release()
	big2.Release() // beyond maxIdle: the first is freed
}

func TestWaitAllReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := &fakeTB{}
		a := tensortest.NewAllocator(tb)
		a.WaitAllReleased(0)
		b := leakHere(t, a)
		go func() {
			time.Sleep(time.Second)
			b.Release()
		}()
		a.WaitAllReleased(time.Minute)
		if len(tb.errors) != 0 || a.Outstanding() != 0 {
			t.Fatalf("%d outstanding, errors %q", a.Outstanding(), tb.errors)
		}
		b = leakHere(t, a)
		a.WaitAllReleased(time.Minute)
		wantError(t, tb.errors, "after 1m0s 1 buffers", "leakHere")
		b.Release()
		a.WaitAllReleased(0)
	})
}

func TestLimit(t *testing.T) {
	a := tensortest.NewAllocator(t)
	a.SetLimit(100)
	b := allocate(t, a, 60)
	if _, err := a.Allocate(41); status.CodeOf(err) != status.ResourceExhausted {
		t.Errorf("beyond the limit: %v", err)
	}
	b.Release()
	allocate(t, a, 100).Release()
	if _, err := a.Allocate(-1); status.CodeOf(err) != status.InvalidArgument {
		t.Errorf("-1 bytes: %v", err)
	}
}

func TestRandom(t *testing.T) {
	a := tensortest.NewAllocator(t)
	if n := len(tensortest.AllDTypes()); n != 33 {
		t.Errorf("%d types", n)
	}
	if n := len(tensortest.PlainDTypes()); n != 30 {
		t.Errorf("%d plain types", n)
	}
	for _, dtype := range tensortest.AllDTypes() {
		shape := tensortest.Shape(t, 3, 7)
		x := tensortest.Random(rand.New(rand.NewPCG(1, 2)), dtype, shape, a)
		same := tensortest.Random(rand.New(rand.NewPCG(1, 2)), dtype, shape, a)
		other := tensortest.Random(rand.New(rand.NewPCG(1, 3)), dtype, shape, a)
		tensortest.RequireEqual(t, x, same)
		if tensortest.Diff(x, other) == "" {
			t.Errorf("%v: two seeds give the same elements", dtype)
		}
		if dtype == tensor.Bool {
			if _, err := tensor.Values[bool](x); err != nil {
				t.Error(err)
			}
		}
		for _, y := range []*tensor.Tensor{x, same, other} {
			y.Release()
		}
		tensortest.RequireEqual(t, tensortest.Tensor(t, dtype, 5), tensortest.Tensor(t, dtype, 5))
	}
}

func TestDiff(t *testing.T) {
	vector := func(v ...int16) *tensor.Tensor {
		x, err := tensor.FromSlice(tensor.Vector(len(v)), v)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(x.Release)
		return x
	}
	a := vector(1, 2, 3)
	for _, c := range []struct {
		want, got *tensor.Tensor
		diff      string
	}{
		{a, vector(1, 2, 3), ""},
		{nil, nil, ""},
		{a, vector(1, 2), "got tensor int16[2], want int16[3]"},
		{a, vector(1, 0x0102, 3), "element 1 of int16[3] is 02 01, want 02 00"},
		{tensortest.Strings(t, "a", "b"), tensortest.Strings(t, "a", "c"), `element 1 of string[2] is "c", want "b"`},
	} {
		if diff := tensortest.Diff(c.want, c.got); diff != c.diff {
			t.Errorf("got %q, want %q", diff, c.diff)
		}
	}
	if tensortest.Diff(a, nil) == "" {
		t.Error("Diff of a tensor and nil is empty")
	}
	tb := &fakeTB{}
	tensortest.RequireEqual(tb, a, vector(3, 2, 1))
	wantError(t, tb.errors, "element 0")
}

func TestSequence(t *testing.T) {
	if got := tensortest.Sequence(t, tensor.Uint8, 2, 2).Bytes(); !bytes.Equal(got, []byte{11, 48, 85, 122}) {
		t.Errorf("uint8: % d", got)
	}
	if got := tensortest.Sequence(t, tensor.Bool, 3).Bytes(); !bytes.Equal(got, []byte{1, 0, 1}) {
		t.Errorf("bool: % d", got)
	}
	if got := tensortest.Sequence(t, tensor.String, 3).Elements(); !slices.Equal(got, []string{"", "\v", "\v0Uz"}) {
		t.Errorf("string: %q", got)
	}
}
