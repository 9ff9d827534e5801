package main

import (
	"os"
	"regexp"
	"strings"
)

// failLine is the line that ends a failed test or package.
var failLine = regexp.MustCompile(`^( *--- FAIL: |FAIL\t)`)

// load returns the load average of the last minute from a file like /proc/loadavg (proc_loadavg(5)): how many processes run or
// wait for a disk. It is empty on a system that has no such file.
func load(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	average, _, _ := strings.Cut(string(text), " ")
	return average
}

// besideFail is what the line of a failure says about the load now. Tests that pass on a quiet machine may fail on a busy one, and a
// reader of the report must not have to guess.
func (r *report) besideFail() string {
	now := load(r.loadFile)
	if now == "" {
		return ""
	}
	return " (load average " + now + ")"
}
