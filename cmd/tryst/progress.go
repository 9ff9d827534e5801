package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

const (
	// barEvery is the least time between two drawings of the bar.
	barEvery = 100 * time.Millisecond
	// lineEvery is the least time between two plain lines, and before the first
	// one. It keeps logs short, and the first line has a meaningful rate.
	lineEvery = time.Second
)

// progress shows the progress of a command: as a bar on a terminal, as lines elsewhere.
// Logs of the command are written through it, so that they do not overwrite the bar. It
// is safe for concurrent use.
type progress struct {
	what     string
	out      io.Writer
	terminal bool
	begin    time.Time

	mu   sync.Mutex               // guards what follows
	bar  *progressbar.ProgressBar // nil before the first update
	last time.Time                // of the last line; begin before the first one
	had  int64                    // bytes that do not count for the rate
	done bool                     // nothing more is shown
}

// newProgress returns the progress of what, shown on w. The caller must call end.
func newProgress(w io.Writer, what string) *progress {
	now := time.Now()
	p := &progress{what: what, out: w, begin: now, last: now}
	if f, ok := w.(*os.File); ok {
		p.terminal = term.IsTerminal(int(f.Fd()))
	}
	return p
}

// update shows that done of total bytes are complete.
func (p *progress) update(done, total int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done || total <= 0 { // nothing to wait for
		return
	}
	p.done = done >= total
	if p.terminal {
		p.draw(done, total)
	} else {
		p.line(done, total)
	}
}

// skip says that n of the bytes were complete before.
func (p *progress) skip(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.had += n
}

func (p *progress) draw(done, total int64) {
	if p.bar == nil {
		p.bar = progressbar.NewOptions64(total,
			progressbar.OptionSetWriter(p.out),
			progressbar.OptionSetDescription(p.what),
			progressbar.OptionFullWidth(),
			progressbar.OptionShowBytes(true),
			progressbar.OptionShowCount(),
			progressbar.OptionSetPredictTime(true),
			progressbar.OptionShowElapsedTimeOnFinish(),
			progressbar.OptionThrottle(barEvery),
			progressbar.OptionSetTheme(progressbar.ThemeASCII),
			progressbar.OptionOnCompletion(func() { fmt.Fprintln(p.out) }),
		)
	}
	_ = p.bar.Set64(done) // a terminal that cannot be written to shows no bar
}

func (p *progress) line(done, total int64) {
	now := time.Now()
	if done < total && now.Sub(p.last) < lineEvery {
		return
	}
	p.last = now
	fmt.Fprintf(p.out, "%s: %s of %s (%d%%)", p.what, byteText(float64(done)), byteText(float64(total)), int(float64(done)/float64(total)*100))
	if took := now.Sub(p.begin); done > p.had && took > 0 {
		rate := float64(done-p.had) / took.Seconds()
		fmt.Fprintf(p.out, ", %s/s", byteText(rate))
		if done < total {
			left := time.Duration(float64(total-done) / rate * float64(time.Second))
			fmt.Fprintf(p.out, ", %v left", left.Round(time.Second))
		}
	}
	fmt.Fprintln(p.out)
}

// end ends the line of a bar that is not complete.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil && !p.done {
		fmt.Fprintln(p.out)
	}
	p.done = true
}

// Write writes lines of a log above the bar. The next update draws the bar again.
func (p *progress) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil && !p.done {
		_ = p.bar.Clear() // as in draw
	}
	return p.out.Write(b)
}
