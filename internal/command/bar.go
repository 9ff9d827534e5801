package command

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// minBar and maxBar bound the bar itself, in columns. Without room for minBar there is none.
const (
	minBar = 8
	maxBar = 40
)

// shown is what a bar shows.
type shown struct {
	what        string // "pull"
	done, total int64  // bytes
	left        string // "9s left", or how long all took
	rate        string // "50.0 MB/s"; empty without one
	detail      string // "72/160 tensors over verbs"; empty without one
}

// line returns a line of at most width columns. What has no room is left out, the least
// important part first: the bytes, the rate, the detail, the bar, the time left.
//
//	pull  45% [====>     ] 250/548 MB, 50.0 MB/s, 72/160 tensors over verbs, 6s left
//	pull  45% [====>    ] 6s left
func (s shown) line(width int) string {
	begin := fmt.Sprintf("%s %3d%%", s.what, percent(s.done, s.total))
	bytes := fractionText(s.done, s.total)
	const frame = len(" [] ") // of the bar
	for _, parts := range [][]string{{bytes, s.rate, s.detail, s.left}, {s.rate, s.detail, s.left}, {s.detail, s.left}, {s.left}} {
		text := join(parts)
		if room := width - utf8.RuneCountInString(begin) - frame - utf8.RuneCountInString(text); room >= minBar {
			return begin + " [" + drawn(s.done, s.total, min(room, maxBar)) + "] " + text
		}
	}
	if text := strings.TrimSuffix(begin+" "+s.left, " "); len(text) <= width {
		return text
	}
	return begin[:min(len(begin), max(width, 0))]
}

// text returns a line for a log.
func (s shown) text() string {
	begin := fmt.Sprintf("%s: %s of %s (%d%%)", s.what, byteText(float64(s.done)), byteText(float64(s.total)), percent(s.done, s.total))
	return join([]string{begin, s.rate, s.detail, s.left})
}

// fractionText formats done of total bytes in the unit of total: "250/548 MB".
func fractionText(done, total int64) string {
	text := byteText(float64(total))
	_, unit, _ := strings.Cut(text, " ")
	number, ofDone, _ := strings.Cut(byteText(float64(done)), " ")
	if ofDone != unit {
		number += " " + ofDone
	}
	return number + "/" + text
}

// join lists the parts that are not empty.
func join(parts []string) string {
	var some []string
	for _, p := range parts {
		if p != "" {
			some = append(some, p)
		}
	}
	return strings.Join(some, ", ")
}

// drawn returns a bar without its frame.
func drawn(done, total int64, width int) string {
	n := int(float64(done) / float64(total) * float64(width))
	if n >= width {
		return strings.Repeat("=", width)
	}
	return strings.Repeat("=", n) + ">" + strings.Repeat(" ", width-n-1)
}

func percent(done, total int64) int { return int(float64(done) / float64(total) * 100) }
