package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tryst-rdma/tryst/internal/statusapi"
)

// cell is a cell of a table. Numbers are sorted by number.
type cell struct {
	text   string
	number float64
	style  style
}

// style is the meaning of a text, which the terminal may show as a colour.
type style int

const (
	plain style = iota
	good
	warn
	bad
	faint
	head
	chosen
)

// column is a column of a table.
type column struct {
	name  string
	right bool // aligned
	grow  int  // its part of the space that is left; 0: as wide as its texts
	least int  // its least width, if it grows
}

// table is what a tab shows.
type table struct {
	columns []column
	rows    [][]cell
	details [][]string // of each row: lines
	empty   string     // what an empty table means
	total   int        // rows before the filter
}

func words(s string) cell { return cell{text: clean(s)} }

func number(text string, n float64) cell { return cell{text: text, number: n} }

func seconds(s float64) cell {
	c := number(age(s), s)
	if s >= longWait {
		c.style = warn
	}
	return c
}

// table returns the table of the present tab, sorted and filtered.
func (m *Model) table() *table {
	t := new(table)
	switch m.tab {
	case tabWaits:
		m.waits(t)
	case tabPeers:
		m.peers(t)
	case tabPulls:
		m.pulls(t)
	case tabSteps:
		m.steps(t)
	case tabGroups:
		m.groups(t)
	case tabLimits:
		m.limits(t)
	default:
		m.warnings(t)
	}
	t.total = len(t.rows)
	t.arrange(m.sort[m.tab], m.reversed[m.tab], m.filter)
	return t
}

// arrange filters and sorts the rows.
func (t *table) arrange(by int, reversed bool, filter string) {
	order := make([]int, 0, len(t.rows))
	for i, row := range t.rows {
		if matches(row, filter) {
			order = append(order, i)
		}
	}
	if by > 0 {
		slices.SortStableFunc(order, func(a, b int) int {
			x, y := t.rows[a][by-1], t.rows[b][by-1]
			return cmp.Or(cmp.Compare(y.number, x.number), strings.Compare(x.text, y.text)) // the largest numbers first
		})
	}
	if reversed {
		slices.Reverse(order)
	}
	rows, details := make([][]cell, len(order)), make([][]string, len(order))
	for i, at := range order {
		rows[i], details[i] = t.rows[at], t.details[at]
	}
	t.rows, t.details = rows, details
}

func (t *table) add(details []string, cells ...cell) {
	t.rows, t.details = append(t.rows, cells), append(t.details, details)
}

// each calls f for each process that has a status.
func (m *Model) each(f func(p *process, s *statusapi.Status)) {
	for i := range m.processes {
		if p := &m.processes[i]; p.status != nil {
			f(p, p.status)
		}
	}
}

// found is a wait, with the processes that report it.
type found struct {
	statusapi.Wait
	from []string
}

// allWaits joins what both sides of a wait report: the receiver knows since when, and the sender why.
func (m *Model) allWaits() []*found {
	var all []*found
	known := make(map[string]*found)
	m.each(func(p *process, s *statusapi.Status) {
		for _, w := range s.Waits.Oldest {
			id := strings.Join([]string{w.Waiter, w.On, w.Key, w.Step, w.Frame, fmt.Sprint(w.Iteration)}, "\x00")
			if w.Kind == statusapi.WaitSpace || w.Kind == statusapi.WaitGroup {
				id += w.Kind + p.address
			}
			other := known[id]
			if other == nil {
				one := &found{w, []string{s.Process.Task}}
				all, known[id] = append(all, one), one
				continue
			}
			other.from = append(other.from, s.Process.Task)
			if w.Kind != statusapi.WaitReceive { // of the sender, who knows more
				other.Kind, other.Detail = w.Kind, w.Detail
			}
			other.Seconds = max(other.Seconds, w.Seconds)
		}
	})
	slices.SortStableFunc(all, func(a, b *found) int { return cmp.Compare(b.Seconds, a.Seconds) })
	return all
}

