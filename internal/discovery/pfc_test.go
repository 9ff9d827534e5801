package discovery

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"
)

// attr is an attribute of netlink.
func pfcAttr(kind uint16, value []byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(attrHeader+len(value))) //nolint:gosec // short
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = append(b, value...)
	return append(b, make([]byte, (4-len(b)%4)%4)...)
}

// pfcAnswer is what the kernel answers for a NIC: its name, and within IEEE what it
// is asked for, among others.
func pfcAnswer(pfc []byte) []byte {
	ieee := slices.Concat(pfcAttr(1, make([]byte, 64)), pfcAttr(dcbIEEEPFC, pfc), pfcAttr(3, nil))
	return slices.Concat([]byte{0, dcbIEEEGet, 0, 0}, pfcAttr(dcbIfname, []byte("eth0\x00")), pfcAttr(1<<15|dcbIEEE, ieee))
}

func TestParsePFC(t *testing.T) {
	pfc := make([]byte, pfcSize)
	pfc[0], pfc[1] = 8, 1<<3|1<<5 // can pause eight, pauses two
	binary.NativeEndian.PutUint64(pfc[8+8*3:], 1000)
	binary.NativeEndian.PutUint64(pfc[72+8*5:], 7)
	p, found, err := parsePFC(pfcAnswer(pfc))
	if err != nil || !found || !slices.Equal(p.Priorities(), []int{3, 5}) || p.Sent[3] != 1000 || p.Received[5] != 7 || p.Sent[5]+p.Received[3] != 0 {
		t.Errorf("%+v, %v, %v", p, found, err)
	}
	if _, found, err := parsePFC([]byte{0, dcbIEEEGet, 0, 0}); found || err != nil {
		t.Errorf("an answer without anything: %v, %v", found, err)
	}
}

func TestParsePFCRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		b     []byte
		words string
	}{
		"no header":         {[]byte{0, dcbIEEEGet}, "2 bytes about DCB"},
		"a short structure": {pfcAnswer(make([]byte, pfcSize-1)), "135 bytes about PFC"},
		"a broken list":     {append([]byte{0, dcbIEEEGet, 0, 0}, 200, 0, dcbIEEE, 0), "says that it has"},
	} {
		if _, found, err := parsePFC(c.b); found || err == nil || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: %v, %v; want %q", name, found, err, c.words)
		}
	}
}

func FuzzParsePFC(f *testing.F) {
	f.Add(pfcAnswer(make([]byte, pfcSize)))
	f.Add(pfcAnswer(nil))
	f.Fuzz(func(_ *testing.T, b []byte) { _, _, _ = parsePFC(b) })
}
