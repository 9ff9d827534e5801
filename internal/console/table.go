package console

import (
	"io"
	"strings"
	"unicode/utf8"
)

const (
	// gap is the number of blanks between two columns.
	gap = 2
	// minColumn is how narrow, in characters, a column may become by wrapping its cells.
	minColumn = 8
)

// Table writes rows in columns. The first row has the headings. Cells are lines of printable
// text.
type Table struct {
	// Width is that of the terminal in columns; 0 = no bound. A table that is wider has its
	// widest columns wrapped. Where that is not enough, or where there is one row besides the
	// headings, each row becomes a list of headings and cells.
	Width int
	// AlignRight aligns the cells to the right of their columns.
	AlignRight bool
}

// Write writes the table.
func (t Table) Write(to io.Writer, rows ...[]string) error {
	widths := widthsOf(rows)
	var b strings.Builder
	switch {
	case t.Width == 0 || total(widths) <= t.Width:
	case len(rows) <= 2 || !shrink(widths, t.Width):
		t.writeLists(&b, rows)
		_, err := io.WriteString(to, b.String())
		return err
	}
	for _, row := range rows {
		t.writeRow(&b, row, widths)
	}
	_, err := io.WriteString(to, b.String())
	return err
}

// widthsOf returns the width of each column.
func widthsOf(rows [][]string) []int {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	return widths
}

func total(widths []int) int {
	sum := gap * max(0, len(widths)-1)
	for _, n := range widths {
		sum += n
	}
	return sum
}

// shrink makes the widest columns narrower until all fit. It reports whether they do.
func shrink(widths []int, width int) bool {
	for over := total(widths) - width; over > 0; over-- {
		widest := 0
		for i, n := range widths {
			if n > widths[widest] {
				widest = i
			}
		}
		if widths[widest] <= minColumn {
			return false
		}
		widths[widest]--
	}
	return true
}

// writeRow writes a row, on several lines when cells are wrapped.
func (t Table) writeRow(w *strings.Builder, row []string, widths []int) {
	cells := make([][]string, len(row))
	lines := 1
	for i, cell := range row {
		cells[i] = Wrap(cell, widths[i])
		lines = max(lines, len(cells[i]))
	}
	for line := range lines {
		blanks := 0 // not yet written, since a line does not end in blanks
		for i, cell := range cells {
			text := ""
			if line < len(cell) {
				text = cell[line]
			}
			pad := widths[i] - utf8.RuneCountInString(text)
			if t.AlignRight {
				blanks += pad
				pad = 0
			}
			if text != "" {
				w.WriteString(strings.Repeat(" ", blanks) + text)
				blanks = 0
			}
			blanks += pad + gap
		}
		w.WriteByte('\n')
	}
}

// writeLists writes each row as a list of headings and cells.
func (t Table) writeLists(w *strings.Builder, rows [][]string) {
	if len(rows) == 0 {
		return
	}
	head := 0
	for _, h := range rows[0] {
		head = max(head, utf8.RuneCountInString(h))
	}
	room := t.Width - head - gap
	if room < minColumn {
		room = 0 // the terminal wraps
	}
	for i, row := range rows[1:] {
		if i > 0 {
			w.WriteByte('\n')
		}
		for j, cell := range row {
			for k, text := range Wrap(cell, room) {
				heading := ""
				if k == 0 && j < len(rows[0]) {
					heading = rows[0][j]
				}
				line := heading + strings.Repeat(" ", head+gap-utf8.RuneCountInString(heading)) + text
				w.WriteString(strings.TrimRight(line, " ") + "\n")
			}
		}
	}
}
