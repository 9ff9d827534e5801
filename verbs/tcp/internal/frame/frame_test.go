package frame

import (
	"bytes"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/tryst-rdma/tryst/internal/protocoltest"
	"github.com/tryst-rdma/tryst/verbs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The examples of PROTOCOL.md section 11.
var (
	exampleSecrets = Secrets{From: secret(0x10), To: secret(0x20)}
	exampleNames   = Names{From: 0x11, To: 0x22, FromGID: gid(0xa0), ToGID: gid(0xb0)}
)

// secret and gid return bytes that count from a first one.
func secret(first byte) (s [SecretLen]byte) {
	for i := range s {
		s[i] = first + byte(i)
	}
	return s
}

func gid(first byte) (g verbs.GID) { return verbs.GID(secret(first)) }

func TestEndpointIsAsInTheProtocol(t *testing.T) {
	want := Endpoint{Secret: exampleSecrets.To, Addresses: []string{"10.0.0.2:7000", "[fd00::2]:7000"}}
	b := protocoltest.Example(t, "tcp-endpoint")
	if got := want.Append(nil); !bytes.Equal(got, b) {
		t.Errorf("written %x\nexample %x", got, b)
	}
	var got Endpoint
	if err := got.Parse(b); err != nil {
		t.Fatal(err)
	}
	if got.Secret != want.Secret || strings.Join(got.Addresses, " ") != strings.Join(want.Addresses, " ") {
		t.Errorf("read %+v", got)
	}
}

func TestGreetingAndReplyAreAsInTheProtocol(t *testing.T) {
	g := Greeting{Names: exampleNames, Proof: Connecting(&exampleNames, &exampleSecrets)}
	if got, want := g.Append(nil), protocoltest.Example(t, "tcp-greeting"); !bytes.Equal(got, want) {
		t.Errorf("written %x\nexample %x", got, want)
	}
	r := Reply{Proof: Accepting(&exampleNames, &exampleSecrets)}
	if got, want := r.Append(nil), protocoltest.Example(t, "tcp-reply"); !bytes.Equal(got, want) {
		t.Errorf("written %x\nexample %x", got, want)
	}
	refused := Reply{Reason: "no"}
	if got, want := refused.Append(nil), protocoltest.Example(t, "tcp-refusal"); !bytes.Equal(got, want) {
		t.Errorf("written %x\nexample %x", got, want)
	}
}

func TestFramesAreAsInTheProtocol(t *testing.T) {
	write := Header{
		Kind: WriteImm, Flags: WantAck, Length: 3, Number: 0x123456, Acked: 0x654321, RKey: 0xcafe, Imm: 0x01020304,
		Addr: 0x100000001000, Total: 3,
	}
	if got, want := append(write.Append(nil), "abc"...), protocoltest.Example(t, "tcp-write"); !bytes.Equal(got, want) {
		t.Errorf("written %x\nexample %x", got, want)
	}
	ack := Header{Kind: Ack, Acked: 0x123457}
	if got, want := ack.Append(nil), protocoltest.Example(t, "tcp-ack"); !bytes.Equal(got, want) {
		t.Errorf("written %x\nexample %x", got, want)
	}
}

// TestProofsCoverEverything: another value, role or secret gives another proof.
func TestProofsCoverEverything(t *testing.T) {
	seen := map[Proof]string{}
	add := func(what string, p Proof) {
		if other, ok := seen[p]; ok {
			t.Errorf("%s and %s have the same proof", what, other)
		}
		seen[p] = what
	}
	n, s := exampleNames, exampleSecrets
	add("connecting", Connecting(&n, &s))
	add("accepting", Accepting(&n, &s))
	for what, change := range map[string]func(){
		"From": func() { n.From++ }, "To": func() { n.To++ }, "FromGID": func() { n.FromGID[15]++ }, "ToGID": func() { n.ToGID[0]++ },
		"the secret of the connecting side": func() { s.From[3]++ }, "the secret of the accepting side": func() { s.To[15]++ },
		"exchanged secrets": func() { s.From, s.To = s.To, s.From },
	} {
		n, s = exampleNames, exampleSecrets
		change()
		add("another "+what, Connecting(&n, &s))
	}
}

// TestHeaderRefusesWhatNobodySends: each wrong field is named.
func TestHeaderRefusesWhatNobodySends(t *testing.T) {
	for want, h := range map[string]Header{
		"unknown kind 0":        {},
		"unknown kind 15":       {Kind: 15},
		"1048577 bytes":         {Kind: Write, Length: MaxPayload + 1, Total: MaxPayload + 1},
		"unknown flags 0x4":     {Kind: Send, Flags: 4},
		"unknown flags 0x1":     {Kind: Ack, Flags: Solicited},
		"a key or an address":   {Kind: Send, RKey: 1},
		"immediate data":        {Kind: Write, Imm: 1},
		"a total length":        {Kind: Ack, Total: 1},
		"total length of 21474": {Kind: Read, Total: MaxMessage + 1},
		"2 bytes of 1":          {Kind: Send, Length: 2, Total: 1},
		"0 bytes of 1":          {Kind: Write, Total: 1},
		"an atomic has 16":      {Kind: FetchAdd, Length: 8, Total: 8},
		"no bytes":              {Kind: Data},
		"none may follow":       {Kind: NAK, Length: 1},
	} {
		var got Header
		if err := got.Parse(h.Append(nil)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", h, err, want)
		}
	}
	reserved := (&Header{Kind: Ack}).Append(nil)
	reserved[3] = 1
	if err := new(Header).Parse(reserved); err == nil || !strings.Contains(err.Error(), "reserved") {
		t.Errorf("reserved bytes: %v", err)
	}
}

// TestEndpointRefusesWhatNobodySends: each wrong part is named.
func TestEndpointRefusesWhatNobodySends(t *testing.T) {
	good := (&Endpoint{Secret: secret(1), Addresses: []string{"a:1"}}).Append(nil)
	many := Endpoint{}
	for range maxAddresses + 1 {
		many.Addresses = append(many.Addresses, "a:1")
	}
	for want, b := range map[string][]byte{
		"at least 18":       good[:17],
		"version 2":         append([]byte{2}, good[1:]...),
		"within an address": good[:len(good)-1],
		"follow its end":    append(bytes.Clone(good), 0),
		"at most 1024":      make([]byte, verbs.MaxEndpointData+1),
		"at most 16":        many.Append(nil),
		"not host:port":     (&Endpoint{Addresses: []string{"a"}}).Append(nil),
		`"a:0" is not`:      (&Endpoint{Addresses: []string{"a:0"}}).Append(nil),
	} {
		if err := new(Endpoint).Parse(b); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%x: %v, want %q", b, err, want)
		}
	}
}

