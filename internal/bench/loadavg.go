package bench

import (
	"os"
	"strconv"
	"strings"
)

// unknownLoad stands for the load average of a system that does not report one.
const unknownLoad = -1

// loadFile has the load average of a Linux system (proc_loadavg(5)).
const loadFile = "/proc/loadavg"

// loadAverage returns the load average of the last minute from a file like
// loadFile: processes that run or wait for a disk.
func loadAverage(file string) float64 {
	text, err := os.ReadFile(file)
	if err != nil {
		return unknownLoad
	}
	first, _, _ := strings.Cut(string(text), " ")
	load, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return unknownLoad
	}
	return load
}

// measureLoad reads the load average before the first benchmark, which raises it, and
// reports it. Other work on the machine distorts the figures.
func (s *suite) measureLoad() {
	s.load = loadAverage(s.loadFile)
	switch {
	case s.Progress == nil || s.load == unknownLoad:
	case s.load > quietLoad:
		s.Progress("warning: " + loadText(s.load) + ", above " + decimals(quietLoad) +
			": stop the other work on this machine and measure again")
	default:
		s.Progress(loadText(s.load))
	}
}

func loadText(load float64) string { return "load average at the start " + decimals(load) }

func decimals(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }
