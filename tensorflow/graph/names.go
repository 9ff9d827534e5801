package graph

import (
	"strconv"
	"strings"

	"github.com/tryst-rdma/tryst/status"
)

// input is one entry of NodeDef.input: "node", "node:1" or "^node".
type input struct {
	node    string
	index   int
	control bool
}

// parseInput parses an entry as TensorFlow does: what follows the last colon is an index only if it
// is a number.
func parseInput(s string) input {
	if rest, ok := strings.CutPrefix(s, "^"); ok {
		return input{node: rest, index: ControlSlot, control: true}
	}
	if i := strings.LastIndexByte(s, ':'); i >= 0 && digits(s[i+1:]) {
		if n, err := strconv.Atoi(s[i+1:]); err == nil {
			return input{node: s[:i], index: n}
		}
	}
	return input{node: s}
}

func digits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// checkName returns an error for a text that cannot name a node. TensorFlow's rule is narrower for
// users' graphs; a master adds names that begin with an underscore. The name of a function may have a
// "<": tf.function of a lambda makes "__inference_<lambda>_12".
func checkName(what, s string) error {
	switch {
	case s == "":
		return status.Errorf(status.InvalidArgument, "a %s has no name", what)
	case len(s) > maxName:
		return status.Errorf(status.InvalidArgument, "the name of a %s has %d bytes, at most %d are allowed: %s…", what, len(s), maxName, s[:32])
	}
	for i := range len(s) {
		c := s[i]
		letter := c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '.' || c == '_'
		mark := c == '/' || c == '-' || c == '\\' || c == '>' || c == '<' && what == "function"
		if !letter && (i == 0 || !mark) {
			return status.Errorf(status.InvalidArgument, "%s %q: a name consists of letters, digits and . _ / - \\ >, and begins with a letter, digit, . or _", what, s)
		}
	}
	return nil
}
