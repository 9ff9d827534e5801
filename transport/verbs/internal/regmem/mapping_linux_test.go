package regmem

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
)

func TestHugePageSizeIsRead(t *testing.T) {
	for text, want := range map[string]int{
		"MemTotal: 1 kB\nHugepagesize:       2048 kB\nHugetlb: 0 kB\n": 2 << 20, "Hugepagesize: 1048576 kB": 1 << 30,
		"": 0, "Hugepagesize:": 0, "Hugepagesize: 2048 MB\n": 0, "Hugepagesize: -1 kB\n": 0, "Hugepagesize: 99999999999 kB\n": 0,
	} {
		if got := parseHugePageSize([]byte(text)); got != want {
			t.Errorf("%q: %d", text, got)
		}
	}
}

// Memory of every kind exists, is zero, and is writable to its end.
func TestMappings(t *testing.T) {
	for _, want := range []mapping{pages, lazyPages, goHeap} {
		b, kind, err := mapMemory(4<<20, want)
		if err != nil {
			t.Fatalf("%v: %v", want, err)
		}
		if len(b) != 4<<20 || b[0] != 0 || b[len(b)-1] != 0 || kind != want && kind != hugePages {
			t.Errorf("%v: %d bytes of %v", want, len(b), kind)
		}
		b[len(b)-1] = 1
		unmapMemory(b, kind)
	}
	if _, _, err := mapMemory(1<<46, pages); err == nil {
		t.Error("64 TiB of memory")
	}
}

// TestMemoryAsksForHugePages: content is copied into it, with fewer page faults and misses of the TLB.
// The messages of an idle peer would take 2 MiB with them instead of the pages that were touched.
func TestMemoryAsksForHugePages(t *testing.T) {
	if _, err := os.Stat("/sys/kernel/mm/transparent_hugepage"); err != nil {
		t.Skipf("this kernel has no transparent huge pages: %v", err)
	}
	for _, want := range []mapping{pages, lazyPages} {
		for _, contents := range []bool{true, false} {
			b, kind, err := mapMemory(4<<20, want)
			if err != nil {
				t.Fatal(err)
			}
			if contents {
				copyInto(b, kind)
			}
			if is := asksForHugePages(t, b); kind == want && is != (contents || want == pages) {
				t.Errorf("%v, for contents %v: huge pages are asked for: %v", want, contents, is)
			}
			unmapMemory(b, kind)
		}
	}
}

// asksForHugePages tells whether they are asked for the mapping that begins with b or that the kernel has joined it to.
func asksForHugePages(t *testing.T, b []byte) bool {
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	at, within := uint64(reflect.ValueOf(b).Pointer()), false
	for line := range strings.Lines(string(smaps)) {
		var from, to uint64
		if n, _ := fmt.Sscanf(line, "%x-%x ", &from, &to); n == 2 {
			within = from <= at && at < to
		}
		if flags, ok := strings.CutPrefix(line, "VmFlags:"); ok && within {
			return strings.Contains(flags, " hg")
		}
	}
	t.Fatalf("no mapping holds %#x", at)
	return false
}

// Devices that pin memory never get the Go heap, in any build.
func TestOnlyDevicesThatAreGoGetTheGoHeap(t *testing.T) {
	if got := mappingFor(false); got != pages {
		t.Errorf("%v", got)
	}
	if got := mappingFor(true); raceBuild != (got == goHeap) {
		t.Errorf("%v with the race detector %v", got, raceBuild)
	}
}

// Arenas above maxWatched do not come from the Go heap. Memory for a device that locks it
// is of the same kind at any size.
func TestLargeArenasAreNotWatched(t *testing.T) {
	for _, c := range []struct {
		m    mapping
		size int
		want mapping
	}{
		{goHeap, maxWatched, goHeap}, {goHeap, maxWatched + pageMultiple, lazyPages}, {lazyPages, 2 * maxWatched, lazyPages}, {pages, 2 * maxWatched, pages},
	} {
		if got := c.m.of(c.size); got != c.want {
			t.Errorf("%d bytes of %v come from %v", c.size, c.m, got)
		}
	}
}
