package checkpoint

import (
	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
)

// keys collects the keys that a server gives for a session. The server is not trusted: keys name
// tensors of the manifest, or pieces on the grid that was asked for, each once. Of the offers of deltas only those stay that
// will be taken.
type keys struct {
	m        *Manifest
	step     int64
	indexes  map[string]int // of the tensors, by name
	byTensor map[int][]part
	deltas   *deltaTerms  // nil if no deltas were requested
	wanted   []bool       // tensors that were requested; nil without deltas
	offered  []bool       // tensors that an offer came for
	ways     map[int]*way // by tensor: what the offers make
}

// deltaTerms is what a pull requests of deltas, and which offers it takes.
type deltaTerms struct {
	request *trystpb.DeltaRequest
	wayOf   func(i int, d *trystpb.TensorDelta) *way // nil for an offer that is not taken
}

// newKeys returns the keys of a session that requests the chosen tensors, and takes deltas if deltas is not nil.
func newKeys(m *Manifest, chosen []int, deltas *deltaTerms) *keys {
	k := &keys{m: m, indexes: make(map[string]int, len(m.Entries)), byTensor: make(map[int][]part, len(m.Entries)), deltas: deltas}
	for i := range m.Entries {
		k.indexes[m.Entries[i].Name] = i
	}
	if deltas == nil {
		return k
	}
	k.wanted, k.offered, k.ways = make([]bool, len(m.Entries)), make([]bool, len(m.Entries)), make(map[int]*way)
	for _, i := range chosen {
		k.wanted[i] = true
	}
	return k
}

// take stores the keys of one message.
func (k *keys) take(resp *trystpb.OpenResponse) error {
	if k.step != 0 && resp.GetStepId() != k.step {
		return status.Errorf(status.Internal, "the server changed the step from %d to %d", k.step, resp.GetStepId())
	}
	if len(resp.GetKeys()) == 0 && !resp.GetLast() && (k.deltas == nil || len(resp.GetDeltas()) == 0) {
		return status.New(status.Internal, "the server sent a message without a key, which is not the last one")
	}
	k.step = resp.GetStepId()
	for _, key := range resp.GetKeys() {
		if err := k.add(key); err != nil {
			return err
		}
	}
	if k.deltas == nil {
		return nil
	}
	for _, d := range resp.GetDeltas() {
		if err := k.offer(d); err != nil {
			return err
		}
	}
	return nil
}

// offer takes an offer, or drops it.
func (k *keys) offer(d *trystpb.TensorDelta) error {
	i, ok := k.indexes[d.GetName()]
	if !ok || k.offered[i] {
		return status.Errorf(status.Internal, "the server offered deltas for tensor %s, which is not one of the %d tensors of the publication, or twice", quote(d.GetName()), len(k.m.Entries))
	}
	k.offered[i] = true
	if !k.wanted[i] {
		return nil
	}
	if w := k.deltas.wayOf(i, d); w != nil {
		k.ways[i] = w
	}
	return nil
}

// maxKey returns how long a key of a tensor, or of a delta of it, may be.
func (m *Manifest) maxKey(e *TensorInfo) int {
	return 3*(len(m.Name)+len(e.Name)) + len(m.Version) + maxKeyRest
}

func (k *keys) add(key *trystpb.TensorKey) error {
	parsed, err := rendezvous.ParseKey(key.GetKey())
	if err != nil {
		return wrap("tensor "+quote(key.GetName()), err)
	}
	i, ok := k.indexes[key.GetName()]
	if !ok {
		return status.Errorf(status.Internal, "the server gave a key for tensor %s, which is not one of the %d tensors of the publication", quote(key.GetName()), len(k.m.Entries))
	}
	e := &k.m.Entries[i]
	if n := len(key.GetKey()); n > k.m.maxKey(e) {
		return status.Errorf(status.Internal, "the server gave a key of %d bytes for tensor %s: none is so long", n, quote(e.Name))
	}
	p := part{i: i, piece: piece{int64(key.GetOffset()), int64(key.GetBytes())}, key: parsed}
	before := k.byTensor[i]
	next := int64(0) // where the next piece begins; pieces come in order
	if len(before) > 0 {
		next = before[len(before)-1].end()
	}
	switch {
	case len(before) > 0 && (p.whole() || before[0].whole()):
		return status.Errorf(status.Internal, "the server gave more than one key for tensor %s", quote(e.Name))
	case !p.whole() && (!e.DType.Plain() || p.off != next || next >= e.Bytes || p.n != min(pieceBytes, e.Bytes-next)):
		return status.Errorf(status.Internal, "the server gave a key for %d bytes at %d of tensor %s: no such piece of its %d bytes was requested, or not in this order",
			p.n, p.off, quote(e.Name), e.Bytes)
	}
	k.byTensor[i] = append(before, p)
	return nil
}

// parts returns the parts of the given tensors, in order.
func (k *keys) parts(chosen []int) ([]part, error) {
	var all []part
	for _, i := range chosen {
		got, e := k.byTensor[i], &k.m.Entries[i]
		if len(got) == 0 {
			return nil, status.Errorf(status.Internal, "the server gave no key for tensor %s", quote(e.Name))
		}
		if last := got[len(got)-1]; !last.whole() && last.end() != e.Bytes {
			return nil, status.Errorf(status.Internal, "the server gave no key for tensor %s from byte %d of %d", quote(e.Name), last.end(), e.Bytes)
		}
		all = append(all, got...)
	}
	return all, nil
}
