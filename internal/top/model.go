package top

import (
	"slices"
	"strings"
	"time"

	"github.com/tryst-rdma/tryst/internal/statusapi"
)

// Model is what top shows. It is a value: Update returns the next one.
type Model struct {
	processes []process
	width     int
	height    int
	tab       tab
	sort      [tabs]int // the column that each tab is sorted by, counted from 1; 0: as it comes
	reversed  [tabs]bool
	filter    string
	typing    bool // keys go into filter
	help      bool
	selected  int // row of the present tab
	detail    bool
	paused    bool
	done      bool
	now       time.Time
}

// process is a process, with its last status.
type process struct {
	address string
	status  *statusapi.Status // nil before the first
	at      time.Time         // of status
	err     error             // of the last request
}

// tab is a view.
type tab int

const (
	tabWaits tab = iota
	tabPeers
	tabPulls
	tabSteps
	tabGroups
	tabLimits
	tabWarnings
	tabs int = iota
)

var tabNames = [tabs]string{"Waits", "Peers", "Pulls", "Steps", "Groups", "Limits", "Warnings"}

// New returns a Model of processes, by their metrics addresses.
func New(addresses []string) Model {
	m := Model{width: leastWidth, height: 24}
	for _, a := range addresses {
		m.processes = append(m.processes, process{address: a})
	}
	return m
}

// Done reports whether the user has ended it.
func (m Model) Done() bool { return m.done }

// Update returns the Model after a message.
func (m Model) Update(message any) Model {
	switch message := message.(type) {
	case Fetched:
		m.fetched(message)
	case Size:
		m.width, m.height = message.Width, message.Height
	case Key:
		m.key(string(message))
	}
	m.selected = max(0, min(m.selected, len(m.table().rows)-1))
	return m
}

func (m *Model) fetched(f Fetched) {
	if m.paused {
		return
	}
	m.now = f.Time
	m.processes = slices.Clone(m.processes) // the Model before keeps its own
	for i := range m.processes {
		if p := &m.processes[i]; p.address == f.Address {
			p.err = f.Err
			if f.Status != nil {
				p.status, p.at = f.Status, f.Time
			}
		}
	}
}

func (m *Model) key(k string) {
	switch {
	case k == "ctrl+c":
		m.done = true
	case m.typing:
		m.typeKey(k)
	case m.help:
		m.help = false
	default:
		m.command(k)
	}
}

// typeKey changes the filter.
func (m *Model) typeKey(k string) {
	switch k {
	case "enter":
		m.typing = false
	case "esc":
		m.typing, m.filter = false, ""
	case "backspace":
		r := []rune(m.filter)
		m.filter = string(r[:max(0, len(r)-1)])
	case "space":
		m.filter += " "
	default:
		if r := []rune(k); len(r) == 1 && r[0] >= ' ' && len(m.filter) < maxFilter {
			m.filter += k
		}
	}
}

func (m *Model) command(k string) {
	switch k {
	case "q":
		m.done = true
	case "?", "h":
		m.help = true
	case "p", "space":
		m.paused = !m.paused
	case "/":
		m.typing, m.filter = true, ""
	case "esc":
		if m.detail {
			m.detail = false
		} else {
			m.filter = ""
		}
	case "enter":
		m.detail = !m.detail
	case "tab", "right", "l":
		m.show((m.tab + 1) % tab(tabs))
	case "shift+tab", "left":
		m.show((m.tab + tab(tabs) - 1) % tab(tabs))
	case "s":
		m.sort[m.tab] = (m.sort[m.tab] + 1) % (len(m.table().columns) + 1)
	case "r":
		m.reversed[m.tab] = !m.reversed[m.tab]
	default:
		m.move(k)
	}
}

func (m *Model) move(k string) {
	page := max(1, m.height-8)
	switch k {
	case "up", "k":
		m.selected--
	case "down", "j":
		m.selected++
	case "pgup":
		m.selected -= page
	case "pgdown":
		m.selected += page
	case "home", "g":
		m.selected = 0
	case "end", "G":
		m.selected = 1 << 30
	default:
		if len(k) == 1 && k[0] >= '1' && int(k[0]-'1') < tabs {
			m.show(tab(k[0] - '1'))
		}
	}
}

func (m *Model) show(t tab) { m.tab, m.selected, m.detail = t, 0, false }

// matches reports whether a row passes the filter: it has each of its words, in any case.
func matches(row []cell, filter string) bool {
	var all strings.Builder
	for _, c := range row {
		all.WriteString(strings.ToLower(c.text) + " ")
	}
	text := all.String()
	for word := range strings.FieldsSeq(strings.ToLower(filter)) {
		if !strings.Contains(text, word) {
			return false
		}
	}
	return true
}
