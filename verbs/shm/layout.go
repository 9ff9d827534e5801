//go:build linux

package shm

import (
	"encoding/binary"
	"fmt"

	"github.com/tryst-rdma/tryst/verbs"
)

// The memory of a ring, a memfd of the queue pair's owner (PROTOCOL.md, section 12). Numbers are little-endian. The words of each cache line change together.
//
//	0     magic, version, size of an entry
//	64    requester's words: posted, consumed, epoch, control
//	128   responder's words: done, failed, noReceive, copied
//	192   asleep
//	4096  responses, 32 bytes each
//	8192  requests, entrySize bytes each
const (
	ringMagic   = "TRYSTRG1"
	ringVersion = 1
	ringEntries = 128

	atEntrySize = 12
	atPosted    = 64  // requests that were posted
	atConsumed  = 72  // requests whose responses have been read
	atEpoch     = 80  // epochAlive, or anything else: the poster has taken its memory back
	atControl   = 88  // packets that were sent on the socket, besides those that only wake
	atDone      = 128 // requests of the peer that were executed
	atFailed    = 136 // failure of the request after those: its number + 1, shifted by 8, and the status
	atNoReceive = 144 // number + 1 of the peer's request that waits for a receive; 0: none
	atCopied    = 152 // changes while a long request is executed
	atAsleep    = 192 // 1: a byte on the socket is needed to wake this side

	responsesAt  = 4096
	responseSize = 32
	entriesAt    = 8192

	entryHeader = 64
	rangeSize   = 16
	minEntry    = 256 // entryHeader and 192 bytes: short messages travel in the ring itself
	maxEntry    = entryHeader + 512
)

const epochAlive = 1

// Flags of an entry.
const (
	flagSolicited = 1 << iota
	flagFirst     // of its message
	flagLast
	flagInline // the content follows the header
)

// entry is a request, or a part of one: long content that is not in a memfd of its own goes in
// several parts.
type entry struct {
	number uint64 // of requests before it on this connection
	psn    uint32 // of the poster, counted from that of the bootstrap
	op     verbs.Opcode
	flags  uint8
	ranges uint16 // ranges after the header, unless flagInline
	imm    uint32
	rkey   verbs.RKey
	addr   uint64 // of the whole message in the responder's memory
	total  uint64 // bytes of the message; for atomics the value to compare or to add
	offset uint64 // of this part in the message; for atomics the value to swap
	length uint32 // bytes of this part
}

// fileRange is content of a part, in a memfd of the poster.
type fileRange struct {
	file   uint32
	length uint32
	offset uint64
}

// entrySize returns the size of the entries of a queue pair.
func entrySize(sges, inline int) int {
	n := max(minEntry, entryHeader+sges*rangeSize, entryHeader+inline)
	return (n + 63) &^ 63
}

// ringSize returns the size of a ring in bytes, a multiple of the page size of 4 KiB.
func ringSize(entrySize int) int { return (entriesAt + ringEntries*entrySize + 4095) &^ 4095 }

// put writes the header of an entry.
func (e *entry) put(b []byte) {
	le := binary.LittleEndian
	le.PutUint64(b[0:], e.number)
	le.PutUint32(b[8:], e.psn)
	b[12], b[13] = byte(e.op), e.flags
	le.PutUint16(b[14:], e.ranges)
	le.PutUint32(b[16:], e.imm)
	le.PutUint32(b[20:], uint32(e.rkey))
	le.PutUint64(b[24:], e.addr)
	le.PutUint64(b[32:], e.total)
	le.PutUint64(b[40:], e.offset)
	le.PutUint32(b[48:], e.length)
	clear(b[52:entryHeader])
}

