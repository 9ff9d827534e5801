package top

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"
)

// clean returns a text that a process sent so that it cannot steer the terminal.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 || r == '\u2028' || r == '\u2029' || r >= '\u202a' && r <= '\u202e' || r >= '\u2066' && r <= '\u2069' {
			return '·'
		}
		return r
	}, ansi.Strip(s))
}

// short returns the name of a task without what is the same in most: job:index.
func short(task string) string {
	s := strings.Replace(strings.TrimPrefix(task, "/job:"), "/replica:0", "", 1)
	return strings.Replace(s, "/task:", ":", 1)
}

// shortStep shows the end of a long number, which tells the steps of pulls and of masters apart.
func shortStep(step string) string {
	if len(step) > 10 {
		return "…" + step[len(step)-6:]
	}
	return step
}

// age shows a duration in at most 6 characters.
func age(seconds float64) string {
	switch d := time.Duration(max(0, min(seconds, 1e9)) * float64(time.Second)); {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < 100*time.Second:
		return fmt.Sprintf("%.0fs", d.Seconds())
	case d < 100*time.Minute:
		return fmt.Sprintf("%dm%02d", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02d", int(d.Hours()), int(d.Minutes())%60)
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}

// size shows bytes with three digits.
func size(n int64) string {
	f, unit := float64(n), "B"
	for _, u := range []string{"kB", "MB", "GB", "TB", "PB"} {
		if math.Abs(f) < 999.5 {
			break
		}
		f, unit = f/1000, u
	}
	if unit == "B" || f >= 99.95 {
		return fmt.Sprintf("%.0f%s", f, unit)
	}
	return fmt.Sprintf("%.1f%s", f, unit)
}

func bytes(n int64) cell {
	c := number(size(n), float64(n))
	if n == 0 {
		c.text, c.style = "–", faint
	}
	return c
}

func rate(n int64) cell { return bytes(n) }

// bar shows a part of width.
func bar(part float64, width int) string {
	n := int(math.Round(max(0, min(part, 1)) * float64(width)))
	return strings.Repeat("█", n) + strings.Repeat("░", width-n)
}

// spark shows numbers as a line of bars of eight heights, the newest at the right.
func spark(values []int64, width int) string {
	levels := []rune("▁▂▃▄▅▆▇█")
	values = values[max(0, len(values)-width):]
	most := int64(1)
	for _, v := range values {
		most = max(most, v)
	}
	var b strings.Builder
	for _, v := range values {
		at := 0
		if v > 0 {
			at = 1 + int(float64(v)/float64(most)*float64(len(levels)-2))
		}
		b.WriteRune(levels[at])
	}
	return b.String()
}

// fit cuts or fills a text to a width.
func fit(s string, width int, right bool) string {
	if width <= 0 {
		return ""
	}
	s = ansi.Truncate(s, width, "…")
	space := strings.Repeat(" ", max(0, width-ansi.StringWidth(s)))
	if right {
		return space + s
	}
	return s + space
}