func (m *Model) waits(t *table) {
	t.columns = []column{{"for", true, 0, 0}, {"key", false, 3, 12}, {"step", true, 0, 0}, {"who waits", false, 1, 12}, {"on whom", false, 1, 12}, {"what is missing", false, 3, 16}}
	t.empty = "nothing waits"
	for _, w := range m.allWaits() {
		step := w.Step
		if w.Frame != "" {
			step += fmt.Sprintf(" %s:%d", w.Frame, w.Iteration)
		}
		details := []string{
			"key       " + clean(w.Key), "step      " + step, "waiter    " + w.Waiter, "waits on  " + w.On, "since     " + w.Since.Local().Format("2006-01-02 15:04:05"),
			"kind      " + w.Kind, "missing   " + clean(w.Detail), "seen by   " + strings.Join(w.from, ", "),
		}
		t.add(details, seconds(w.Seconds), words(w.Key), words(shortStep(step)), words(short(w.Waiter)), words(short(w.On)), words(w.Detail))
	}
}

func (m *Model) peers(t *table) {
	t.columns = []column{{"process", false, 1, 10}, {"peer", false, 1, 10}, {"state", false, 0, 0}, {"route", false, 0, 0}, {"sent/s", true, 0, 0}, {"received/s", true, 0, 0}, {"sent", true, 0, 0}, {"received", true, 0, 0}, {"waits", true, 0, 0}, {"why", false, 2, 10}}
	t.empty = "no peers"
	m.each(func(_ *process, s *statusapi.Status) {
		for _, p := range s.Peers {
			state := words(p.State)
			switch p.State {
			case "up":
				state.style = good
			case "down", statusapi.PeerSilent:
				state.style = bad
			case "connecting":
				state.style = warn
			default:
				state.style = faint
			}
			why := cmp.Or(p.Error, p.Reason)
			details := []string{
				"process   " + s.Process.Task, "peer      " + p.Task, "state     " + p.State + since(p), "route     " + p.Route + " " + p.Device, "address   " + p.Address,
				fmt.Sprintf("breaks    %d", p.Breaks), "reason    " + clean(p.Reason), "error     " + clean(p.Error),
			}
			t.add(details, words(short(s.Process.Task)), words(short(p.Task)), state, words(p.Route), rate(p.SentPerSecond), rate(p.ReceivedPerSecond), bytes(p.SentBytes), bytes(p.ReceivedBytes), number(fmt.Sprint(p.Waits), float64(p.Waits)), words(why))
		}
	})
}

func since(p statusapi.Peer) string {
	if p.Since.IsZero() {
		return ""
	}
	return " since " + p.Since.Local().Format("2006-01-02 15:04:05")
}

func (m *Model) pulls(t *table) {
	t.columns = []column{{"process", false, 1, 10}, {"publication", false, 2, 10}, {"puller", false, 2, 10}, {"address", false, 1, 12}, {"for", true, 0, 0}, {"sent", true, 0, 0}, {"of", true, 0, 0}, {"done", false, 0, 0}}
	t.empty = "no pulls are under way"
	m.each(func(_ *process, s *statusapi.Status) {
		for _, p := range s.Publish.Pulls {
			part := 1.0
			if p.Bytes > 0 {
				part = float64(p.Sent) / float64(p.Bytes)
			}
			details := []string{"publication  " + clean(p.Publication), "version      " + p.Version, "puller       " + p.Puller, "address      " + p.Address, fmt.Sprintf("tensors      %d", p.Tensors), fmt.Sprintf("watchers     %d of the publication", watchersOf(s, p.Publication))}
			t.add(details, words(short(s.Process.Task)), words(p.Publication), words(short(p.Puller)), words(p.Address), number(age(p.Seconds), p.Seconds), bytes(p.Sent), bytes(p.Bytes), number(bar(part, 10), part))
		}
	})
}

// watchersOf returns how many watchers a publication has.
func watchersOf(s *statusapi.Status, publication string) int {
	for _, p := range s.Publish.Publications {
		if p.Name == publication && p.Current {
			return p.Watchers
		}
	}
	return 0
}

