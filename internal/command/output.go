package command

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/tryst-rdma/tryst/internal/console"
)

// toStdout is the value of --out that means stdout.
const toStdout = "-"

// isTerminal reports whether w is a terminal.
func isTerminal(w io.Writer) bool {
	if o, ok := w.(*output); ok {
		w = o.to
	}
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// writeTable writes rows in columns that fit the terminal. The first row has the headings.
func writeTable(w io.Writer, rows ...[]string) error {
	for _, row := range rows {
		for i, cell := range row {
			row[i] = printable(cell)
		}
	}
	return console.Table{Width: console.Width(w)}.Write(w, rows...)
}

// writeJSON writes v as one line.
func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// printable returns s as one line without control characters: names and messages may
// come from a peer. It also escapes bytes that are not UTF-8: a terminal may interpret
// them, and columns are counted in runes.
func printable(s string) string {
	if utf8.ValidString(s) && !strings.ContainsFunc(s, unprintable) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case unprintable(r):
			quoted := strconv.QuoteRune(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		default:
			b.WriteRune(r)
		}
		s = s[size:]
	}
	return b.String()
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }

// byteText formats a number of bytes in powers of 1000, as the rates of links are.
func byteText(n float64) string {
	units := []string{"B", "kB", "MB", "GB", "TB", "PB"}
	u := 0
	for n >= 999.5 && u < len(units)-1 { // 999.5 would be formatted as 1000
		n /= 1000
		u++
	}
	decimals := 0
	if u > 0 && n < 99.95 { // at most three digits
		decimals = 1
	}
	return strconv.FormatFloat(n, 'f', decimals, 64) + " " + units[u]
}

// secondsText formats a duration as seconds with three decimals.
func secondsText(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds(), 'f', 3, 64) + " s"
}
