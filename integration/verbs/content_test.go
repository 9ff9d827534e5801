//go:build rxe && linux

package verbs_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
)

// page is the unit of a tensor's content: a number that depends on the seed and on
// the page's place, then bytes that depend on the seed. So a page at a wrong
// place, of another tensor, or half written shows, and little is computed on an
// emulated processor.
const page = 4096

func basePage(seed uint64) []byte {
	b := make([]byte, page)
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	_, _ = rand.NewChaCha8(key).Read(b) // never fails
	return b
}

func pageMark(seed uint64, at int) uint64 { return (seed + uint64(at)) * 0x9e3779b97f4a7c15 }

// fill writes the content of a seed.
func fill(b []byte, seed uint64) {
	base := basePage(seed)
	for at := 0; at < len(b); at += page {
		binary.LittleEndian.PutUint64(base, pageMark(seed, at))
		copy(b[at:], base)
	}
}

// check says where b is not the content of a seed.
func check(b []byte, seed uint64) error {
	base := basePage(seed)
	for at := 0; at < len(b); at += page {
		binary.LittleEndian.PutUint64(base, pageMark(seed, at))
		end := min(at+page, len(b))
		if !bytes.Equal(b[at:end], base[:end-at]) {
			return fmt.Errorf("the %d bytes at %d of %d are not those of seed %d", end-at, at, len(b), seed)
		}
	}
	return nil
}
