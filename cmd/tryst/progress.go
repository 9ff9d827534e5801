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
	// barEvery is how often the bar is drawn at most: smooth for the eye.
	barEvery = 100 * time.Millisecond
	// lineEvery is how often a plain line is written at most, and how long
	// the first one waits: a log that somebody reads later stays short, and
	// no time left is told before there is a rate to tell it from.
	lineEvery = time.Second
)

// progress tells how far something has come: as a bar on a terminal, as lines
// elsewhere. It is also the writer for the logs of the same time, which would
// else be written into the bar. It is safe for concurrent use.
type progress struct {
	what     string
	out      io.Writer
	terminal bool
	begin    time.Time

	mu sync.Mutex
	// All below are guarded by mu.
	bar  *progressbar.ProgressBar // nil before the first update
	last time.Time                // when a line was written; begin before
	done bool                     // all has been told
}

// newProgress returns the progress of what, told on w. Whoever makes it calls
// end.
func newProgress(w io.Writer, what string) *progress {
	now := time.Now()
	p := &progress{what: what, out: w, begin: now, last: now}
	if f, ok := w.(*os.File); ok {
		p.terminal = term.IsTerminal(int(f.Fd()))
	}
	return p
}

// update says that done of total bytes are there.
func (p *progress) update(done, total int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done || total <= 0 { // what has no bytes is not waited for
		return
	}
	p.done = done >= total
	if p.terminal {
		p.draw(done, total)
	} else {
		p.line(done, total)
	}
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
	if took := now.Sub(p.begin); done > 0 && took > 0 {
		rate := float64(done) / took.Seconds()
		fmt.Fprintf(p.out, ", %s/s", byteText(rate))
		if done < total {
			left := time.Duration(float64(total-done) / rate * float64(time.Second))
			fmt.Fprintf(p.out, ", %v left", left.Round(time.Second))
		}
	}
	fmt.Fprintln(p.out)
}

// end leaves the line of a bar that has not come to its end.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil && !p.done {
		fmt.Fprintln(p.out)
	}
	p.done = true
}

// Write writes lines of a log above the bar, which the next update draws again.
func (p *progress) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil && !p.done {
		_ = p.bar.Clear() // as in draw
	}
	return p.out.Write(b)
}
