package command

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/tryst-rdma/tryst/internal/console"
)

const (
	// barEvery is the least time between two drawings of the bar.
	barEvery = 100 * time.Millisecond
	// lineEvery is the least time between two plain lines, and before the first
	// one. It keeps logs short, and the first line has a meaningful rate.
	lineEvery = time.Second
	// defaultWidth is the width in columns of a terminal that does not tell it.
	defaultWidth = 80
)

// progress shows the progress of a command: as a bar on a terminal, as lines elsewhere.
// Logs of the command are written through it, so that they do not overwrite the bar. It
// is safe for concurrent use.
type progress struct {
	what     string
	out      io.Writer
	terminal bool
	begin    time.Time

	mu    sync.Mutex // guards what follows
	meter meter
	last  time.Time // of the last line or drawing; begin before the first line
	drawn int       // columns of the bar on the terminal; 0 when there is none
	done  bool      // nothing more is shown
}

// newProgress returns the progress of what, shown on w. The caller must call end.
func newProgress(w io.Writer, what string) *progress {
	now := time.Now()
	p := &progress{what: what, out: w, begin: now, last: now}
	p.meter.update(now, 0)
	p.terminal = isTerminal(w)
	return p
}

// update shows that done of total bytes are complete.
func (p *progress) update(done, total int64) { p.updateWith(done, total, nil) }

// updateWith is update with a text about what has come. detail is called when it is shown;
// nil for no text.
func (p *progress) updateWith(done, total int64, detail func() string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done || total <= 0 { // nothing to wait for
		return
	}
	now := time.Now()
	p.meter.update(now, done)
	p.done = done >= total
	every := lineEvery
	if p.terminal {
		every = barEvery
	}
	first := p.terminal && p.drawn == 0
	if !p.done && !first && now.Sub(p.last) < every {
		return
	}
	p.last = now
	s := shown{what: p.what, done: done, total: total}
	if detail != nil {
		s.detail = detail()
	}
	p.times(&s, now)
	if !p.terminal {
		fmt.Fprintln(p.out, s.text())
		return
	}
	p.draw(s)
	if p.done {
		fmt.Fprintln(p.out)
	}
}

// times adds the rate and the time left, in the end those of the whole.
func (p *progress) times(s *shown, now time.Time) {
	rate, ok := p.meter.rate()
	switch left, known := p.meter.left(s.total - s.done); {
	case p.done:
		rate, ok = p.meter.mean(now, s.done)
		if p.terminal { // lines have it from the log that they are in
			s.left = "in " + now.Sub(p.begin).Round(time.Second/10).String()
		}
	case known:
		s.left = leftText(left)
	}
	if ok && rate > 0 {
		s.rate = byteText(rate) + "/s"
	}
}

// draw draws the bar over the last one.
func (p *progress) draw(s shown) {
	width := console.Width(p.out)
	if width == 0 { // it cannot be told
		width = defaultWidth
	}
	// The last column stays free: some terminals begin a new line after it.
	line := s.line(width - 1)
	n := utf8.RuneCountInString(line)
	_, _ = fmt.Fprint(p.out, "\r", line, strings.Repeat(" ", max(0, min(p.drawn, width-1)-n))) // a terminal that cannot be written to shows no bar
	p.drawn = n
}

// skip says that n of the bytes were complete before.
func (p *progress) skip(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.meter.skip(n)
}

// end ends the line of a bar that is not complete.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.drawn > 0 && !p.done {
		fmt.Fprintln(p.out)
	}
	p.done = true
}

// Write writes lines of a log above the bar. The next update draws the bar again.
func (p *progress) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.drawn > 0 && !p.done {
		_, _ = fmt.Fprint(p.out, "\r", strings.Repeat(" ", p.drawn), "\r") // as in draw
		p.drawn = 0
	}
	return p.out.Write(b)
}
