//go:build !linux

package grpctransport

import (
	"syscall"
	"time"
)

// userTimeout returns nil: only Linux has TCP_USER_TIMEOUT. The system's limit applies.
func userTimeout(time.Duration) func(network, address string, c syscall.RawConn) error {
	return nil
}
