package support

import (
	"regexp"
	"slices"
	"strings"
)

// Scrubber takes secrets out of texts.
type Scrubber struct{ values []string }

// removed stands for a secret.
const removed = "[removed]"

var (
	secretName = regexp.MustCompile(`(?i)token|secret|passw|passphrase|credential|api_?key|auth|headers|private|cookie`)
	userInfo   = regexp.MustCompile(`(://)[^\s/@"']+@`)
	keyBlock   = regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|$)`)
	// assigned is a name that says that a secret follows, with what follows it.
	assigned  = regexp.MustCompile(`(?i)((?:token|secret|password|passwd|passphrase|api[_-]?key|authorization|cookie)["']?\s*[=:]\s*["']?(?:bearer\s+|basic\s+)?)[^\s"',;&]+`)
	arguments = regexp.MustCompile(`\((?:0x[0-9a-f]+\??|[{}.,_? ]|\.\.\.)+\)`)
)

// NewScrubber returns a Scrubber that also knows the values of those variables of an environment (NAME=VALUE) whose names
// say that they are secrets.
func NewScrubber(environ []string) *Scrubber {
	s := new(Scrubber)
	for _, e := range environ {
		if name, value, _ := strings.Cut(e, "="); secretName.MatchString(name) && len(value) >= leastSecret {
			s.values = append(s.values, value)
		}
	}
	slices.SortFunc(s.values, func(a, b string) int { return len(b) - len(a) }) // one may be a part of another
	return s
}

// Scrub returns text without secrets.
func (s *Scrubber) Scrub(text string) string {
	for _, v := range s.values {
		text = strings.ReplaceAll(text, v, removed)
	}
	text = keyBlock.ReplaceAllString(text, removed)
	text = userInfo.ReplaceAllString(text, "${1}"+removed+"@")
	return assigned.ReplaceAllString(text, "${1}"+removed)
}

// stacks takes the arguments out of the stacks of goroutines: they are words of memory.
func stacks(text string) string { return arguments.ReplaceAllString(text, "(...)") }
