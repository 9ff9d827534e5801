//go:build rxe && linux

package verbs_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
)

// page is the unit of a tensor's content in bytes: a number that depends on the seed and on the
// offset of the page, then bytes that depend on the seed. So check detects a page at a wrong
// offset, of another tensor, or partly written. It is cheap to compute on an emulated processor.
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

// check returns an error with the first page of b that is not the content of the seed.
func check(b []byte, seed uint64) error {
	base := basePage(seed)
	for at := 0; at < len(b); at += page {
		binary.LittleEndian.PutUint64(base, pageMark(seed, at))
		end := min(at+page, len(b))
		if !bytes.Equal(b[at:end], base[:end-at]) {
			return fmt.Errorf("bytes %d to %d of %d are not the content of seed %d", at, end, len(b), seed)
		}
	}
	return nil
}
