package command

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// TestBarIsOneLine at any width: what has no room is left out, and the time left stays longest.
func TestBarIsOneLine(t *testing.T) {
	s := shown{what: "pull", done: 250e6, total: 548e6, left: "6s left", rate: "50.0 MB/s", detail: "72/160 tensors over verbs"}
	for width, want := range map[int]string{
		100: "pull  45% [=============>                ] 250/548 MB, 50.0 MB/s, 72/160 tensors over verbs, 6s left",
		80:  "pull  45% [====>     ] 250/548 MB, 50.0 MB/s, 72/160 tensors over verbs, 6s left",
		70:  "pull  45% [=====>      ] 50.0 MB/s, 72/160 tensors over verbs, 6s left",
		60:  "pull  45% [=====>       ] 72/160 tensors over verbs, 6s left",
		30:  "pull  45% [====>     ] 6s left",
		20:  "pull  45% 6s left",
		12:  "pull  45%",
		3:   "pul",
		0:   "",
	} {
		if got := s.line(width); got != want {
			t.Errorf("%d columns:\n%q, want\n%q", width, got, want)
		}
	}
	for width := range 140 {
		for _, done := range []int64{0, 1, 250e6, 548e6} {
			s.done = done
			if n := utf8.RuneCountInString(s.line(width)); n > width {
				t.Errorf("%d columns: a line of %d: %q", width, n, s.line(width))
			}
		}
	}
	if got := s.line(139); !strings.HasPrefix(got, "pull 100% ["+strings.Repeat("=", maxBar)+"] ") || !strings.Contains(got, s.detail) {
		t.Errorf("%q", got)
	}
}

func TestFractionText(t *testing.T) {
	for _, c := range []struct {
		done, total int64
		want        string
	}{{250e6, 548e6, "250/548 MB"}, {999e3, 548e6, "999 kB/548 MB"}, {0, 10, "0/10 B"}, {12.3e9, 16.1e9, "12.3/16.1 GB"}} {
		if got := fractionText(c.done, c.total); got != c.want {
			t.Errorf("fractionText(%d, %d) = %q, want %q", c.done, c.total, got, c.want)
		}
	}
}