func (m *Model) steps(t *table) {
	t.columns = []column{{"process", false, 1, 10}, {"step", true, 0, 0}, {"age", true, 0, 0}, {"begun", false, 0, 0}, {"waits", true, 0, 0}, {"unreceived", true, 0, 0}, {"such as", false, 3, 16}}
	t.empty = "no steps"
	m.each(func(_ *process, s *statusapi.Status) {
		for _, p := range s.Steps.Oldest {
			begun := "yes"
			if !p.Begun {
				begun = "no"
			}
			details := append([]string{"step        " + p.Step, "unreceived  values that were sent and nobody has asked for:"}, p.UnreceivedKeys...)
			t.add(details, words(short(s.Process.Task)), words(shortStep(p.Step)), number(age(p.Seconds), p.Seconds), words(begun), number(fmt.Sprint(p.Waits), float64(p.Waits)), number(fmt.Sprint(p.Unreceived), float64(p.Unreceived)), words(strings.Join(p.UnreceivedKeys, ", ")))
		}
	})
}

func (m *Model) groups(t *table) {
	t.columns = []column{{"process", false, 1, 10}, {"group", true, 0, 0}, {"joined", true, 0, 0}, {"age", true, 0, 0}, {"missing", false, 3, 16}}
	t.empty = "no groups of collective operations, and no sessions of TensorFlow"
	m.each(func(_ *process, s *statusapi.Status) {
		for _, g := range s.Groups.Oldest {
			missing := cell{text: "complete", style: good}
			if !g.Complete {
				missing = cell{text: clean(strings.Join(g.Missing, ", ")), style: warn}
				if len(g.Missing) == 0 {
					missing.text = fmt.Sprintf("%d members", g.Size-g.Joined)
				}
			}
			t.add(append([]string{"joined:"}, g.Members...), words(short(s.Process.Task)), words(fmt.Sprint(g.Key)), number(fmt.Sprintf("%d/%d", g.Joined, g.Size), float64(g.Joined)), number(age(g.Seconds), g.Seconds), missing)
		}
		for _, x := range s.Sessions.Oldest {
			age_ := 0.0
			if len(x.Running) > 0 {
				age_ = x.Running[0].Seconds
			}
			details := []string{"session   " + clean(x.Handle), "master    " + clean(x.Master), "task      " + x.Task}
			for _, r := range x.Running {
				details = append(details, fmt.Sprintf("step %s runs for %s", r.Step, age(r.Seconds)))
			}
			t.add(details, words(short(s.Process.Task)), words("session"), number(fmt.Sprint(x.Graphs, " graphs"), float64(x.Graphs)), number(age(age_), age_), words(fmt.Sprintf("%d steps run for %s", x.Steps, cmp.Or(clean(x.Master), clean(x.Handle), "masters without sessions"))))
		}
	})
}

func (m *Model) limits(t *table) {
	t.columns = []column{{"process", false, 1, 10}, {"limit", false, 2, 16}, {"used", true, 0, 0}, {"of", true, 0, 0}, {"full", false, 0, 0}, {"setting", false, 1, 8}}
	m.each(func(_ *process, s *statusapi.Status) {
		for _, l := range s.Limits {
			show := func(n int64) cell {
				if l.Unit == "bytes" {
					return bytes(n)
				}
				return number(fmt.Sprint(n), float64(n))
			}
			most, full := words("none"), cell{}
			if l.Most > 0 {
				part := float64(l.Used) / float64(l.Most)
				most, full = show(l.Most), number(fmt.Sprintf("%s %3.0f%%", bar(part, 10), 100*part), part)
				if part > 0.9 {
					full.style = bad
				}
			}
			t.add(nil, words(short(s.Process.Task)), words(l.Name), show(l.Used), most, full, words(l.Setting))
		}
	})
}

func (m *Model) warnings(t *table) {
	t.columns = []column{{"process", false, 1, 10}, {"ago", true, 0, 0}, {"level", false, 0, 0}, {"times", true, 0, 0}, {"line", false, 4, 20}}
	t.empty = "no warnings"
	m.each(func(p *process, s *statusapi.Status) {
		for _, w := range s.Warnings {
			text, details := w.Message, []string{clean(w.Message)}
			for _, a := range w.Attributes {
				text += " " + a.Key + "=" + a.Value
				details = append(details, clean(a.Key)+" = "+clean(a.Value))
			}
			level := cell{text: w.Level, style: warn}
			if w.Level == "ERROR" {
				level.style = bad
			}
			ago := s.Time.Sub(w.Time).Seconds()
			t.add(details, words(short(s.Process.Task)), number(age(ago), -ago), level, number(fmt.Sprint(w.Count), float64(w.Count)), words(text))
		}
	})
}