// parseEntry parses a copy of an entry, and checks what can be wrong in the entry alone.
func parseEntry(b []byte) (e entry, err error) {
	le := binary.LittleEndian
	e = entry{
		number: le.Uint64(b[0:]), psn: le.Uint32(b[8:]), op: verbs.Opcode(b[12]), flags: b[13], ranges: le.Uint16(b[14:]),
		imm: le.Uint32(b[16:]), rkey: verbs.RKey(le.Uint32(b[20:])), addr: le.Uint64(b[24:]), total: le.Uint64(b[32:]),
		offset: le.Uint64(b[40:]), length: le.Uint32(b[48:]),
	}
	space := len(b) - entryHeader
	switch {
	case e.op > verbs.OpFetchAdd:
		return e, fmt.Errorf("unknown operation %d", e.op)
	case e.op == verbs.OpCompareSwap || e.op == verbs.OpFetchAdd:
		if e.length != 8 || e.addr%8 != 0 || e.ranges != 0 || e.flags&(flagFirst|flagLast) != flagFirst|flagLast {
			return e, fmt.Errorf("%v of %d bytes at address %#x", e.op, e.length, e.addr)
		}
		return e, nil
	case e.total > maxMessage || e.offset > e.total || uint64(e.length) > e.total-e.offset:
		return e, fmt.Errorf("part of %d bytes at %d of a message of %d", e.length, e.offset, e.total)
	case (e.flags&flagFirst != 0) != (e.offset == 0) || (e.flags&flagLast != 0) != (e.offset+uint64(e.length) == e.total):
		return e, fmt.Errorf("flags %#x of the part of %d bytes at %d of %d", e.flags, e.length, e.offset, e.total)
	case e.length == 0 && e.total > 0:
		return e, fmt.Errorf("empty part of a message of %d bytes", e.total)
	case e.op == verbs.OpRead:
		if e.ranges != 0 || e.flags&flagInline != 0 || e.length > chunkSize {
			return e, fmt.Errorf("read of %d bytes with %d ranges", e.length, e.ranges)
		}
	case e.flags&flagInline != 0:
		if int64(e.length) > int64(space) || e.ranges != 0 {
			return e, fmt.Errorf("%d bytes in an entry of %d", e.length, len(b))
		}
	case int(e.ranges)*rangeSize > space:
		return e, fmt.Errorf("%d ranges in an entry of %d bytes", e.ranges, len(b))
	default:
		var sum uint64
		for i := range int(e.ranges) {
			sum += uint64(parseRange(b, i).length)
		}
		if sum != uint64(e.length) {
			return e, fmt.Errorf("ranges of %d bytes for a part of %d", sum, e.length)
		}
	}
	return e, nil
}

func putRange(b []byte, i int, p fileRange) {
	at := b[entryHeader+i*rangeSize:]
	binary.LittleEndian.PutUint32(at[0:], p.file)
	binary.LittleEndian.PutUint32(at[4:], p.length)
	binary.LittleEndian.PutUint64(at[8:], p.offset)
}

func parseRange(b []byte, i int) fileRange {
	at := b[entryHeader+i*rangeSize:]
	return fileRange{file: binary.LittleEndian.Uint32(at[0:]), length: binary.LittleEndian.Uint32(at[4:]), offset: binary.LittleEndian.Uint64(at[8:])}
}

// response is what the responder answers to a READ or an atomic.
type response struct {
	number uint64 // of the request
	value  uint64 // old value of an atomic, or where in file the content of a READ begins
	file   uint32
	length uint32
}

func (r *response) put(b []byte) {
	binary.LittleEndian.PutUint64(b[0:], r.number)
	binary.LittleEndian.PutUint64(b[8:], r.value)
	binary.LittleEndian.PutUint32(b[16:], r.file)
	binary.LittleEndian.PutUint32(b[20:], r.length)
	clear(b[24:responseSize])
}

func parseResponse(b []byte) response {
	return response{
		number: binary.LittleEndian.Uint64(b[0:]), value: binary.LittleEndian.Uint64(b[8:]),
		file: binary.LittleEndian.Uint32(b[16:]), length: binary.LittleEndian.Uint32(b[20:]),
	}
}

// putRingHeader writes the constants of a new ring.
func putRingHeader(mem []byte, entrySize int) {
	copy(mem, ringMagic)
	binary.LittleEndian.PutUint32(mem[8:], ringVersion)
	binary.LittleEndian.PutUint32(mem[atEntrySize:], uint32(entrySize)) //nolint:gosec // at most maxEntry
	word(mem, atEpoch).Store(epochAlive)
}

// checkRing returns the size of the entries of a peer's ring.
func checkRing(mem []byte) (entrySize int, err error) {
	if len(mem) < ringSize(minEntry) || string(mem[:8]) != ringMagic || binary.LittleEndian.Uint32(mem[8:]) != ringVersion {
		return 0, fmt.Errorf("the peer's memory of %d bytes is no ring of version %d", len(mem), ringVersion)
	}
	n := binary.LittleEndian.Uint32(mem[atEntrySize:])
	if n < minEntry || n > maxEntry || n%64 != 0 || len(mem) != ringSize(int(n)) {
		return 0, fmt.Errorf("the peer's ring has %d bytes and entries of %d", len(mem), n)
	}
	return int(n), nil
}

// words is what a side reads of the other's ring at once.
type words struct {
	posted, consumed, epoch, control uint64
	done, failed, noReceive, copied  uint64
}

func readWords(mem []byte) words {
	return words{
		posted: word(mem, atPosted).Load(), consumed: word(mem, atConsumed).Load(), epoch: word(mem, atEpoch).Load(),
		done: word(mem, atDone).Load(), failed: word(mem, atFailed).Load(), noReceive: word(mem, atNoReceive).Load(),
		copied: word(mem, atCopied).Load(),
		// The last one: the packets with the memfds of these requests and responses were sent before.
		control: word(mem, atControl).Load(),
	}
}
