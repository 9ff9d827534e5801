package bootstrap

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/bootstrap/bootstraptest"
	"github.com/tryst-rdma/tryst/internal/handshake"
	"github.com/tryst-rdma/tryst/internal/proto/tensorflowgrpc"
	"github.com/tryst-rdma/tryst/internal/protocoltest"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/verbs"
)

func TestBothSidesAtOnce(t *testing.T) {
	w := newFakeCluster(t)
	a, b := w.start(zero), w.start(one)
	var both sync.WaitGroup
	both.Go(func() { a.want(one) })
	both.Go(func() { b.want(zero) })
	both.Wait()
	a.up(b)
	b.up(a)
}

func TestStartInAnyOrder(t *testing.T) {
	w := newFakeCluster(t)
	a := w.start(zero)
	a.want(one)
	a.wait("the failure", one, func(m *handshake.Machine) bool { _, err := m.State(); return err != nil })
	b := w.start(one)
	b.want(zero)
	a.up(b)
	b.up(a)
}

func TestTwiceTheSame(t *testing.T) {
	w := newFakeCluster(t)
	a, b := w.start(zero), w.start(one)
	a.want(one)
	a.up(b)
	b.up(a)
	a.mu.Lock()
	own := a.self
	own.Generation = a.side(one).m.Generation()
	a.mu.Unlock()
	var answers []handshake.Offer
	for range 2 {
		o, err := a.ex.Exchange(t.Context(), one, own)
		if err != nil {
			t.Fatal(err)
		}
		answers = append(answers, o)
	}
	if !answers[0].Equal(answers[1]) || answers[0].Generation != own.Generation {
		t.Errorf("one offer was answered with %v and %v", answers[0], answers[1])
	}
	if a.closed+b.closed != 0 {
		t.Error("the request closed a channel")
	}
	a.up(b)
}

func TestRestartedPeer(t *testing.T) {
	w := newFakeCluster(t)
	a, b := w.start(zero), w.start(one)
	a.want(one)
	a.up(b)
	b.up(a)
	b.close()
	again := w.start(one)
	again.want(zero)
	a.up(again)
	again.up(a)
}

// A caller with another incarnation gets an introduction and changes nothing: the call to
// the peer's address finds the accepted process there.
func TestForeignIncarnation(t *testing.T) {
	w := newFakeCluster(t)
	a, b := w.start(zero), w.start(one)
	a.want(one)
	a.up(b)
	b.up(a)
	foreign := offer(zero, 4711)
	foreign.Generation = 99
	o, err := a.ex.Exchange(t.Context(), one, foreign)
	if err != nil || !o.IsIntroduction() || o.Incarnation != b.self.Incarnation {
		t.Fatalf("answered %v, %v", o, err)
	}
	b.up(a)
	if a.closed+b.closed != 0 {
		t.Error("the request closed a channel")
	}
}

// TestHighGenerationEndsNothing: an offer in a peer's name with the highest generation is
// refused. The channel goes on, and later channels can be made.
func TestHighGenerationEndsNothing(t *testing.T) {
	w := newFakeCluster(t)
	a, b := w.start(zero), w.start(one)
	a.want(one)
	a.up(b)
	b.up(a)
	forged := offer(zero, a.self.Incarnation)
	forged.Generation = handshake.MaxGeneration
	_, err := a.ex.Exchange(t.Context(), one, forged)
	if status.CodeOf(err) != status.FailedPrecondition || !strings.Contains(err.Error(), "65536 above the last one") {
		t.Errorf("%v", err)
	}
	b.up(a)
	if a.closed+b.closed != 0 {
		t.Error("the request closed a channel")
	}
	b.close()
	again := w.start(one)
	again.want(zero)
	a.up(again)
	again.up(a)
}

// TestGenerationsBeginAnewWithAnotherProcess: generations that were used up with an earlier
// process are available again.
func TestGenerationsBeginAnewWithAnotherProcess(t *testing.T) {
	w := newFakeCluster(t)
	a, b := w.start(zero), w.start(one)
	a.want(one)
	a.up(b)
	b.up(a)
	for range 3 { // each step is allowed
		high := offer(zero, a.self.Incarnation)
		b.mu.Lock()
		high.Generation = b.side(zero).m.Generation() + handshake.MaxStep
		b.mu.Unlock()
		if o, err := a.ex.Exchange(t.Context(), one, high); err != nil || o.Generation != high.Generation {
			t.Fatalf("%v, %v", o, err)
		}
	}
	a.close()
	again := w.start(zero)
	again.want(one)
	again.up(b)
	b.up(again)
	b.mu.Lock()
	defer b.mu.Unlock()
	if g := b.side(zero).m.Generation(); g > handshake.MaxStep {
		t.Errorf("the channel with the new process has generation %d", g)
	}
}

