package sources

import (
	"os"
	"strings"
)

// notifySocketVariable is the variable by which systemd names the socket for sd_notify(3).
const notifySocketVariable = "NOTIFY_SOCKET"

// Environ returns environ, NAME=VALUE, or, for nil, the environment of the process.
func Environ(environ []string) []string {
	if environ == nil {
		return os.Environ()
	}
	return environ
}

// NotifySocket returns the socket on which the process reports its state to systemd; "" without
// systemd. environ is NAME=VALUE; nil means the environment of the process.
func NotifySocket(environ []string) string {
	path := ""
	for _, variable := range Environ(environ) {
		if name, value, _ := strings.Cut(variable, "="); name == notifySocketVariable {
			path = value
		}
	}
	return path
}
