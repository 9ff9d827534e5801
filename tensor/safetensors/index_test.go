package safetensors_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor/safetensors"
)

const indexText = `{
  "metadata": {
    "total_size": 12
  },
  "weight_map": {
    "a": "model-00001-of-00002.safetensors",
    "b<": "model-00002-of-00002.safetensors",
    "c": "model-00001-of-00002.safetensors"
  }
}
`

func TestIndexRoundTrip(t *testing.T) {
	x, err := safetensors.ReadIndex(iotest.OneByteReader(strings.NewReader(indexText)))
	if err != nil {
		t.Fatal(err)
	}
	if x.TotalSize != 12 || len(x.WeightMap) != 3 || x.WeightMap["b<"] != "model-00002-of-00002.safetensors" {
		t.Errorf("got %+v", x)
	}
	if want := []string{"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}; !slices.Equal(x.Files(), want) {
		t.Errorf("files %v, want %v", x.Files(), want)
	}
	var out bytes.Buffer
	n, err := x.WriteTo(&out)
	if err != nil || n != int64(len(indexText)) || out.String() != indexText {
		t.Errorf("wrote %d bytes, %v:\n%s", n, err, out.String())
	}
}

// What else the metadata has is written again.
func TestIndexKeepsItsMetadata(t *testing.T) {
	x, err := safetensors.ParseIndex([]byte(`{"weight_map":{},"metadata":{"total_parameters":[7, "\ud83d\ude00"],"total_size":8,"a":null}}`))
	if err != nil {
		t.Fatal(err)
	}
	x.TotalSize = 9
	var out bytes.Buffer
	if _, err := x.WriteTo(&out); err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if err := json.Compact(&got, out.Bytes()); err != nil {
		t.Fatal(err)
	}
	if want := `{"metadata":{"a":null,"total_parameters":[7,"\ud83d\ude00"],"total_size":9},"weight_map":{}}`; got.String() != want {
		t.Errorf("got  %s\nwant %s", got.String(), want)
	}
}

func TestIndexForms(t *testing.T) {
	for _, c := range []struct {
		text string
		size int64
	}{
		{`{"weight_map":{}}`, 0},
		{`{"metadata":{},"weight_map":{}}`, 0},
		{`{"metadata":{"total_size":120},"weight_map":{}}`, 120},
		{`{"weight_map":{},"metadata":{"total_parameters":[7],"total_size":26031726592.0}}`, 26031726592},
		{`{"metadata":{"total_size":9223372036854775807.00},"weight_map":{},"x":null}`, 1<<63 - 1},
	} {
		x, err := safetensors.ParseIndex([]byte(c.text))
		if err != nil || x.TotalSize != c.size {
			t.Errorf("%s: got %+v, %v", c.text, x, err)
		}
	}
}

