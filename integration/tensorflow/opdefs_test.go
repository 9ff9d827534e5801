//go:build interop

package tensorflow_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/tensorflow/ops"
)

// TestOpsAreDefinedAsInTensorFlow compares each op of the kernel set go with TensorFlow's own definition:
// its inputs and outputs, the attributes with their kinds and defaults, and whether it has state. A default
// that differs would change what a node computes, since a master leaves defaults out. An older TensorFlow may
// lack an op, or an attribute whose default makes the op what it was without: ConcatOffset has no shape_type
// in TensorFlow 2.13, and offsets of int32.
func TestOpsAreDefinedAsInTensorFlow(t *testing.T) {
	set := ops.New()
	names := set.Ops()
	p := startPython(t, "op_defs.py")
	written := make(chan error, 1)
	go func() {
		_, err := io.WriteString(p.stdin, strings.Join(names, "\n")+"\n")
		p.stdin.Close()
		written <- err
	}()
	found := 0
	for _, name := range names {
		var size [4]byte
		if _, err := io.ReadFull(p.stdout, size[:]); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, binary.LittleEndian.Uint32(size[:]))
		if _, err := io.ReadFull(p.stdout, b); err != nil {
			t.Fatal(err)
		}
		if len(b) == 0 {
			t.Logf("this TensorFlow has no op %s", name)
			continue
		}
		want := &tfpb.OpDef{}
		if err := proto.Unmarshal(b, want); err != nil {
			t.Fatal(err)
		}
		found++
		for _, difference := range compareDefs(set.OpDef(name), want) {
			t.Errorf("%s: %s", name, difference)
		}
	}
	if err := <-written; err != nil {
		t.Errorf("send the names of the ops to op_defs.py: %v", err)
	}
	if found < len(names)*9/10 {
		t.Errorf("TensorFlow has %d of %d ops", found, len(names))
	}
}

func compareDefs(got, want *tfpb.OpDef) []string {
	var differences []string
	differ := func(what string, got, want any) {
		if fmt.Sprint(got) != fmt.Sprint(want) {
			differences = append(differences, fmt.Sprintf("%s: have %v, TensorFlow has %v", what, got, want))
		}
	}
	defaults := map[string]tfpb.DataType{}
	for _, b := range got.Attr {
		if slices.ContainsFunc(want.Attr, func(a *tfpb.OpDef_AttrDef) bool { return a.Name == b.Name }) {
			continue
		}
		if b.DefaultValue == nil {
			differences = append(differences, fmt.Sprintf("the attribute %s, which TensorFlow does not have, has no default", b.Name))
		}
		defaults[b.Name] = b.DefaultValue.GetType()
	}
	differ("inputs", defArgs(got.InputArg, defaults), defArgs(want.InputArg, nil))
	differ("outputs", defArgs(got.OutputArg, defaults), defArgs(want.OutputArg, nil))
	differ("stateful", got.IsStateful, want.IsStateful)
	differ("uninitialized", got.AllowsUninitializedInput, want.AllowsUninitializedInput)
	for _, a := range want.Attr {
		i := slices.IndexFunc(got.Attr, func(b *tfpb.OpDef_AttrDef) bool { return a.Name == b.Name })
		if i < 0 {
			differences = append(differences, "no attribute "+a.Name)
			continue
		}
		b := got.Attr[i]
		differ("the kind of "+a.Name, b.Type, a.Type)
		if !proto.Equal(b.DefaultValue, a.DefaultValue) {
			differ("the default of "+a.Name, b.DefaultValue, a.DefaultValue)
		}
		// A type that only we allow would be refused when the kernel is made.
		for _, d := range a.AllowedValues.GetList().GetType() {
			if allowed := b.AllowedValues.GetList().GetType(); allowed != nil && !slices.Contains(allowed, d) {
				differences = append(differences, fmt.Sprintf("%s may not be %s, and may in TensorFlow", a.Name, d))
			}
		}
	}
	return differences
}

// defArgs returns inputs or outputs as text, with the defaults of types that TensorFlow does not leave open.
func defArgs(list []*tfpb.OpDef_ArgDef, defaults map[string]tfpb.DataType) []string {
	var texts []string
	for _, a := range list {
		dtype, attr := a.Type, a.TypeAttr
		if d, ok := defaults[attr]; ok {
			dtype, attr = d, ""
		}
		texts = append(texts, fmt.Sprint(a.Name, " ", dtype, " ", attr, a.TypeListAttr, a.NumberAttr, a.IsRef))
	}
	return texts
}
