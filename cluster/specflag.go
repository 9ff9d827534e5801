package cluster

import (
	"iter"
	"strings"
)

// ParseSpec parses a cluster spec as a flag has it:
//
//	worker=h1:2222,h2:2222;ps=0@h3:2222,7@h4:2222,[2001:db8::1]:2222
//
// Semicolons separate jobs, commas the tasks of a job. NUMBER@ before an address is the number
// of its task. Without it the first task has number 0, and any other the number after the
// previous one; ps in the example has the tasks 0, 7 and 8. Blanks around these parts are
// ignored. A text without a job is the empty spec. The error has the byte offset of the fault.
func ParseSpec(s string) (*Spec, error) {
	jobs := make(map[string]map[int]string)
	if strings.TrimSpace(s) == "" {
		return NewSpec(jobs)
	}
	for at, text := range fields(s, ';') {
		name, addresses, ok := strings.Cut(text, "=")
		job, skipped := trim(name)
		if !isWord(job) {
			return nil, specError(s, at+skipped, whyJob)
		}
		if !ok {
			return nil, specError(s, at+len(name), "want = and the addresses of the job's tasks")
		}
		if jobs[job] != nil {
			return nil, specError(s, at+skipped, "this job was given before")
		}
		tasks, at, why := parseTasks(addresses, at+len(name)+1)
		if why != "" {
			return nil, specError(s, at, why)
		}
		jobs[job] = tasks
	}
	return NewSpec(jobs)
}

// parseTasks parses the addresses of a job, which start at byte base of the spec.
func parseTasks(s string, base int) (tasks map[int]string, at int, why string) {
	tasks = make(map[int]string)
	next := 0
	for offset, text := range fields(s, ',') {
		index, address, within, fault := parseEntry(text, next)
		at = base + offset + within
		if _, again := tasks[index]; fault == "" && again {
			fault = whyAgain
		}
		if fault != "" {
			return nil, at, fault
		}
		tasks[index] = address
		next = index + 1
	}
	return tasks, 0, ""
}

func specError(s string, at int, why string) error {
	return invalid("cluster spec", s, "at byte %d: %s", at, why)
}

// fields yields the parts of s between separators, with the offset of each.
func fields(s string, separator byte) iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		at := 0
		for {
			n := strings.IndexByte(s[at:], separator)
			if n < 0 {
				yield(at, s[at:])
				return
			}
			if !yield(at, s[at:at+n]) {
				return
			}
			at += n + 1
		}
	}
}

// trim removes the blanks around s. It returns how many preceded it.
func trim(s string) (text string, skipped int) {
	text = strings.TrimLeft(s, " \t\r\n")
	return strings.TrimRight(text, " \t\r\n"), len(s) - len(text)
}