// ask sends a message unchanged.
func (n *node) ask(m *tfpb.GetRemoteAddressRequest, to cluster.Task) (*tfpb.GetRemoteAddressResponse, error) {
	conn, err := n.ex.conn(to)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return tensorflowgrpc.NewVerbsServiceClient(conn).GetRemoteAddress(ctx, m)
}

// TestLaterVersionsMayAddFields: a message of a later version, with fields that this one
// does not know in it and in its rails, gets the response of one without them.
func TestLaterVersionsMayAddFields(t *testing.T) {
	w := newFakeCluster(t)
	a, b := w.start(zero), w.start(one)
	own := a.self
	own.Generation = 1
	m := toRequest(one, own)
	m.Version = handshake.Version + 1
	var unknown []byte
	unknown = protowire.AppendVarint(protowire.AppendTag(unknown, 1000, protowire.VarintType), 7)
	unknown = protowire.AppendBytes(protowire.AppendTag(unknown, 1001, protowire.BytesType), []byte("a device"))
	unknown = protowire.AppendFixed64(protowire.AppendTag(unknown, 1002, protowire.Fixed64Type), 7)
	m.ProtoReflect().SetUnknown(unknown)
	m.Rails[0].ProtoReflect().SetUnknown(unknown)
	answer, err := a.ask(m, one)
	if err != nil {
		t.Fatal(err)
	}
	answer.ProtoReflect().SetUnknown(unknown)
	answer.Rails[0].ProtoReflect().SetUnknown(unknown)
	written, err := proto.Marshal(answer)
	if err != nil {
		t.Fatal(err)
	}
	var read tfpb.GetRemoteAddressResponse
	if err := proto.Unmarshal(written, &read); err != nil || len(read.GetRails()[0].ProtoReflect().GetUnknown()) == 0 {
		t.Fatalf("the answer did not keep its fields: %v", err)
	}
	want := b.self
	want.Generation = 1
	if o, err := fromMessage(&read); err != nil || !o.Equal(want) {
		t.Errorf("answered %v, %v; want %v", o, err, want)
	}
}

func TestNothingInAMessageStopsAProcess(t *testing.T) {
	w := newFakeCluster(t)
	a, b := w.start(zero), w.start(one)
	good := func() *tfpb.GetRemoteAddressRequest {
		o := a.self
		o.Generation = 1
		return toRequest(one, o)
	}
	for _, c := range bootstraptest.All(b.self.Incarnation) {
		m := good()
		c.Spoil(m)
		_, err := a.ask(m, one)
		if s := grpcstatus.Convert(err); s.Code() != c.Code || !strings.Contains(s.Message(), c.Words) {
			t.Errorf("%s: want %v %q, got %v", c.Name, c.Code, c.Words, err)
		}
	}
	// The service still responds.
	a.want(one)
	a.up(b)
	b.up(a)
}

// TestErrorsHaveNoQueuePairs: the caller gets the reason, and no queue pair number.
func TestErrorsHaveNoQueuePairs(t *testing.T) {
	w := newFakeCluster(t)
	a := w.start(zero)
	o := a.self
	o.Generation = 1
	s := &service{ServiceOptions: ServiceOptions{
		Self: one,
		Host: func(cluster.Task) (string, bool) { return "h", true },
		Answer: func(context.Context, string, handshake.Offer) (handshake.Offer, error) {
			return handshake.Offer{}, status.Errorf(status.FailedPrecondition, "bring to RTR mem0 QP %v: no way", verbs.QPN(0x8c3dd6))
		},
	}}
	_, err := s.GetRemoteAddress(t.Context(), toRequest(one, o))
	if got := grpcstatus.Convert(err).Message(); got != "bring to RTR mem0 QP: no way" {
		t.Errorf("%q", got)
	}
}

