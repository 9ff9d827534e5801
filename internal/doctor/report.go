package doctor

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tryst-rdma/tryst/internal/console"
)

// Level is the result of a check.
type Level uint8

// The levels, in ascending severity.
const (
	OK Level = iota
	Warn
	Fail
)

func (l Level) String() string { return [...]string{"OK", "WARN", "FAIL"}[min(l, Fail)] }

// MarshalText implements encoding.TextMarshaler.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (l *Level) UnmarshalText(b []byte) error {
	for _, v := range []Level{OK, Warn, Fail} {
		if v.String() == string(b) {
			*l = v
			return nil
		}
	}
	return fmt.Errorf("%q: want OK, WARN or FAIL", b)
}

// Line is the result of one check.
type Line struct {
	Level Level `json:"level"`
	// Check names what was checked: "kernel", "mlx5_0 port 1", "peer /job:…".
	Check string `json:"check"`
	// Text is the finding.
	Text string `json:"text"`
	// Do is what to do about it; empty with OK, or if there is nothing to do.
	Do string `json:"do,omitempty"`
}

// Report has the results of all checks. A check comes after those that it depends on.
type Report []Line

// Worst returns the most severe level.
func (r Report) Worst() Level {
	worst := OK
	for _, l := range r {
		worst = max(worst, l.Level)
	}
	return worst
}

// Count returns the number of lines with a level.
func (r Report) Count(level Level) int {
	n := 0
	for _, l := range r {
		if l.Level == level {
			n++
		}
	}
	return n
}

// minText is the least width, in columns, of the texts on a terminal. On a narrower one the
// terminal wraps.
const minText = 20

// WriteText writes a line of text for each check, and what to do below it. On a terminal the
// texts are wrapped.
func (r Report) WriteText(w io.Writer) error { return r.writeText(w, console.Width(w)) }

func (r Report) writeText(w io.Writer, columns int) error {
	width := 0
	for _, l := range r {
		width = max(width, len([]rune(l.Check)))
	}
	indent := 6 + width + 2 // of the texts
	room := columns - indent
	if room < minText {
		room = 0
	}
	for _, l := range r {
		first := fmt.Sprintf("%-4s  %-*s  ", l.Level, width, printable(l.Check))
		if err := writeHanging(w, first, console.Wrap(printable(l.Text), room)); err != nil {
			return err
		}
		if l.Do == "" {
			continue
		}
		if err := writeHanging(w, strings.Repeat(" ", indent), console.Wrap("do: "+printable(l.Do), room)); err != nil {
			return err
		}
	}
	return nil
}

// writeHanging writes the first of the lines after a text, and the others below it.
func writeHanging(w io.Writer, first string, lines []string) error {
	for i, line := range lines {
		if i > 0 {
			first = strings.Repeat(" ", utf8.RuneCountInString(first))
		}
		if _, err := fmt.Fprintln(w, first+line); err != nil {
			return err
		}
	}
	return nil
}

// WriteJSON writes a line of JSON for each check.
func (r Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	for _, l := range r {
		if err := e.Encode(l); err != nil {
			return err
		}
	}
	return nil
}

// printable returns s as one line without control characters: names and errors may come
// from a peer.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '\ufffd'
	}, strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' }), "; "))
}