func FuzzHeader(f *testing.F) {
	f.Add((&Header{Kind: Write, Length: 1, Total: 1, Number: 1, Acked: 2, RKey: 3, Addr: 4}).Append(nil))
	f.Add((&Header{Kind: NAK, Imm: 10}).Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < HeaderLen {
			return
		}
		var h Header
		if h.Parse(b) == nil && !bytes.Equal(h.Append(nil), b[:HeaderLen]) {
			t.Errorf("%x is read as %+v and written as %x", b, h, h.Append(nil))
		}
	})
}

func FuzzEndpoint(f *testing.F) {
	f.Add((&Endpoint{Secret: secret(1), Addresses: []string{"a:1", "[::1]:2"}}).Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		var e Endpoint
		if e.Parse(b) == nil && !bytes.Equal(e.Append(nil), b) {
			t.Errorf("%x is read as %+v and written as %x", b, e, e.Append(nil))
		}
	})
}

func FuzzGreeting(f *testing.F) {
	g := Greeting{Names: exampleNames}
	f.Add(g.Append(nil))
	f.Add((&Reply{Reason: "no"}).Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= GreetingLen {
			var g Greeting
			if g.Parse(b) == nil && !bytes.Equal(g.Append(nil), b[:GreetingLen]) {
				t.Errorf("%x is read as %+v", b, g)
			}
		}
		if len(b) >= ReplyHeadLen {
			var r Reply
			if n, err := r.ParseHead(b); err == nil && n <= len(b)-ReplyHeadLen {
				r.Reason = string(b[ReplyHeadLen : ReplyHeadLen+n])
				if !bytes.Equal(r.Append(nil), b[:ReplyHeadLen+n]) {
					t.Errorf("%x is read as %+v", b, r)
				}
			}
		}
	})
}
