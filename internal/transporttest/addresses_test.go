package transporttest

import (
	"net"
	"testing"
)

// TestFreeAddressesAreHandedOutOnce: also when nobody has listened on them yet, and by two processes at once.
func TestFreeAddressesAreHandedOutOnce(t *testing.T) {
	var x, y blocksOfPorts // of two processes
	defer x.close()
	defer y.close()
	seen := map[string]bool{}
	for range 2 * blockPorts {
		for _, b := range []*blocksOfPorts{&x, &y} {
			address, err := b.next()
			if err != nil {
				t.Fatal(err)
			}
			if seen[address] {
				t.Fatalf("%s is handed out twice", address)
			}
			seen[address] = true
		}
	}
}

// TestPortsAreHandedOutAgain: when all blocks were, those come again on which nobody listens.
func TestPortsAreHandedOutAgain(t *testing.T) {
	var b blocksOfPorts
	defer b.close()
	first, err := b.next()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", first)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for range 2 * maxBlocks * blockPorts {
		if address, err := b.next(); err != nil || address == first {
			t.Fatalf("%s, %v: %s is in use", address, err, first)
		}
	}
	if len(b.guards) != maxBlocks {
		t.Errorf("%d blocks", len(b.guards))
	}
}

func (b *blocksOfPorts) close() {
	for _, g := range b.guards {
		g.listener.Close()
	}
}
