package ops

import (
	"strings"

	"github.com/dgryski/go-farm"

	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// stringOps are those that the columns of features need.
func stringOps() []entry {
	const outputs = `) -> (indices: int64, values: string, shape: int64); `
	return []entry{
		{`StringToHashBucketFast(input: string) -> (output: int64); num_buckets: int >= 1`, always(hashBucket)},
		{`StringSplit(input: string, delimiter: string` + outputs + `skip_empty: bool = true`, always(stringSplit)},
		{`StringSplitV2(input: string, sep: string` + outputs + `maxsplit: int = -1`, always(stringSplitV2)},
	}
}

// hashBucket gives each string a number by FarmHash, whose fingerprints never change.
func hashBucket(c *graph.Context) error {
	buckets := c.Node.Int("num_buckets")
	if buckets < 1 {
		return invalid("num_buckets must be at least 1, but is %d", buckets)
	}
	out, err := setOutput[int64](c, 0, c.Input(0).Shape())
	if err != nil {
		return err
	}
	longest := 0
	for _, s := range c.Input(0).Elements() {
		longest = max(longest, len(s))
	}
	if err := c.Scratch(int64(longest)); err != nil { // each is copied
		return err
	}
	for i, s := range c.Input(0).Elements() {
		out[i] = int64(farm.Fingerprint64([]byte(s)) % uint64(buckets)) //nolint:gosec // below an int64
	}
	return nil
}

// stringSplit takes strings apart at each byte of a set. Without one it makes a string of each byte.
func stringSplit(c *graph.Context) error {
	delimiters, err := splitAt(c, "delimiter")
	if err != nil {
		return err
	}
	var set [256]bool
	for i := range len(delimiters) {
		set[delimiters[i]] = true
	}
	skip := c.Node.Bool("skip_empty")
	return split(c, func(s string, yield func(string)) {
		if delimiters == "" {
			for i := range len(s) {
				yield(s[i : i+1])
			}
			return
		}
		if s == "" {
			return // as in TensorFlow, also if empty parts are not skipped
		}
		from := 0
		for i := range len(s) + 1 {
			if i < len(s) && !set[s[i]] {
				continue
			}
			if from < i || !skip {
				yield(s[from:i])
			}
			from = i + 1
		}
	})
}

// stringSplitV2 takes strings apart as Python's str.split does: at a text, or at white space without one.
func stringSplitV2(c *graph.Context) error {
	sep, err := splitAt(c, "sep")
	if err != nil {
		return err
	}
	most := c.Node.Int("maxsplit")
	return split(c, func(s string, yield func(string)) {
		switch {
		case most == 0:
			yield(s)
		case sep == "":
			splitAtSpace(s, most, yield)
		default:
			for n := int64(0); ; n++ {
				part, rest, ok := strings.Cut(s, sep)
				if !ok || most > 0 && n == most {
					yield(s)
					return
				}
				yield(part)
				s = rest
			}
		}
	})
}

// splitAtSpace yields the words of s. As in TensorFlow what is left after the last split is one, even if it is empty.
func splitAtSpace(s string, most int64, yield func(string)) {
	const space = " \t\n\v\f\r" // of C, and no other
	s = strings.TrimLeft(s, space)
	for n := int64(1); s != ""; n++ {
		end := strings.IndexAny(s, space)
		if end < 0 {
			end = len(s)
		}
		yield(s[:end])
		s = strings.TrimLeft(s[end:], space)
		if n == most {
			yield(s)
			return
		}
	}
}

// splitAt checks the inputs of a split, and returns input 1.
func splitAt(c *graph.Context, name string) (string, error) {
	if s := c.Input(0).Shape(); s.Rank() != 1 {
		return "", invalid("input must be a vector, got shape: %s", s)
	}
	if s := c.Input(1).Shape(); s.Rank() != 0 {
		return "", invalid("%s must be a scalar, got shape: %s", name, s)
	}
	return c.Input(1).Elements()[0], nil
}

// split sets the outputs to the parts of all strings, as a sparse matrix with a row for each string.
func split(c *graph.Context, parts func(s string, yield func(string))) error {
	input := c.Input(0).Elements()
	count, widest := int64(0), int64(0)
	for _, s := range input { // once to count, since the memory is reserved before it is taken
		n := int64(0)
		parts(s, func(string) { n++ })
		count, widest = count+n, max(widest, n)
	}
	if count > maxStrings {
		return invalid("the strings have %d parts: the kernel set go makes at most %d elements", count, maxStrings)
	}
	if err := c.Scratch(stringBytes * count); err != nil {
		return err
	}
	shape, err := newShape([]int64{count, 2})
	if err != nil {
		return err
	}
	indices, err := setOutput[int64](c, 0, shape)
	if err != nil {
		return err
	}
	values := make([]string, 0, count)
	for row, s := range input {
		column := int64(0)
		parts(s, func(part string) {
			at := 2 * len(values)
			indices[at], indices[at+1] = int64(row), column
			values = append(values, part)
			column++
		})
	}
	if err := setElements(c, 1, tensor.Vector(len(values)), values); err != nil {
		return err
	}
	return setInts(c, 2, tensor.Int64, tensor.Vector(2), []int64{int64(len(input)), widest})
}
