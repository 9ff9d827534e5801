package config

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/tryst-rdma/tryst/status"
)

// inheritedNames are the variables that TensorFlow's verbs extension was
// configured by. Its README and its code disagree about most of them, so that
// settings were passed over unseen; here both spellings are taken, and the
// source of the value says which one was there.
var inheritedNames = []struct {
	key     string
	readme  string
	code    string                       // "" when it is the same
	convert func(string) (string, error) // nil: the text is ours, too
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

// Inherited returns the names that TensorFlow's verbs extension had for the
// setting's variable, the one of its README first; nil for none.
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

// inherited is what those variables give. An empty one gives nothing.
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
			l.add(status.Errorf(status.InvalidArgument, "%s %s: %s says %s; they are two names of %s: give one", n.readme, quote(text), n.code, quote(other), n.key))
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

// fromTimeoutCode reads a timeout as the specification codes it: 4.096 µs times
// two to that power, 0 for ever.
func fromTimeoutCode(s string) (string, error) {
	code, err := strconv.Atoi(s)
	d := 4096 * time.Nanosecond << min(max(code, 0), 31)
	if err != nil || code < 0 || code > 31 {
		return "", errors.New("want a code of 1 to 23, for 4.096µs times 2 to that power")
	}
	if code == 0 || d > maxTimeout {
		return "", errors.New("a dead peer would not be noticed; want a code of 1 to 23, for 4.096µs times 2 to that power")
	}
	return formatDuration(d), nil
}
