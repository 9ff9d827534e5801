// Package protocoltest gives tests the examples of PROTOCOL.md: what is written there byte
// for byte is what the code writes and reads.
package protocoltest

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Example returns the bytes of the hex block of a name.
func Example(t testing.TB, name string) []byte {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile(filepath.Join(dir, "PROTOCOL.md"))
	for ; os.IsNotExist(err) && dir != filepath.Dir(dir); doc, err = os.ReadFile(filepath.Join(dir, "PROTOCOL.md")) {
		dir = filepath.Dir(dir) // a package's test runs in its directory
	}
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(doc), "```hex "+name+"\n")
	text, _, end := strings.Cut(rest, "```")
	if !ok || !end {
		t.Fatalf("PROTOCOL.md has no hex block %s", name)
	}
	b, err := hex.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		t.Fatalf("PROTOCOL.md, %s: %v", name, err)
	}
	return b
}
