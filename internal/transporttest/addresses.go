package transporttest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// Ports of FreeAddresses: below those that Linux gives to sockets without one (ip_local_port_range begins at 32768).
const firstPort, ports = 10000, 22000

// FreeAddresses returns n different addresses of the local host on which nobody listens. No other socket gets one of their
// ports by chance before the test listens there, or while its server restarts.
func FreeAddresses(t testing.TB, n int) (all []string) {
	t.Helper()
	for range 1000 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", firstPort+rand.IntN(ports))) //nolint:gosec // by chance, so that tests that run at once differ
		if err != nil {
			continue // in use
		}
		defer l.Close() // after all have been found, so that they differ
		if all = append(all, l.Addr().String()); len(all) == n {
			return all
		}
	}
	t.Fatalf("no %d free ports from %d to %d", n, firstPort, firstPort+ports-1)
	return nil
}
