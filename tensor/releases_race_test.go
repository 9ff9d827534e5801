//go:build race

package tensor

import (
	"fmt"
	"strings"
	"testing"
)

// panicText returns the text of the panic of f.
func panicText(t *testing.T, f func()) (text string) {
	t.Helper()
	defer func() { text = fmt.Sprint(recover()) }()
	f()
	t.Error("no panic")
	return ""
}

//go:noinline
func releaseFirst(x *Tensor) { x.Release() }

//go:noinline
func releaseAgain(x *Tensor) { x.Release() }

// TestDoubleReleaseShowsTheFirst: in builds with the race detector the panic of a second
// Release shows where the first one was.
func TestDoubleReleaseShowsTheFirst(t *testing.T) {
	x, err := Allocate(NewPool(PoolOptions{}), Float32, Vector(3))
	if err != nil {
		t.Fatal(err)
	}
	releaseFirst(x)
	for range 2 * keptReleases { // a second Release that was recovered does not hide the first
		text := panicText(t, func() { releaseAgain(x) })
		if !strings.HasPrefix(text, "tensor: Release of a released Buffer\n") || !strings.Contains(text, "tensor.releaseFirst\n") || !strings.Contains(text, "releases_race_test.go:") {
			t.Fatalf("the panic does not show the first release:\n%s", text)
		}
		if strings.Contains(text, "tensor.releaseAgain\n") {
			t.Fatalf("the panic shows the second release as an earlier one:\n%s", text)
		}
	}
	for method, use := range map[string]func(){
		"Retain": func() { x.Retain() }, "Bytes": func() { x.Bytes() }, "Unique": func() { x.Buffer().Unique() }, "Elements": func() { x.Elements() },
	} {
		if text := panicText(t, use); !strings.HasPrefix(text, "tensor: "+method+" of a released Buffer\n") || !strings.Contains(text, "tensor.releaseFirst\n") {
			t.Errorf("%s: the panic does not show the release:\n%s", method, text)
		}
	}
}

// TestReleaseOfAnothersReferenceIsShown: when one holder releases twice, the panic comes at the
// other one, and shows both.
func TestReleaseOfAnothersReferenceIsShown(t *testing.T) {
	x, err := FromBytes(Float32, Vector(1), make([]byte, 4))
	if err != nil {
		t.Fatal(err)
	}
	x.Retain()
	releaseFirst(x)
	releaseFirst(x)
	text := panicText(t, x.Release)
	if n := strings.Count(text, "tensor.releaseFirst\n"); n != 2 {
		t.Errorf("the panic shows %d earlier releases, want 2:\n%s", n, text)
	}
}