func TestAnotherTaskIsAtTheAddress(t *testing.T) {
	w := newFakeCluster(t)
	a, b := w.start(zero), w.start(one)
	two := cluster.Task{Job: "worker", Index: 2}
	w.mu.Lock()
	w.addrs[two] = w.addrs[one]
	w.mu.Unlock()
	own := a.self
	own.Generation = 1
	_, err := a.ex.Exchange(t.Context(), two, own)
	if status.CodeOf(err) != status.FailedPrecondition || !strings.Contains(err.Error(), "task:2") {
		t.Errorf("%v", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.side(zero).m.Generation() != 0 {
		t.Error("it has made an offer for it")
	}
}

func TestPeerWithoutVerbs(t *testing.T) {
	w := newFakeCluster(t)
	a, b := w.start(zero), w.start(one)
	b.server.Stop()
	plain := grpc.NewServer()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = plain.Serve(l) }()
	defer plain.Stop()
	w.mu.Lock()
	w.addrs[one] = l.Addr().String()
	w.mu.Unlock()
	own := a.self
	own.Generation = 1
	_, err = a.ex.Exchange(t.Context(), one, own)
	if status.CodeOf(err) != status.Unimplemented || !errors.Is(err, handshake.ErrNotServed) || !strings.Contains(err.Error(), one.String()+" does not serve verbs") {
		t.Errorf("%v", err)
	}
}

func TestACallEndsWithItsDeadline(t *testing.T) {
	w := newFakeCluster(t)
	a := w.start(zero)
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0") // accepts connections and sends nothing
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	w.mu.Lock()
	w.addrs[one] = l.Addr().String()
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	own := a.self
	own.Generation = 1
	if _, err = a.ex.Exchange(ctx, one, own); status.CodeOf(err) != status.DeadlineExceeded {
		t.Errorf("%v", err)
	}
}

// certificates makes a certificate authority and certificates signed by it.
func certificates(t *testing.T) (roots *x509.CertPool, sign func(*x509.Certificate) tls.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots = x509.NewCertPool()
	roots.AddCert(parsed)
	return roots, func(c *x509.Certificate) tls.Certificate {
		c.SerialNumber, c.NotBefore, c.NotAfter = big.NewInt(2), ca.NotBefore, ca.NotAfter
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
		own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		der, err := x509.CreateCertificate(rand.Reader, c, parsed, &own.PublicKey, key)
		if err != nil {
			t.Fatal(err)
		}
		return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: own}
	}
}

func TestWithMutualTLSTheNameIsTheCertificates(t *testing.T) {
	roots, sign := certificates(t)
	uri := func(s string) []*url.URL {
		u, err := url.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		return []*url.URL{u}
	}
	for name, c := range map[string]struct {
		cert *x509.Certificate
		code status.Code
	}{
		"task in a URI":       {&x509.Certificate{URIs: uri("tryst:" + zero.String())}, status.OK},
		"task in a SPIFFE id": {&x509.Certificate{URIs: uri("spiffe://example.org" + zero.String())}, status.OK},
		"task as common name": {&x509.Certificate{Subject: pkix.Name{CommonName: zero.String()}}, status.OK},
		"its host":            {&x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}, status.OK},
		"another task":        {&x509.Certificate{URIs: uri("tryst:/job:worker/replica:0/task:10")}, status.PermissionDenied},
		"another host":        {&x509.Certificate{DNSNames: []string{"h9"}}, status.PermissionDenied},
		"another task, its host": {&x509.Certificate{Subject: pkix.Name{CommonName: one.String()}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}},
			status.PermissionDenied},
		"nothing": {&x509.Certificate{}, status.PermissionDenied},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFakeCluster(t)
			pair := sign(c.cert)
			w.tls = func(task cluster.Task) (server, client credentials.TransportCredentials) {
				own := sign(&x509.Certificate{DNSNames: []string{"tryst.test"}})
				if task == zero {
					own = pair
				}
				return credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{own}, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert}),
					credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{own}, RootCAs: roots, ServerName: "tryst.test"})
			}
			a, b := w.start(zero), w.start(one)
			own := a.self
			own.Generation = 1
			o, err := a.ex.Exchange(t.Context(), one, own)
			if status.CodeOf(err) != c.code || err == nil && o.Incarnation != b.self.Incarnation {
				t.Errorf("want %v, got %v, %v", c.code, o, err)
			}
		})
	}
}

