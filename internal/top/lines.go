package top

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/tryst-rdma/tryst/internal/statusapi"
)

// paint shows a text in a style.
func paint(s string, as style) string {
	switch as {
	case good:
		return lipgloss.NewStyle().Foreground(lipgloss.Green).Render(s)
	case warn:
		return lipgloss.NewStyle().Foreground(lipgloss.Yellow).Render(s)
	case bad:
		return lipgloss.NewStyle().Foreground(lipgloss.Red).Bold(true).Render(s)
	case faint:
		return lipgloss.NewStyle().Faint(true).Render(s)
	case head:
		return lipgloss.NewStyle().Bold(true).Render(s)
	case chosen:
		return lipgloss.NewStyle().Reverse(true).Render(s)
	default:
		return s
	}
}

// Lines returns the screen: as many lines as it is high, each as wide as the screen at most.
func (m Model) Lines() []string {
	lines := append(m.header(), m.tabLine())
	rest := m.height - len(lines) - 1
	if m.help {
		lines = append(lines, helpLines...)
	} else {
		lines = append(lines, m.body(rest)...)
	}
	for len(lines) < m.height-1 {
		lines = append(lines, "")
	}
	lines = append(lines[:max(0, min(len(lines), m.height-1))], m.footer())
	for i := range lines {
		lines[i] = ansi.Truncate(lines[i], m.width, "")
	}
	return lines
}

// header has a line for each process.
func (m *Model) header() (lines []string) {
	room := max(1, m.height/4)
	for i := range m.processes {
		if i == room-1 && len(m.processes) > room {
			return append(lines, paint(fmt.Sprintf("and %d more processes", len(m.processes)-i), faint))
		}
		lines = append(lines, m.processLine(&m.processes[i]))
	}
	return lines
}

func (m *Model) processLine(p *process) string {
	if p.status == nil {
		if p.err != nil {
			return paint(p.address, head) + " " + paint(clean(p.err.Error()), bad)
		}
		return paint(p.address, head) + " " + paint("connecting", faint)
	}
	s := p.status
	state := paint(s.Process.State, good)
	if s.Process.State != "ready" {
		state = paint(s.Process.State, warn)
	}
	if p.err != nil {
		state = paint(fmt.Sprintf("no answer for %s: %s", age(m.now.Sub(p.at).Seconds()), clean(p.err.Error())), bad)
	}
	up := 0
	for i := range s.Peers {
		if s.Peers[i].State == "up" {
			up++
		}
	}
	sent, received := rates(s)
	line := fmt.Sprintf("%s %s  up %s  peers %d/%d  waits %s  ▲%s/s ▼%s/s", paint(short(s.Process.Task), head), state, age(s.Process.UptimeSeconds), up, len(s.Peers), waitCount(s), size(sent), size(received))
	if room := m.width - ansi.StringWidth(line) - 2; room >= 10 && s.History != nil {
		line += "  " + spark(sumHistory(s.History), min(room, 60))
	}
	return line
}

func waitCount(s *statusapi.Status) string {
	text := fmt.Sprint(s.Waits.Total)
	if !s.Waits.Complete {
		text += "+"
	}
	if len(s.Waits.Oldest) > 0 && s.Waits.Oldest[0].Seconds >= longWait {
		return paint(text+" (oldest "+age(s.Waits.Oldest[0].Seconds)+")", warn)
	}
	return text
}

func rates(s *statusapi.Status) (sent, received int64) {
	for _, r := range s.Routes {
		sent, received = sent+r.SentPerSecond, received+r.ReceivedPerSecond
	}
	return sent, received
}

func sumHistory(h *statusapi.History) (sum []int64) {
	for _, r := range h.Routes {
		for len(sum) < max(len(r.Sent), len(r.Received)) {
			sum = append(sum, 0)
		}
		for i := range r.Sent {
			sum[i] += r.Sent[i]
		}
		for i := range r.Received {
			sum[i] += r.Received[i]
		}
	}
	return sum
}

func (m *Model) tabLine() string {
	var names []string
	for i, name := range tabNames {
		name = fmt.Sprintf("%d %s", i+1, name)
		if tab(i) == m.tab {
			name = paint("["+name+"]", head)
		} else {
			name = paint(" "+name+" ", faint)
		}
		names = append(names, name)
	}
	return strings.Join(names, "")
}

