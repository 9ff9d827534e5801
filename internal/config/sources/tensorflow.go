package sources

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/status"
)

// timeoutKey is the setting whose variables have a code instead of a duration.
const timeoutKey = "rdma.timeout"

// inherited returns the settings in those variables. Empty ones are ignored.
func (l *loader) inherited(environ []string) map[string]any {
	found := make(map[string]string)
	for _, variable := range environ {
		if name, text, ok := strings.Cut(variable, "="); ok && text != "" {
			found[name] = text
		}
	}
	values := make(map[string]any)
	for _, s := range config.Settings() {
		name, text := "", ""
		for _, n := range s.Inherited() {
			switch other := found[n]; {
			case other == "":
			case text == "":
				name, text = n, other
			case text != other:
				l.add(status.Errorf(status.InvalidArgument, "%s %s: %s is %s; both are names of %s: set only one", name, config.Quote(text), n, config.Quote(other), s.Key))
				text = ""
			}
		}
		if text == "" {
			continue
		}
		if s.Key == timeoutKey {
			converted, err := fromTimeoutCode(text)
			if err != nil {
				l.add(config.ValueError(config.Source{Kind: config.FromEnv, Name: name}, s.Key, text, err))
				continue
			}
			text = converted
		}
		values[s.Key] = config.Given{Text: text, Source: config.Source{Kind: config.FromTensorFlow, Name: name}}
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
	if code == 0 || d > config.MaxTimeout {
		return "", errors.New("a dead peer would not be detected; want a code of 1 to 23, for 4.096µs times 2 to that power")
	}
	return d.String(), nil
}
