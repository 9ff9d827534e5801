package checkpoint

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/safetensors"
)

// Publication identifies an immutable set of tensors.
type Publication struct {
	// Name is unique on its server.
	Name string
	// Version is derived from the content: tensors, metadata and file names. The same content
	// has the same version on all servers.
	Version string
	// Tensors is the number of tensors. Bytes is the sum of their content.
	Tensors int
	Bytes   int64
	// Published is when the server published it.
	Published time.Time
	// Number is the number of the version, ascending within an Epoch: one life of the publication, from its
	// first version to its withdrawal or the end of its server. Numbers of two epochs cannot be compared.
	// Both are 0 from a server that does not number versions.
	Number, Epoch uint64
}

// Manifest describes a publication. It has all that is needed to receive each tensor, to check
// it, and to write the same files. It must not be changed.
type Manifest struct {
	Publication
	// Entries are the tensors, in the order of the files and of their offsets.
	Entries []TensorInfo
	// Files are the files of the tensors, and the indexes of sharded checkpoints; empty for
	// tensors in memory.
	Files []FileInfo
	// Algorithm is the algorithm of the digests: XXH64 or SHA256.
	Algorithm string

	perFile []int // number of tensors in each file; of a manifest from a server
}

// TensorInfo describes one tensor of a publication.
type TensorInfo struct {
	Name  string // unique in the publication
	DType tensor.DType
	Shape tensor.Shape
	// Packed is the type and shape in a safetensors file if package tensor lacks the type; DType
	// and Shape are then those of the bytes.
	Packed safetensors.Packed
	Bytes  int64  // of the content
	Digest []byte // of the content; see Manifest.Algorithm
	File   int    // index in Manifest.Files
	Offset int64  // of the content in that file, in bytes
}

// FileInfo describes a file of a publication.
type FileInfo struct {
	Name     string // base name
	Format   string // FormatSafetensors, FormatNPY or FormatIndex
	Metadata map[string]string
	Bytes    int64 // length of the file
	// Header is the bytes before the first tensor; nil if package safetensors or npy writes the
	// same header for these tensors and metadata. For an index it is the whole file.
	Header []byte
}

// The formats of files.
const (
	FormatSafetensors = "safetensors"
	FormatNPY         = "npy"
	FormatIndex       = "safetensors.index"
)

// setVersion computes the version and the other fields that are derived from the manifest.
func (m *Manifest) setVersion() error {
	m.Tensors, m.Bytes = len(m.Entries), 0
	for _, e := range m.Entries {
		m.Bytes += e.Bytes
	}
	p := m.proto()
	if n := proto.Size(p); n > maxManifest {
		return status.Errorf(status.ResourceExhausted,
			"the description of the %d tensors takes %d bytes; at most %d can be published as one", m.Tensors, n, maxManifest)
	}
	p.Publication = nil // name and time are not content
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(p)
	if err != nil {
		return status.Errorf(status.InvalidArgument, "the description of the tensors: %w", err)
	}
	sum := sha256.Sum256(b)
	m.Version = hex.EncodeToString(sum[:8])
	return nil
}

// proto returns the manifest as a message that shares its memory.
func (m *Manifest) proto() *trystpb.DescribeResponse {
	p := &trystpb.DescribeResponse{
		Publication:     m.Publication.proto(),
		DigestAlgorithm: m.Algorithm,
	}
	for i := range m.Entries {
		e := &m.Entries[i]
		p.Tensors = append(p.Tensors, &trystpb.TensorInfo{
			Name: e.Name, Dtype: tfpb.DataType(e.DType), Shape: e.Shape.Dims(), Bytes: uint64(e.Bytes),
			Digest: e.Digest, File: uint32(e.File), FileOffset: uint64(e.Offset),
			PackedType: e.Packed.Type, PackedShape: e.Packed.Shape.Dims(),
		})
	}
	for _, f := range m.Files {
		p.Files = append(p.Files, &trystpb.FileInfo{
			Name: f.Name, Format: f.Format, Metadata: f.Metadata, Bytes: uint64(f.Bytes), Header: f.Header,
		})
	}
	return p
}

// encoded returns the manifest as a message that is encoded already.
func (m *Manifest) encoded() *trystpb.DescribeResponse { return encoded(m.proto()) }

// encoded returns a message whose only content is the encoding of m, as unknown fields. protobuf writes these as they
// are, and transport/grpc lends them without a copy.
func encoded[M proto.Message](m M) M {
	b, err := proto.Marshal(m)
	if err != nil {
		return m // it is an error again when it is sent
	}
	empty := m.ProtoReflect().New()
	empty.SetUnknown(b)
	if e, ok := empty.Interface().(M); ok {
		return e
	}
	return m
}

func (p Publication) proto() *trystpb.Publication {
	return &trystpb.Publication{
		Name: p.Name, Version: p.Version, Bytes: uint64(p.Bytes), Tensors: uint32(p.Tensors),
		PublishedUnixNanos: p.Published.UnixNano(), Number: p.Number, Epoch: p.Epoch,
	}
}

func publicationOf(p *trystpb.Publication) Publication {
	return Publication{
		Name: p.GetName(), Version: p.GetVersion(), Tensors: int(p.GetTensors()), Bytes: int64(p.GetBytes()),
		Published: time.Unix(0, p.GetPublishedUnixNanos()), Number: p.GetNumber(), Epoch: p.GetEpoch(),
	}
}

// manifestOf checks a manifest from a server, which is not trusted: a puller creates files of
// its names, and allocates memory of its sizes.
func manifestOf(p *trystpb.DescribeResponse) (*Manifest, error) {
	m := &Manifest{Publication: publicationOf(p.GetPublication()), Algorithm: p.GetDigestAlgorithm()}
	if _, err := newHash(m.Algorithm); err != nil {
		return nil, err
	}
	files := make(map[string]bool)
	for _, f := range p.GetFiles() {
		if err := checkFile(f); err != nil {
			return nil, err
		}
		if files[f.GetName()] {
			return nil, status.Errorf(status.InvalidArgument, "file %s stands twice", quote(f.GetName()))
		}
		files[f.GetName()] = true
		m.Files = append(m.Files, FileInfo{
			Name: f.GetName(), Format: f.GetFormat(), Metadata: f.GetMetadata(), Bytes: int64(f.GetBytes()), Header: f.GetHeader(),
		})
	}
	names := make(map[string]bool)
	for _, t := range p.GetTensors() {
		if names[t.GetName()] {
			return nil, status.Errorf(status.InvalidArgument, "tensor %s stands twice", quote(t.GetName()))
		}
		names[t.GetName()] = true
		e, err := tensorInfoOf(t)
		if err == nil && e.File >= max(len(m.Files), 1) {
			err = status.Errorf(status.InvalidArgument, "it is in file %d of %d", e.File, len(m.Files))
		}
		if err == nil && len(m.Files) > 0 && m.Files[e.File].Format == FormatIndex {
			err = status.Errorf(status.InvalidArgument, "it is in the index %s, which has no tensors", quote(m.Files[e.File].Name))
		}
		if err != nil {
			return nil, wrap("tensor "+quote(t.GetName()), err)
		}
		m.Entries = append(m.Entries, e)
	}
	m.perFile = make([]int, max(len(m.Files), 1))
	m.Tensors, m.Bytes = len(m.Entries), 0
	for _, e := range m.Entries {
		m.perFile[e.File]++
		if m.Bytes += e.Bytes; m.Bytes < 0 {
			return nil, status.New(status.InvalidArgument, "the tensors take more than 2^63-1 bytes")
		}
	}
	return m, nil
}

// checkFile checks a file of a manifest from a server. The name has the extension of its format, and an
// index is one: a puller writes no other files, which another program might run or read as its own.
func checkFile(f *trystpb.FileInfo) error {
	switch f.GetFormat() {
	case FormatSafetensors:
		return checkFileName(f.GetName(), safetensorsExt)
	case FormatNPY:
		return checkFileName(f.GetName(), npyExt)
	case FormatIndex:
	default:
		return status.Errorf(status.Unimplemented, "file %s has the unknown format %s", quote(f.GetName()), quote(f.GetFormat()))
	}
	if err := checkFileName(f.GetName(), jsonExt); err != nil {
		return err
	}
	if f.GetBytes() != uint64(len(f.GetHeader())) {
		return status.Errorf(status.InvalidArgument, "index %s has %d bytes, and %d came", quote(f.GetName()), f.GetBytes(), len(f.GetHeader()))
	}
	if _, err := safetensors.ParseIndex(f.GetHeader()); err != nil {
		return wrap("index "+quote(f.GetName()), err)
	}
	return nil
}

