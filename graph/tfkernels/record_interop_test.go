//go:build interop

package tfkernels

import (
	"bytes"
	"compress/gzip"
	"errors"
	"flag"
	"os"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

var update = flag.Bool("update", false, "write the definitions and kernels of TensorFlow into testdata")

// TestRecordedDefinitions: TensorFlow has the ops whose definitions are in testdata. With -update it writes
// them.
func TestRecordedDefinitions(t *testing.T) {
	s := tensorFlow(t)
	names := fixtureOps(t)
	var defs, kernels []byte
	found := 0
	for _, op := range names {
		def := proto.CloneOf(s.ops[op])
		if def == nil {
			t.Logf("this TensorFlow has no op %s", op)
			continue
		}
		found++
		def.Summary, def.Description = "", ""
		b, err := proto.MarshalOptions{Deterministic: true}.Marshal(def)
		if err != nil {
			t.Fatal(err)
		}
		defs = protowire.AppendBytes(protowire.AppendTag(defs, 1, protowire.BytesType), b)
		list, err := s.engine.kernels(op)
		if err != nil {
			t.Fatal(err)
		}
		if err := eachMessage(list, fieldKernel, func(m []byte) error {
			return eachMessage(m, fieldDevice, func(device []byte) error {
				if d := string(device); d == "CPU" || d == "DEFAULT" {
					kernels = appendKernel(kernels, m)
				}
				return nil
			})
		}); err != nil {
			t.Fatal(err)
		}
	}
	if found < len(names)*9/10 {
		t.Errorf("TensorFlow has %d of %d ops", found, len(names))
	}
	if !*update {
		return
	}
	var compressed bytes.Buffer
	z, err := gzip.NewWriterLevel(&compressed, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	_, err = z.Write(kernels)
	if err = errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{"testdata/ops.pb": defs, "testdata/kernels.pb.gz": compressed.Bytes()} {
		if err := os.WriteFile(name, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
