package providers

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/tryst-rdma/tryst/verbs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestRowsAreComplete: each has what the others rely on, and the name of its provider.
func TestRowsAreComplete(t *testing.T) {
	for _, p := range All() {
		if p.New == nil || p.Name == "" || strings.ContainsAny(p.Name, ", ") || p.Name != p.New(Options{}).Name() {
			t.Errorf("%q: its name is not that of its provider", p.Name)
		}
		if row, ok := Of(p.Name); !ok || row.Order != p.Order {
			t.Errorf("%s: another row has its name", p.Name)
		}
		if !p.RDMA() && (p.Doctor.Device == "" || p.Doctor.Unreached == "" || p.Doctor.Missed == "") {
			t.Errorf("%s: the doctor lacks a text", p.Name)
		}
	}
	if _, ok := Of("auto"); ok {
		t.Error("auto is a provider")
	}
}

// TestOrderIsThatOfRoutes: as Choose in package route prefers devices that both processes have: shared memory, RDMA of the
// kernel, TCP, RDMA in user space.
func TestOrderIsThatOfRoutes(t *testing.T) {
	rank := func(p Row) int {
		switch {
		case p.Local():
			return 1
		case p.RDMA() && p.Kernel:
			return 2
		case p.Link == verbs.LinkTCP:
			return 3
		}
		return 4
	}
	all := Preferred(All())
	for i, p := range all[1:] {
		if before := all[i]; rank(before) > rank(p) || before.Order == p.Order {
			t.Errorf("%s comes before %s", before.Name, p.Name)
		}
	}
}
