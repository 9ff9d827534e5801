package cluster

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// ParseLists is ParseSpec for jobs whose tasks are listed: each entry is ADDRESS or
// NUMBER@ADDRESS. Without NUMBER@ the first task of a job has number 0, and any other the number
// after the previous one. The error names the job and the entry.
func ParseLists(jobs map[string][]string) (*Spec, error) {
	spec := make(map[string]map[int]string, len(jobs))
	for _, job := range slices.Sorted(maps.Keys(jobs)) { // sorted, so that the error does not depend on the order of the map
		if !isWord(job) {
			return nil, invalid("cluster job", job, "%s", whyJob)
		}
		tasks := make(map[int]string, len(jobs[job]))
		next := 0
		for i, text := range jobs[job] {
			index, address, _, why := parseEntry(text, next)
			if _, again := tasks[index]; why == "" && again {
				why = whyAgain
			}
			if why != "" {
				return nil, invalid("cluster job", job, "entry %d, %s: %s", i, quote(text), why)
			}
			tasks[index] = address
			next = index + 1
		}
		spec[job] = tasks
	}
	return NewSpec(spec)
}

// Lists returns the spec in the form of ParseLists; nil for the empty spec. It writes a task number
// only after a gap.
func (s *Spec) Lists() map[string][]string {
	if s.Len() == 0 {
		return nil
	}
	jobs := make(map[string][]string)
	job, next := "", 0
	for _, t := range s.Tasks() {
		if t.Job != job {
			job, next = t.Job, 0
		}
		entry := s.addresses[t]
		if t.Index != next {
			entry = strconv.Itoa(t.Index) + "@" + entry
		}
		jobs[job] = append(jobs[job], entry)
		next = t.Index + 1
	}
	return jobs
}

// whyAgain is the fault of a task number that occurs twice in a job.
const whyAgain = "this task's number was given before"

// parseEntry parses ADDRESS or NUMBER@ADDRESS; next is the number of a task without one. at is the
// offset of a fault in the text, and why says what it is.
func parseEntry(text string, next int) (index int, address string, at int, why string) {
	entry, at := trim(text)
	index, address = next, entry
	addressAt := at
	if before, after, ok := strings.Cut(entry, "@"); ok {
		number, _ := trim(before)
		if index, ok = parseIndex(number); !ok {
			return 0, "", at, "want a task number of 0 to 2147483647 before the @"
		}
		var skipped int
		address, skipped = trim(after)
		addressAt += len(before) + len("@") + skipped
	}
	if index > maxNumber {
		return 0, "", at, whyRange
	}
	if why = hostPortFault(address); why != "" {
		return index, "", addressAt, why
	}
	return index, address, at, ""
}
