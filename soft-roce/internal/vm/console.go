package vm

import (
	"bytes"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// console keeps the last lines of the output of the kernel and of QEMU. It copies all output to tee,
// unless that is nil.
type console struct {
	mu    sync.Mutex // protects the fields below
	fault string     // the first line that reports a kernel fault; its trace may push it out of lines
	lines []string   // at most consoleLines
	last  []byte     // the incomplete last line
	tee   io.Writer  // may be nil
}

// controls matches the terminal controls that a BIOS writes.
var controls = regexp.MustCompile("\x1b(\\[[0-9;?]*[A-Za-z]|c)|[\x00-\x08\x0b-\x1f\x7f]")

// faults matches the beginning of a kernel's fault report.
var faults = regexp.MustCompile(`Kernel panic|BUG: |Oops: |general protection fault`)

// Write never fails.
func (c *console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tee != nil {
		_, _ = c.tee.Write(p)
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

// tail returns the kept lines, each indented, for an error.
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
		text = "the kernel's first fault:" + indent + c.fault + "\n" + text
	}
	return text
}

// clean removes terminal controls and surrounding blanks, and cuts a line to consoleLine bytes.
func clean(line []byte) string {
	text := strings.TrimSpace(controls.ReplaceAllString(string(line), ""))
	if len(text) > consoleLine {
		text = text[:consoleLine] + "..."
	}
	return strings.ToValidUTF8(text, "?")
}
