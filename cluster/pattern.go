package cluster

import (
	"strconv"
	"strings"
)

// Pattern is a device name with optional parts, as in a graph's device request or a session's
// device filters. A field is zero unless its Has field is true. The zero Pattern matches
// every device.
type Pattern struct {
	Job     string
	Replica int
	Task    int
	Type    string
	Index   int

	HasJob, HasReplica, HasTask, HasType, HasIndex bool
}

// ParsePattern parses a name in which any part may be missing or "*". "" and "/" match every
// device. The local form without a slash, "CPU:0", is accepted, too (its type keeps its case).
//
// The Pattern's strings are parts of s and keep it alive.
func ParsePattern(s string) (Pattern, error) {
	if p, ok := parseLocal(s); ok {
		return p, nil
	}
	var p Pattern
	if at, why := p.parse(s); why != "" {
		return Pattern{}, invalid("device pattern", s, "at byte %d: %s", at, why)
	}
	return p, nil
}

// parseLocal parses "CPU:0".
func parseLocal(s string) (p Pattern, ok bool) {
	sc := scanner{s: s}
	if p.Type = sc.word(); p.Type == "" || !sc.consume(":") {
		return Pattern{}, false
	}
	n, why := sc.number()
	if why != "" || sc.pos != len(s) {
		return Pattern{}, false
	}
	p.HasType, p.Index, p.HasIndex = true, n, true
	return p, true
}

// Matches reports whether d has every part of the pattern.
func (p Pattern) Matches(d Device) bool {
	return (!p.HasJob || p.Job == d.Task.Job) &&
		(!p.HasReplica || p.Replica == d.Task.Replica) &&
		(!p.HasTask || p.Task == d.Task.Index) &&
		(!p.HasType || p.Type == d.Type) &&
		(!p.HasIndex || p.Index == d.Index)
}

// device returns the parts of the pattern; the missing ones are zero.
func (p *Pattern) device() Device {
	return Device{Task: Task{Job: p.Job, Replica: p.Replica, Index: p.Task}, Type: p.Type, Index: p.Index}
}

// String returns the pattern in the form of ParsePattern, without missing parts.
func (p Pattern) String() string {
	b := make([]byte, 0, 96)
	if p.HasJob {
		b = append(append(b, "/job:"...), p.Job...)
	}
	if p.HasReplica {
		b = strconv.AppendInt(append(b, "/replica:"...), int64(p.Replica), 10)
	}
	if p.HasTask {
		b = strconv.AppendInt(append(b, "/task:"...), int64(p.Task), 10)
	}
	if p.HasType || p.HasIndex {
		typ := "*"
		if p.HasType {
			typ = p.Type
		}
		b = append(append(append(b, "/device:"...), typ...), ':')
		if p.HasIndex {
			b = strconv.AppendInt(b, int64(p.Index), 10)
		} else {
			b = append(b, '*')
		}
	}
	return string(b)
}

// missing returns the name of the first missing part; "" if there is none.
func (p *Pattern) missing() string {
	switch {
	case !p.HasJob:
		return "job"
	case !p.HasReplica:
		return "replica"
	case !p.HasTask:
		return "task"
	case !p.HasType:
		return "device type"
	case !p.HasIndex:
		return "device number"
	}
	return ""
}

// The parts of a name, to detect a repeated one: a wildcard sets no field of the Pattern.
const (
	partJob = 1 << iota
	partReplica
	partTask
	partDevice
)

// The reasons why a name does not parse.
const (
	whyPart   = "want /job:, /replica:, /task:, /device:, /cpu: or /gpu:"
	whyTwice  = "this part was given before"
	whyJob    = "want a job name (a letter, then letters, digits and underscores)"
	whyType   = "want a device type (a letter, then letters, digits and underscores)"
	whyNumber = "want a number"
	whyRange  = "the number is above 2147483647"
)

// parse fills a zero Pattern from s. If s is not valid, it returns the byte offset and the
// reason. It does not allocate; the caller makes the error.
func (p *Pattern) parse(s string) (at int, why string) {
	if s == "/" {
		return 0, ""
	}
	sc := scanner{s: s}
	seen := 0
	for sc.pos < len(s) {
		at = sc.pos
		part := 0
		switch {
		case sc.consume("/job:"):
			part = partJob
			if p.HasJob = !sc.consume("*"); p.HasJob {
				if p.Job = sc.word(); p.Job == "" {
					why = whyJob
				}
			}
		case sc.consume("/replica:"):
			part = partReplica
			p.Replica, p.HasReplica, why = sc.numberOrAny()
		case sc.consume("/task:"):
			part = partTask
			p.Task, p.HasTask, why = sc.numberOrAny()
		case sc.consume("/device:"):
			part = partDevice
			if p.HasType = !sc.consume("*"); p.HasType {
				if p.Type = sc.word(); p.Type == "" {
					why = whyType
				}
			}
			if why == "" && sc.consume(":") {
				p.Index, p.HasIndex, why = sc.numberOrAny()
			}
		case sc.consume("/cpu:"), sc.consume("/CPU:"):
			part = partDevice
			p.Type, p.HasType = "CPU", true
			p.Index, p.HasIndex, why = sc.numberOrAny()
		case sc.consume("/gpu:"), sc.consume("/GPU:"):
			part = partDevice
			p.Type, p.HasType = "GPU", true
			p.Index, p.HasIndex, why = sc.numberOrAny()
		default:
			return at, whyPart
		}
		if why != "" {
			return sc.pos, why
		}
		if seen&part != 0 {
			return at, whyTwice
		}
		seen |= part
	}
	return 0, ""
}

// scanner reads a name. Its methods move pos only past the text that they accept.
type scanner struct {
	s   string
	pos int
}

func (sc *scanner) consume(prefix string) bool {
	if !strings.HasPrefix(sc.s[sc.pos:], prefix) {
		return false
	}
	sc.pos += len(prefix)
	return true
}

// word returns the longest job name or device type at pos; "" if there is none.
func (sc *scanner) word() string {
	n := wordLen(sc.s[sc.pos:])
	sc.pos += n
	return sc.s[sc.pos-n : sc.pos]
}

func (sc *scanner) numberOrAny() (n int, has bool, why string) {
	if sc.consume("*") {
		return 0, false, ""
	}
	n, why = sc.number()
	return n, true, why
}

func (sc *scanner) number() (n int, why string) {
	i, v := sc.pos, int64(0)
	for ; i < len(sc.s) && '0' <= sc.s[i] && sc.s[i] <= '9'; i++ {
		if v = v*10 + int64(sc.s[i]-'0'); v > maxNumber {
			return 0, whyRange
		}
	}
	if i == sc.pos {
		return 0, whyNumber
	}
	sc.pos = i
	return int(v), ""
}

// wordLen returns how many bytes at the start of s form a word: an ASCII
// letter, then letters, digits and underscores.
func wordLen(s string) int {
	i := 0
	for ; i < len(s); i++ {
		c := s[i]
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && (i == 0 || c != '_' && (c < '0' || '9' < c)) {
			break
		}
	}
	return i
}

// isWord reports whether s is a job name or a device type.
func isWord(s string) bool { return s != "" && wordLen(s) == len(s) }
