package command

import (
	"log/slog"
	"net"
	"strings"
	"time"
)

// notifier reports the state of a service to systemd, in datagrams as sd_notify(3) sends them. With
// an empty socket it reports nothing. It is used by one goroutine at a time.
type notifier struct {
	socket string // a path, or an abstract name after @
	log    *slog.Logger
	failed bool // a report has failed, which is logged once
}

// ready reports that the service serves.
func (n *notifier) ready(status string) { n.send("READY=1", "STATUS="+status) }

// busy reports what the service does before it is ready.
func (n *notifier) busy(status string) { n.send("STATUS=" + status) }

// stopping reports that the service has begun to stop.
func (n *notifier) stopping(status string) { n.send("STOPPING=1", "STATUS="+status) }

func (n *notifier) send(assignments ...string) {
	if n.socket == "" {
		return
	}
	for i, a := range assignments { // a line break would begin another assignment
		assignments[i] = printable(a)
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: n.socket, Net: "unixgram"})
	if err == nil {
		defer conn.Close()
		_ = conn.SetWriteDeadline(time.Now().Add(notifyTimeout)) // fails only for a closed socket
		_, err = conn.Write([]byte(strings.Join(assignments, "\n")))
	}
	if err != nil && !n.failed {
		n.failed = true
		n.log.Warn("the state of the service cannot be reported to systemd; check that NOTIFY_SOCKET is that of the unit, and its NotifyAccess", "socket", n.socket, "reason", err)
	}
}
