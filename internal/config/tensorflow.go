package config

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/tryst-rdma/tryst/status"
)

// inheritedNames are the variables of TensorFlow's verbs extension. Its README and its code
// use different names for most of them, so it ignored variables that users set by the README.
// Both names are valid here, and the source of a value has the name that was set.
var inheritedNames = []struct {
	key     string
	readme  string
	code    string                       // "" if it is the same
	convert func(string) (string, error) // to our form; nil if it is the same
}{
	{"rdma.device", "RDMA_DEVICE", "", nil},
	{"rdma.port", "RDMA_DEVICE_PORT", "", nil},
	{"rdma.gid-index", "RDMA_GID_INDEX", "", nil},
	{"rdma.pkey-index", "RDMA_QP_PKEY_INDEX", "RDMA_PKEY", nil},
	{"rdma.queue-depth", "RDMA_QP_QUEUE_DEPTH", "RDMA_QUEUE_DEPTH", nil},
	{"rdma.timeout", "RDMA_QP_TIMEOUT", "RDMA_TIMEOUT", fromTimeoutCode},
	{"rdma.retry", "RDMA_QP_RETRY_COUNT", "RDMA_RETRY_CNT", nil},
	{"rdma.service-level", "RDMA_QP_SL", "RDMA_SL", nil},
	{"rdma.mtu", "RDMA_QP_MTU", "RDMA_MTU", nil},
	{"rdma.traffic-class", "RDMA_TRAFFIC_CLASS", "", nil},
}

// Inherited returns the variables of TensorFlow's verbs extension that set the setting, the one
// in its README first; nil if there are none.
func (s Setting) Inherited() []string {
	for _, n := range inheritedNames {
		switch {
		case n.key != s.Key:
		case n.code == "":
			return []string{n.readme}
		default:
			return []string{n.readme, n.code}
		}
	}
	return nil
}

// isInherited reports whether a variable is one of TensorFlow's verbs extension.
func isInherited(name string) bool {
	for _, n := range inheritedNames {
		if name == n.readme || name == n.code {
			return true
		}
	}
	return false
}

// inherited returns the settings in those variables. Empty ones are ignored.
func (l *loader) inherited(environ []string) map[string]any {
	found := make(map[string]string)
	for _, variable := range environ {
		if name, text, ok := strings.Cut(variable, "="); ok && text != "" {
			found[name] = text
		}
	}
	values := make(map[string]any)
	for _, n := range inheritedNames {
		name, text := n.readme, found[n.readme]
		other, both := found[n.code]
		switch {
		case n.code == "" || !both:
		case text == "":
			name, text = n.code, other
		case text != other:
			l.add(status.Errorf(status.InvalidArgument, "%s %s: %s is %s; both are names of %s: set only one", n.readme, quote(text), n.code, quote(other), n.key))
			continue
		}
		if text == "" {
			continue
		}
		if n.convert != nil {
			converted, err := n.convert(text)
			if err != nil {
				l.add(valueError(Source{Kind: FromEnv, Name: name}, n.key, text, err))
				continue
			}
			text = converted
		}
		values[n.key] = given{text, Source{Kind: FromTensorFlow, Name: name}}
	}
	return values
}

// fromTimeoutCode converts a timeout code of the specification: 4.096 µs times two to the power of
// the code; 0 means no timeout.
func fromTimeoutCode(s string) (string, error) {
	code, err := strconv.Atoi(s)
	d := 4096 * time.Nanosecond << min(max(code, 0), 31)
	if err != nil || code < 0 || code > 31 {
		return "", errors.New("want a code of 1 to 23, for 4.096µs times 2 to that power")
	}
	if code == 0 || d > maxTimeout {
		return "", errors.New("a dead peer would not be detected; want a code of 1 to 23, for 4.096µs times 2 to that power")
	}
	return formatDuration(d), nil
}
