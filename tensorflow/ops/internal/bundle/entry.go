package bundle

import (
	"slices"

	"google.golang.org/protobuf/proto"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensorproto"
)

// Entry is what an index says of a tensor.
type Entry struct {
	DType tensor.DType
	Shape tensor.Shape
	// Slices are the parts of a variable in parts, each with an entry of its own; none of a whole tensor.
	Slices []Slice

	shard        int32
	offset, size int64
	crc          uint32 // masked
}

// entryOf checks the message of a key. name is that of the file.
func entryOf(name, key string, p *tfpb.BundleEntryProto) (*Entry, error) {
	shape, err := tensorproto.ShapeFromProto(p.GetShape())
	if err != nil {
		return nil, damaged("%s: Invalid tensor shape: key %s: %v", name, quote(key), err)
	}
	if p.GetOffset() < 0 || p.GetSize() < 0 || p.GetShardId() < 0 {
		return nil, damaged("%s: key %s is at offset %d of data file %d and has %d bytes", name, quote(key), p.GetOffset(), p.GetShardId(), p.GetSize())
	}
	if len(p.GetSlices()) > maxSlices {
		return nil, damaged("%s: key %s has %d parts; at most %d are read", name, quote(key), len(p.GetSlices()), maxSlices)
	}
	e := &Entry{DType: tensor.DType(p.GetDtype()), Shape: shape, shard: p.GetShardId(), offset: p.GetOffset(), size: p.GetSize(), crc: p.GetCrc32C()}
	for _, s := range p.GetSlices() {
		part := sliceOf(s)
		if _, err := part.Shape(shape); err != nil {
			return nil, damaged("%s: key %s: a part does not fit: %v", name, quote(key), err)
		}
		e.Slices = append(e.Slices, part)
	}
	return e, nil
}

// parseMessage parses the value of a key.
func parseMessage(name, key string, value []byte, m proto.Message) error {
	if err := proto.Unmarshal(value, m); err != nil {
		return damaged("%s: Entry for key %s not parseable", name, quote(key))
	}
	return nil
}

// headerOf checks the header of an index.
func headerOf(name string, h *tfpb.BundleHeaderProto) error {
	v := h.GetVersion()
	switch {
	case h.GetNumShards() < 0:
		return damaged("%s: it names %d data files", name, h.GetNumShards())
	case h.GetEndianness() != tfpb.BundleHeaderProto_LITTLE:
		return unsupported("%s: its data has the byte order %v; this machine reads little-endian checkpoints", name, h.GetEndianness())
	case v.GetMinConsumer() > version, slices.Contains(v.GetBadConsumers(), version):
		return invalid("%s: Checkpoint min consumer version %d above current version %d: a newer TensorFlow has written it", name, v.GetMinConsumer(), version)
	}
	return nil
}

// header is what a writer writes.
func header(shards int32) *tfpb.BundleHeaderProto {
	return &tfpb.BundleHeaderProto{NumShards: shards, Version: &tfpb.VersionDef{Producer: version}}
}
