package ops

import (
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// summaryOps make the messages Summary of TensorBoard. Their code is written by hand, since graphs need two fields.
func summaryOps() []entry {
	return []entry{
		{`ScalarSummary(tags: string, values: T) -> (summary: string); T: real`, newScalarSummary},
		{`MergeSummary(inputs: N*string) -> (summary: string); N: int >= 1`, always(mergeSummary)},
	}
}

// The fields of Summary and of its Value (tensorflow/core/framework/summary.proto).
const (
	summaryValue = 1
	valueTag     = 1
	valueSimple  = 2
)

func newScalarSummary(n *graph.Node, _ *State) (graph.Kernel, error) {
	d := n.Type("T")
	if d == tensor.Float32 {
		return graph.KernelFunc(func(c *graph.Context) error { return scalarSummary(c, c.Input(1)) }), nil
	}
	cast, err := findCast(d, tensor.Float32)
	if err != nil {
		return nil, err
	}
	return graph.KernelFunc(func(c *graph.Context) error {
		wide, err := c.Allocate(tensor.Float32, c.Input(1).Shape())
		if err != nil {
			return err
		}
		defer wide.Release()
		if err := cast(wide, c.Input(1)); err != nil {
			return err
		}
		return scalarSummary(c, wide)
	}), nil
}

func scalarSummary(c *graph.Context, values *tensor.Tensor) error {
	tags := c.Input(0).Elements()
	if ts, vs := c.Input(0).Shape(), values.Shape(); !ts.Equal(vs) {
		single := ""
		if len(tags) == 1 {
			single = " (tag '" + tags[0] + "')"
		}
		return invalid("tags and values are not the same shape: %s != %s%s", ts, vs, single)
	}
	v, err := tensor.Values[float32](values)
	if err != nil {
		return err
	}
	size := int64(0)
	for _, tag := range tags {
		size += int64(len(tag)) + 32
	}
	if err := c.Scratch(2 * size); err != nil {
		return err
	}
	var summary, value []byte
	for i, tag := range tags {
		value = value[:0]
		if tag != "" {
			value = protowire.AppendString(protowire.AppendTag(value, valueTag, protowire.BytesType), tag)
		}
		value = protowire.AppendFixed32(protowire.AppendTag(value, valueSimple, protowire.Fixed32Type), math.Float32bits(v[i]))
		summary = protowire.AppendBytes(protowire.AppendTag(summary, summaryValue, protowire.BytesType), value)
	}
	return setStrings(c, 0, tensor.Shape{}, func(int) string { return string(summary) })
}

// mergeSummary puts the values of all summaries into one. A tag must be that of one value.
func mergeSummary(c *graph.Context) error {
	size := int64(0)
	for i := range c.Inputs {
		for _, text := range c.Input(i).Elements() {
			size += int64(len(text))
		}
	}
	const entryBytes = 24 // at most, of the map, for each byte of a summary: its smallest value has two
	if err := c.Scratch((2 + entryBytes) * size); err != nil {
		return err
	}
	merged := make([]byte, 0, size)
	seen := make(map[string]bool)
	for i := range c.Inputs {
		for _, text := range c.Input(i).Elements() {
			rest := []byte(text)
			for len(rest) > 0 {
				field, kind, n := protowire.ConsumeField(rest)
				if n < 0 {
					return invalid("Could not parse one of the summary inputs")
				}
				if field == summaryValue && kind == protowire.BytesType {
					tag, ok := tagOf(rest[:n])
					switch {
					case !ok:
						return invalid("Could not parse one of the summary inputs")
					case seen[tag]:
						return invalid("Duplicate tag %s found in summary inputs ", tag)
					}
					if tag != "" { // as in TensorFlow, values without one may be many
						seen[tag] = true
					}
				}
				merged, rest = append(merged, rest[:n]...), rest[n:]
			}
		}
	}
	return setStrings(c, 0, tensor.Shape{}, func(int) string { return string(merged) })
}

// tagOf returns the tag of a value of a summary, and whether the value can be parsed.
func tagOf(field []byte) (tag string, ok bool) {
	_, _, n := protowire.ConsumeTag(field)
	value, _ := protowire.ConsumeBytes(field[n:])
	for len(value) > 0 {
		field, kind, n := protowire.ConsumeField(value)
		if n < 0 {
			return "", false
		}
		if field == valueTag && kind == protowire.BytesType {
			_, _, head := protowire.ConsumeTag(value)
			text, _ := protowire.ConsumeString(value[head:n])
			tag = text
		}
		value = value[n:]
	}
	return tag, true
}