// TensorFlow's tools read rail 0 of an offer.
func TestTensorFlowsFieldsAreFilled(t *testing.T) {
	o := offer(zero, 9)
	o.Generation = 1
	o.Rails[0].LID = 7
	m := toRequest(one, o)
	prefix, id := o.Rails[0].GID.Words()
	if c := m.GetChannel(); c.GetLid() != 7 || c.GetQpn() != 17 || c.GetPsn() != 9 || c.GetSnp() != prefix || c.GetIid() != id || m.GetHostName() != zero.String() {
		t.Errorf("%v", m)
	}
}

// TestOfferIsAsProtocolWritesIt compares an encoded request with the bytes of PROTOCOL.md
// section 9, and the decoded bytes with the offer.
func TestOfferIsAsProtocolWritesIt(t *testing.T) {
	own := offer(zero, 0x1122334455667788)
	own.Generation = 3
	own.Rails[0].UDP = verbs.UDPEndpoint{Port: 4000, Sources: []uint16{40_001}, Buffer: 1 << 20}
	want := protocoltest.Example(t, "bootstrap-request")
	got, err := proto.MarshalOptions{Deterministic: true}.Marshal(toRequest(one, own))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("written:\n%x\nPROTOCOL.md section 9:\n%x", got, want)
	}
	var m tfpb.GetRemoteAddressRequest
	if err := proto.Unmarshal(want, &m); err != nil {
		t.Fatal(err)
	}
	if o, err := fromMessage(&m); err != nil || !o.Equal(own) || m.GetPeerName() != one.String() {
		t.Errorf("PROTOCOL.md section 9 shows %+v to %s, %v", o, m.GetPeerName(), err)
	}
}

func FuzzRequest(f *testing.F) {
	full := offer(zero, 9)
	full.Generation = 3
	full.Rails[0].UDP = verbs.UDPEndpoint{Port: 4000, Sources: []uint16{1, 2}, Buffer: 1 << 20}
	for _, m := range []*tfpb.GetRemoteAddressRequest{{}, toRequest(one, offer(zero, 9)), toRequest(one, full), toRequest(one, offerOfProcess()), {HostName: zero.String(), Version: 1, Incarnation: 4}} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var m tfpb.GetRemoteAddressRequest
		if proto.Unmarshal(b, &m) != nil {
			return
		}
		o, err := fromMessage(&m)
		if err != nil {
			if status.CodeOf(err) != status.FailedPrecondition {
				t.Errorf("%v", err)
			}
			return
		}
		again, err := fromMessage(toResponse(o))
		if err != nil || !again.Equal(o) || !reflect.DeepEqual(again.Inventory, o.Inventory) {
			t.Errorf("%v with %+v became %v with %+v, %v", o, o.Inventory, again, again.Inventory, err)
		}
	})
}

// TestMessagesShowTheWholeOffer: decoding a message returns the offer that was encoded.
func TestMessagesShowTheWholeOffer(t *testing.T) {
	own := offer(zero, 7)
	own.Generation = 3
	for name, m := range map[string]message{"request": toRequest(one, own), "response": toResponse(own)} {
		if got, err := fromMessage(m); err != nil || !got.Equal(own) || got.Host == 0 {
			t.Errorf("the %s of %+v shows %+v, %v", name, own, got, err)
		}
	}
}

// TestAPeersSentenceIsQuoted: an error tells what the peer has said from what the connection did.
func TestAPeersSentenceIsQuoted(t *testing.T) {
	w := newFakeCluster(t)
	a, b := w.start(zero), w.start(one)
	own := a.self
	own.Generation = 1
	own.Rails[0].QPN = 0
	_, err := a.ex.Exchange(t.Context(), one, own)
	said, ok := errors.AsType[*status.Said](err)
	if !ok || said.Peer != one.String() || status.CodeOf(err) != status.FailedPrecondition || !strings.HasPrefix(status.From(err).Message(), one.String()+` says: "`) {
		t.Errorf("what the peer said: %v", err)
	}
	b.close()
	_, err = a.ex.Exchange(t.Context(), one, own)
	if _, ok := errors.AsType[*handshake.UnreachedError](err); !ok || strings.Contains(err.Error(), "says") {
		t.Errorf("what the connection did: %v", err)
	}
}
