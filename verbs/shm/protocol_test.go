//go:build linux

package shm

import (
	"bytes"
	"testing"

	"github.com/tryst-rdma/tryst/internal/protocoltest"
	"github.com/tryst-rdma/tryst/verbs"
)

// TestProtocolExamples: PROTOCOL.md, section 12, has the bytes that this package writes and reads.
func TestProtocolExamples(t *testing.T) {
	for name, got := range examples() {
		if want := protocoltest.Example(t, name); !bytes.Equal(got, want) {
			t.Errorf("%s:\n%x, the document has\n%x", name, got, want)
		}
	}
	e, first := exampleEnds(), protocoltest.Example(t, "shm-hello")
	if h, err := parseHello(first); err != nil {
		t.Error(err)
	} else if err := checkHello(first, &h, &e); err != nil {
		t.Error(err)
	}
	if ns, err := checkWelcome(protocoltest.Example(t, "shm-welcome"), first, &e); err != nil || ns != 0xf0000075 {
		t.Errorf("the welcome is of user namespace %#x (%v)", ns, err)
	}
	d, err := parseEndpointData(protocoltest.Example(t, "shm-endpoint"))
	if err != nil || d.socket != nowhere || !d.inDir {
		t.Errorf("the endpoint is %+v (%v)", d, err)
	}
	b := protocoltest.Example(t, "shm-entry")
	if x, err := parseEntry(append(b, make([]byte, minEntry-len(b))...)); err != nil || x != exampleEntry() {
		t.Errorf("the entry is %+v (%v)", x, err)
	}
	if r := parseResponse(protocoltest.Example(t, "shm-response")); r != exampleResponse() {
		t.Errorf("the response is %+v", r)
	}
}

func exampleEnds() ends {
	var e ends
	for i := range 16 {
		e.secrets[0][i], e.secrets[1][i] = byte(i), byte(0xf0+i)
		e.gids[0][i], e.gids[1][i] = 0xaa, 0xbb
	}
	e.qpns = [2]verbs.QPN{0x12, 0x34}
	return e
}

func exampleEntry() entry {
	return entry{
		number: 130, psn: 0x000102, op: verbs.OpWriteImm, flags: flagSolicited | flagFirst | flagLast, ranges: 1, imm: 7,
		rkey: 0x1f2e3d4c, addr: 0x100000002000, total: 1 << 20, length: 1 << 20,
	}
}

func exampleResponse() response {
	return response{number: 131, value: 0x4000, file: 2, length: 4096}
}

func examples() map[string][]byte {
	e := exampleEnds()
	d := endpointData{secret: e.secrets[0], socket: nowhere, inDir: true}
	h := hello{gids: e.gids, qpns: e.qpns, userNS: 0xf0000075}
	body := h.body()
	first := append(body, e.proof(connector, body)...)
	welcome := make([]byte, welcomeSize-proofSize)
	welcome[0] = kindWelcome
	copy(welcome[8:], body[56:64])
	welcome = append(welcome, e.proof(acceptor, first, welcome)...)
	drop := fileMessage(kindDrop, 3)
	x, r := exampleEntry(), exampleResponse()
	at := make([]byte, entryHeader+rangeSize)
	x.put(at)
	putRange(at, 0, fileRange{file: 1, length: 1 << 20, offset: 0x8000})
	b := make([]byte, responseSize)
	r.put(b)
	return map[string][]byte{
		"shm-endpoint": d.append(nil), "shm-hello": first, "shm-welcome": welcome, "shm-refused": refusal(gonef("there is no QP 0x000034")),
		"shm-drop": drop[:], "shm-entry": at, "shm-response": b,
	}
}
