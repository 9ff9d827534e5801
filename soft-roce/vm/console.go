package vm

import (
	"bytes"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// console keeps the last lines of what the kernel and QEMU say, and passes everything on to a second writer when there is one.
type console struct {
	mu    sync.Mutex // protects the fields below
	fault string     // the first line that tells of a fault of the kernel: what follows may be longer than lines
	lines []string   // at most consoleLines
	last  []byte     // the line that has not ended
	also  io.Writer  // may be nil
}

// controls are what a BIOS clears and paints the screen with.
var controls = regexp.MustCompile("\x1b(\\[[0-9;?]*[A-Za-z]|c)|[\x00-\x08\x0b-\x1f\x7f]")

// faults are the words with which the kernel begins to tell of one.
var faults = regexp.MustCompile(`Kernel panic|BUG: |Oops: |general protection fault`)

// Write never fails.
func (c *console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.also != nil {
		_, _ = c.also.Write(p)
	}
	c.last = append(c.last, p...)
	for {
		line, rest, ended := bytes.Cut(c.last, []byte("\n"))
		if !ended {
			break
		}
		c.keep(line)
		c.last = rest
	}
	if len(c.last) > consoleLine {
		c.last = c.last[len(c.last)-consoleLine:]
	}
	return len(p), nil
}

func (c *console) keep(line []byte) {
	text := clean(line)
	if text == "" {
		return
	}
	if c.fault == "" && faults.MatchString(text) {
		c.fault = text
	}
	if len(c.lines) == consoleLines {
		c.lines = append(c.lines[:0], c.lines[1:]...)
	}
	c.lines = append(c.lines, text)
}

// tail is the kept lines, each indented, for an error.
func (c *console) tail() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	lines := c.lines
	if text := clean(c.last); text != "" {
		lines = append(slices.Clip(lines), text)
	}
	if len(lines) == 0 {
		return "the console is empty"
	}
	const indent = "\n    "
	text := "the console's last lines:" + indent + strings.Join(lines, indent)
	if c.fault != "" && !slices.Contains(lines, c.fault) {
		text = "the kernel's first complaint:" + indent + c.fault + "\n" + text
	}
	return text
}

// clean takes out what a terminal would not show, and what is too long for a line.
func clean(line []byte) string {
	text := strings.TrimSpace(controls.ReplaceAllString(string(line), ""))
	if len(text) > consoleLine {
		text = text[:consoleLine] + "..."
	}
	return strings.ToValidUTF8(text, "?")
}