func tensorInfoOf(t *trystpb.TensorInfo) (TensorInfo, error) {
	shape, err := tensor.NewShape(t.GetShape()...)
	if err != nil {
		return TensorInfo{}, err
	}
	e := TensorInfo{
		Name: t.GetName(), DType: tensor.DType(t.GetDtype()), Shape: shape, Bytes: int64(t.GetBytes()),
		Digest: t.GetDigest(), File: int(t.GetFile()), Offset: int64(t.GetFileOffset()),
	}
	if !e.DType.Valid() {
		return TensorInfo{}, status.Errorf(status.Unimplemented, "its type %v is not known here", e.DType)
	}
	if e.Bytes < 0 || e.Offset < 0 {
		return TensorInfo{}, status.Errorf(status.InvalidArgument, "%d bytes at offset %d are more than a file can have", t.GetBytes(), t.GetFileOffset())
	}
	if e.DType.Plain() {
		n, err := tensor.ByteSize(e.DType, e.Shape)
		if err != nil {
			return TensorInfo{}, err
		}
		if int64(n) != e.Bytes {
			return TensorInfo{}, status.Errorf(status.InvalidArgument, "%v%v takes %d bytes, not %d", e.DType, e.Shape, n, e.Bytes)
		}
	}
	if err := e.setPacked(t.GetPackedType(), t.GetPackedShape()); err != nil {
		return TensorInfo{}, err
	}
	return e, checkName("tensor", e.Name)
}

// setPacked sets the packed type of a tensor, if it has one. Its bytes must be those of the tensor.
func (e *TensorInfo) setPacked(name string, dims []int64) error {
	if name == "" {
		return nil
	}
	shape, err := tensor.NewShape(dims...)
	if err != nil {
		return err
	}
	e.Packed = safetensors.Packed{Type: name, Shape: shape}
	d, bytes, err := e.Packed.Tensor()
	if err == nil && (d != e.DType || !bytes.Equal(e.Shape)) {
		err = status.Errorf(status.InvalidArgument, "the bytes of %v are %v%v, not %v%v", e.Packed, d, bytes, e.DType, e.Shape)
	}
	return err
}

// Elements returns the name of the type and the shape for people: of a packed type if the tensor has
// one.
func (e *TensorInfo) Elements() (dtype string, shape tensor.Shape) {
	if e.Packed.Type != "" {
		return e.Packed.Type, e.Packed.Shape
	}
	return e.DType.String(), e.Shape
}

// checkName refuses a name that does not fit into keys and messages.
func checkName(kind, name string) error {
	switch {
	case name == "":
		return status.Errorf(status.InvalidArgument, "the name of a %s is empty", kind)
	case len(name) > maxName:
		return status.Errorf(status.InvalidArgument, "the name %s of a %s is longer than %d bytes", quote(name), kind, maxName)
	case !utf8.ValidString(name):
		return status.Errorf(status.InvalidArgument, "the name %s of a %s is not UTF-8 text", quote(name), kind)
	}
	return nil
}

// checkFileName refuses names that are not plain file names with an extension: a name from a server must
// not lead out of the directory that the puller writes to, nor be one that programs look for, as those
// that begin with a dot.
func checkFileName(name, ext string) error {
	switch {
	case name == "", name == ".", name == "..", len(name) > 255, strings.ContainsAny(name, `/\:`),
		strings.ContainsFunc(name, unicode.IsControl), !utf8.ValidString(name):
		return status.Errorf(status.InvalidArgument, "%s is not a plain file name", quote(name))
	case strings.HasPrefix(name, "."):
		return status.Errorf(status.InvalidArgument, "the file name %s begins with a dot", quote(name))
	case !strings.HasSuffix(name, ext):
		return status.Errorf(status.InvalidArgument, "the file name %s does not end in %s", quote(name), ext)
	}
	return nil
}

// combinedDigest returns the digest of the digests of the given tensors, in order.
func (m *Manifest) combinedDigest(selected []int) string {
	newHash, err := newHash(m.Algorithm)
	if err != nil {
		return ""
	}
	h := newHash()
	for _, i := range selected {
		_, _ = h.Write(m.Entries[i].Digest) // a hash's Write never fails
	}
	return formatDigest(m.Algorithm, h.Sum(nil))
}

// Digest returns the digest of the publication: of the digests of all tensors in order, as
// "xxh64:53f0…".
func (m *Manifest) Digest() string {
	all := make([]int, len(m.Entries))
	for i := range all {
		all[i] = i
	}
	return m.combinedDigest(all)
}

// check compares a received tensor with the manifest, including its digest if verify is set.
func (e *TensorInfo) check(t *tensor.Tensor, algorithm string, verify bool) error {
	if t.DType() != e.DType || !t.Shape().Equal(e.Shape) {
		return status.Errorf(status.DataLoss, "%v was received; the manifest says %v%v", t, e.DType, e.Shape)
	}
	if !verify {
		return nil
	}
	newHash, err := newHash(algorithm)
	if err != nil {
		return err
	}
	if got := digestOf(newHash(), t); !bytes.Equal(got, e.Digest) {
		return e.damaged(algorithm, got)
	}
	return nil
}

// byName orders publications.
func byName(a, b Publication) int { return cmp.Compare(a.Name, b.Name) }
