package transporttest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
)

// Ports of FreeAddresses: below those that Linux gives to sockets without one (ip_local_port_range begins at 32768). A process of
// tests has up to maxBlocks blocks of them.
const firstPort, blocks, blockPorts, maxBlocks = 10000, 220, 100, 8

// FreeAddresses returns n different addresses of the local host on which nobody listens. No other socket gets one of their
// ports by chance before the test listens there, or while its server restarts: neither one without a port, nor another test of
// this process or of another one.
func FreeAddresses(t testing.TB, n int) (all []string) {
	t.Helper()
	for range n {
		address, err := processPorts.next()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, address)
	}
	return all
}

// processPorts are the ports of this process.
var processPorts blocksOfPorts

// blocksOfPorts are blocks of ports of which no other process hands one out.
type blocksOfPorts struct {
	mu     sync.Mutex // guards all below
	guards []guard
	at     int // the next port, counted over all blocks
}

// guard holds the first port of a block as long as the process runs, which keeps the block from others.
type guard struct {
	listener net.Listener
	first    int
}

// next returns the next address on which nobody listens. When all blocks were handed out it begins again with the first one.
func (b *blocksOfPorts) next() (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	const usable = blockPorts - 1
	for range maxBlocks * usable {
		if b.at == len(b.guards)*usable {
			if err := b.more(); err != nil {
				return "", err
			}
		}
		address := local(b.guards[b.at/usable].first + 1 + b.at%usable)
		b.at++
		l, err := net.Listen("tcp", address)
		if err != nil {
			continue // in use
		}
		if err := l.Close(); err != nil {
			return "", err
		}
		return address, nil
	}
	return "", fmt.Errorf("somebody listens on each of %d ports", maxBlocks*usable)
}

// more takes another block, or goes back to the first one.
func (b *blocksOfPorts) more() error {
	if len(b.guards) == maxBlocks {
		b.at = 0
		return nil
	}
	for _, i := range rand.Perm(blocks) { //nolint:gosec // by chance, so that processes that begin at once differ
		first := firstPort + i*blockPorts
		l, err := net.Listen("tcp", local(first))
		if err == nil {
			b.guards = append(b.guards, guard{l, first})
			return nil
		}
	}
	return fmt.Errorf("others have all %d blocks of ports from %d on", blocks, firstPort)
}

func local(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