// body shows the table and, below it, what the selected row has no space for.
func (m *Model) body(height int) []string {
	t := m.table()
	if len(t.rows) == 0 {
		text := t.empty
		if t.total > 0 {
			text = "nothing matches " + m.filter
		}
		return []string{"", "  " + paint(text, faint)}
	}
	var details []string
	if m.detail {
		details = append([]string{paint(strings.Repeat("─", m.width), faint)}, t.details[m.selected]...)
		details = details[:min(len(details), max(0, height-4))]
	}
	lines := t.lines(m.width, m.sort[m.tab], m.reversed[m.tab])
	rows := max(1, height-1-len(details))
	first := max(0, min(m.selected-rows/2, len(t.rows)-rows))
	shown := lines[1:][first:min(first+rows, len(t.rows))]
	out := []string{lines[0]}
	for i, line := range shown {
		if first+i == m.selected {
			line = paint(ansi.Strip(line), chosen)
		}
		out = append(out, line)
	}
	for len(out) < height-len(details) && len(details) > 0 {
		out = append(out, "")
	}
	return append(out, details...)
}

// lines returns the head and the rows, cut to a width.
func (t *table) lines(width, by int, reversed bool) []string {
	widths := t.widths(width)
	row := make([]string, len(t.columns))
	for i, c := range t.columns {
		name := c.name
		if by == i+1 {
			name += map[bool]string{false: "▼", true: "▲"}[reversed]
		}
		row[i] = paint(fit(name, widths[i], c.right), head)
	}
	out := []string{strings.TrimRight(strings.Join(row, " "), " ")}
	for _, cells := range t.rows {
		for i, c := range cells {
			row[i] = paint(fit(c.text, widths[i], t.columns[i].right), c.style)
		}
		out = append(out, strings.TrimRight(strings.Join(row, " "), " "))
	}
	return out
}

// widths divides a width among the columns: each that does not grow gets what its texts take, and the others share the rest, but
// take no more than their texts need while another one needs more.
func (t *table) widths(width int) []int {
	need, widths := make([]int, len(t.columns)), make([]int, len(t.columns))
	left := width - (len(t.columns) - 1)
	var growing []int
	for i, c := range t.columns {
		need[i] = ansi.StringWidth(c.name) + 1
		for _, row := range t.rows {
			need[i] = max(need[i], ansi.StringWidth(row[i].text))
		}
		if c.grow > 0 {
			growing = append(growing, i)
			continue
		}
		widths[i] = need[i]
		left -= need[i]
	}
	slices.SortStableFunc(growing, func(a, b int) int { return need[a]*t.columns[b].grow - need[b]*t.columns[a].grow })
	for at, i := range growing { // those that need least for their share first, so that the rest is known
		parts := 0
		for _, j := range growing[at:] {
			parts += t.columns[j].grow
		}
		share := left * t.columns[i].grow / max(parts, 1)
		widths[i] = max(min(need[i], share), min(t.columns[i].least, need[i], max(left, 4)))
		left -= widths[i]
	}
	return widths
}

func (m *Model) footer() string {
	switch {
	case m.typing:
		return "/" + m.filter + "█"
	case m.help:
		return paint("any key: back", faint)
	}
	text := "q quit  ←→ view  ↑↓ row  enter detail  / filter  s sort  r reverse  p pause  ? help"
	if m.filter != "" {
		text = "filter: " + m.filter + " (esc: none)  " + text
	}
	if m.paused {
		text = paint("PAUSED", warn) + "  " + text
	}
	return text
}

var helpLines = []string{
	"",
	"  1–7, tab, ← →   another view: waits, peers, pulls, steps, groups and sessions, limits, warnings",
	"  ↑ ↓ k j         another row; page up, page down, home, end",
	"  enter           all of the row; esc: back",
	"  /               filter: rows that have each word; enter: keep it, esc: none",
	"  s, r            sort by the next column; the other way round",
	"  p, space        stop and go on",
	"  q, Ctrl-C       quit",
	"",
	"  A job hangs? The first line of Waits is the longest wait: its key, who waits, on whom, and what",
	"  is missing. Give top the metrics addresses of all processes: it then joins what both sides know.",
}

// Once returns all tables that are not empty, for a pipe: at most onceRows rows of each, with width characters in a line.
func (m Model) Once(width int) []string {
	m.width, m.height = width, 1<<20
	lines := m.header()
	for t := range tab(tabs) {
		m.tab = t
		table := m.table()
		if len(table.rows) == 0 || t == tabLimits {
			continue
		}
		lines = append(lines, "", tabNames[t])
		all := table.lines(width, 0, false)
		lines = append(lines, all[:min(len(all), onceRows+1)]...)
		if more := len(all) - 1 - onceRows; more > 0 {
			lines = append(lines, fmt.Sprintf("and %d more", more))
		}
	}
	for i := range lines {
		lines[i] = strings.TrimRight(ansi.Strip(lines[i]), " ")
	}
	return lines
}

// Failed returns the addresses that have never answered, with the reasons.
func (m Model) Failed() map[string]error {
	failed := make(map[string]error)
	for i := range m.processes {
		if p := &m.processes[i]; p.status == nil {
			failed[p.address] = p.err
		}
	}
	return maps.Clone(failed)
}