func TestBadIndex(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{``, "byte 0: the JSON text ends too early"},
		{`[]`, `"[" where an object belongs`},
		{"{\"weight_map\":{\"\xff\":\"f\"}}", "not UTF-8"},
		{`{}`, "weight_map is missing"},
		{`{"weight_map":null}`, "weight_map: byte 18: null where an object belongs"},
		{`{"weight_map":{},"weight_map":{}}`, "weight_map stands twice"},
		{`{"weight_map":{"a":"f","a":"f"}}`, `weight_map: tensor "a" stands twice`},
		{`{"weight_map":{"a":1}}`, `weight_map: tensor "a": byte 20: the number "1" where a string belongs`},
		{`{"metadata":{},"metadata":{},"weight_map":{}}`, "metadata stands twice"},
		{`{"metadata":{"total_size":1,"total_size":1},"weight_map":{}}`, "metadata: total_size stands twice"},
		{`{"metadata":{"x":1,"x":1},"weight_map":{}}`, `metadata: "x" stands twice`},
		{`{"metadata":{"total_size":-1},"weight_map":{}}`, `metadata: total_size: byte 28: the number "-1"`},
		{`{"metadata":{"total_size":1.5},"weight_map":{}}`, `the number "1.5"`},
		{`{"metadata":{"total_size":1e3},"weight_map":{}}`, `the number "1e3"`},
		{`{"metadata":{"total_size":9223372036854775808},"weight_map":{}}`, `the number "9223372036854775808"`},
		{`{"metadata":{"total_size":"1"},"weight_map":{}}`, `the string "1"`},
		{`{"weight_map":{}}x`, "invalid character"},
		{`{"weight_map":{}}{}`, "where nothing more belongs"},
		{`{"weight_map":{},"x":` + strings.Repeat("[", 100000) + `}`, "exceeded max depth"},
	} {
		x, err := safetensors.ParseIndex([]byte(c.text))
		wantError(t, err, status.InvalidArgument, c.want)
		if x != nil {
			t.Errorf("%.40s: an index and an error", c.text)
		}
	}
	for _, file := range []string{"", ".", "..", "../x", "/etc/passwd", "a/b", `a\\b`, "C:x", `a\u0000`, `a\n`, `\u001b[2J`} {
		_, err := safetensors.ParseIndex([]byte(`{"weight_map":{"w":"` + file + `"}}`))
		wantError(t, err, status.InvalidArgument, `weight_map: tensor "w": file `)
	}
	_, err := safetensors.ReadIndex(iotest.ErrReader(errors.New("disk on fire")))
	wantError(t, err, status.Unknown, "safetensors index: disk on fire")
}

func TestIndexTooLarge(t *testing.T) {
	_, err := safetensors.ReadIndex(zeros{})
	wantError(t, err, status.InvalidArgument, "more than 100000000 bytes")
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestIndexWriteRefuses(t *testing.T) {
	for _, x := range []safetensors.Index{
		{TotalSize: -1},
		{WeightMap: map[string]string{"w": "../x"}},
		{WeightMap: map[string]string{"\xff": "x"}},
	} {
		var out bytes.Buffer
		_, err := x.WriteTo(&out)
		wantCode(t, err, status.InvalidArgument)
		if out.Len() > 0 {
			t.Errorf("%d bytes are written", out.Len())
		}
	}
	x := safetensors.Index{WeightMap: map[string]string{"w": "x"}}
	_, err := x.WriteTo(&fullDisk{4})
	wantError(t, err, status.ResourceExhausted, "safetensors index: ")
}

func TestIndexCheck(t *testing.T) {
	h := mustOpen(t, file(`{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}`, "")).Header
	headers := map[string]*safetensors.Header{"1": h}
	x := safetensors.Index{WeightMap: map[string]string{"a": "1"}}
	if err := x.Check(headers); err != nil {
		t.Error(err)
	}
	x.WeightMap["b"] = "1"
	wantError(t, x.Check(headers), status.NotFound, `tensor "b" is not in file "1"`)
	x.WeightMap["b"] = "2"
	wantError(t, x.Check(headers), status.NotFound, `tensor "b": file "2" is missing`)
}

func FuzzIndex(f *testing.F) {
	f.Add([]byte(indexText))
	f.Add([]byte(`{"metadata":{"total_size":26031726592.0,"x":[{}]},"weight_map":{"a":"f"}}`))
	f.Add([]byte(`{"weight_map":{"a":"../f"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		x, err := safetensors.ParseIndex(text)
		if err != nil {
			return
		}
		for _, file := range x.Files() {
			if file == "" || strings.ContainsAny(file, "/\\\x00") || strings.Trim(file, ".") == "" && len(file) < 3 {
				t.Fatalf("file %q", file)
			}
		}
		var out bytes.Buffer
		if _, err := x.WriteTo(&out); err != nil {
			t.Fatal(err)
		}
		again, err := safetensors.ParseIndex(out.Bytes())
		if err != nil || again.TotalSize != x.TotalSize || !maps.Equal(again.WeightMap, x.WeightMap) || len(again.Metadata) != len(x.Metadata) {
			t.Fatalf("came back as %+v, %v", again, err)
		}
	})
}
