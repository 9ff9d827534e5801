package rocetest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"
)

// Record is a captured Ethernet frame.
type Record struct {
	Time  time.Duration // since the beginning of the capture
	Frame []byte
}

// The format of libpcap (pcap-savefile(5)), little-endian: a header of 24 bytes, and
// one of 16 bytes before each frame.
const (
	pcapMagic    = 0xa1b2c3d4 // times in microseconds
	pcapEthernet = 1
	pcapHeader   = 24
	pcapRecord   = 16
	pcapSnap     = 1 << 18 // maximum length of a frame
)

// WritePcap writes a capture. Its times begin in 1970.
func WritePcap(w io.Writer, records []Record) error {
	e := binary.LittleEndian
	b := e.AppendUint32(nil, pcapMagic)
	b = e.AppendUint16(e.AppendUint16(b, 2), 4) // version 2.4
	b = e.AppendUint64(b, 0)                    // time zone and accuracy
	b = e.AppendUint32(e.AppendUint32(b, pcapSnap), pcapEthernet)
	for _, r := range records {
		b = e.AppendUint32(b, uint32(r.Time/time.Second))
		b = e.AppendUint32(b, uint32(r.Time%time.Second/time.Microsecond))
		b = e.AppendUint32(e.AppendUint32(b, uint32(len(r.Frame))), uint32(len(r.Frame))) //nolint:gosec // of one frame
		b = append(b, r.Frame...)
	}
	_, err := w.Write(b)
	return err
}

// ReadPcap parses what WritePcap writes. The frames share the memory of b.
func ReadPcap(b []byte) ([]Record, error) {
	e := binary.LittleEndian
	if len(b) < pcapHeader || e.Uint32(b) != pcapMagic || e.Uint32(b[20:]) != pcapEthernet {
		return nil, errors.New("no capture of Ethernet frames with times in microseconds, little-endian")
	}
	var records []Record
	for b = b[pcapHeader:]; len(b) > 0; {
		if len(b) < pcapRecord || uint64(len(b)-pcapRecord) < uint64(e.Uint32(b[8:])) {
			return nil, fmt.Errorf("the capture ends within frame %d", len(records)+1)
		}
		n := int(e.Uint32(b[8:]))
		if uint32(n) != e.Uint32(b[12:]) { //nolint:gosec // converted from uint32 above
			return nil, fmt.Errorf("frame %d was cut from %d bytes to %d", len(records)+1, e.Uint32(b[12:]), n)
		}
		at := time.Duration(e.Uint32(b))*time.Second + time.Duration(e.Uint32(b[4:]))*time.Microsecond
		records = append(records, Record{at, b[pcapRecord : pcapRecord+n]})
		b = b[pcapRecord+n:]
	}
	return records, nil
}
