package safetensors

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tryst-rdma/tryst/status"
)

// IndexName is the usual name of an index file.
const IndexName = "model.safetensors.index.json"

// Index says in which file each tensor of a checkpoint is, as Hugging Face's
// libraries write it beside the files:
//
//	{"metadata":{"total_size":24},"weight_map":{"w":"model-00001-of-00002.safetensors"}}
//
// Other fields beside metadata and weight_map are passed over.
type Index struct {
	// TotalSize is the bytes of all tensors' elements; 0 when the index does
	// not say.
	TotalSize int64
	// Metadata are the other fields of the metadata, as JSON.
	Metadata map[string]json.RawMessage
	// WeightMap is the file of each tensor by the tensor's name. A file is a
	// plain name in the directory of the index.
	WeightMap map[string]string
}

// ReadIndex reads an index of at most MaxIndex bytes, as ParseIndex does.
func ReadIndex(r io.Reader) (*Index, error) {
	text, err := io.ReadAll(io.LimitReader(r, MaxIndex+1))
	if err != nil {
		return nil, prefixed("safetensors index", err)
	}
	return ParseIndex(text)
}

// ParseIndex checks and returns an index. It is InvalidArgument when the text
// is no index, a tensor stands twice, or a file is anything but a plain name:
// an index must not reach outside its directory.
func ParseIndex(text []byte) (*Index, error) {
	x, err := parseIndex(text)
	if err != nil {
		return nil, prefixed("safetensors index", err)
	}
	return x, nil
}

func parseIndex(text []byte) (*Index, error) {
	if len(text) > MaxIndex {
		return nil, invalid("more than %d bytes", MaxIndex)
	}
	if !utf8.Valid(text) {
		return nil, invalid("not UTF-8 text")
	}
	x := &Index{}
	hasMetadata := false
	s := newScanner(text)
	err := s.object(func(key string) error {
		switch key {
		case "metadata":
			if hasMetadata {
				return invalid("metadata stands twice")
			}
			hasMetadata = true
			return x.parseMetadata(s)
		case "weight_map":
			if x.WeightMap != nil {
				return invalid("weight_map stands twice")
			}
			return x.parseWeightMap(s)
		}
		return s.skip()
	})
	if err != nil {
		return nil, err
	}
	if x.WeightMap == nil {
		return nil, invalid("weight_map is missing")
	}
	return x, s.end()
}

func (x *Index) parseMetadata(s scanner) error {
	hasSize := false
	err := s.object(func(key string) (err error) {
		if key != "total_size" {
			if _, ok := x.Metadata[key]; ok {
				return invalid("%s stands twice", quote(key))
			}
			value, err := s.raw()
			if err == nil {
				if x.Metadata == nil {
					x.Metadata = make(map[string]json.RawMessage)
				}
				x.Metadata[key] = value
			}
			return err
		}
		if hasSize {
			return invalid("total_size stands twice")
		}
		hasSize = true
		if x.TotalSize, err = s.wholeNumber(); err != nil {
			return prefixed("total_size", err)
		}
		return nil
	})
	if err != nil {
		return prefixed("metadata", err)
	}
	return nil
}

// wholeNumber is size for numbers that may be written with a fraction of zero,
// as older writers of indexes did ("total_size": 26031726592.0).
func (s scanner) wholeNumber() (int64, error) {
	tok, err := s.token()
	if err != nil {
		return 0, err
	}
	if number, ok := tok.(json.Number); ok {
		digits := strings.TrimRight(number.String(), "0")
		if !strings.HasSuffix(digits, ".") {
			digits = number.String()
		}
		if n, err := strconv.ParseUint(strings.TrimSuffix(digits, "."), 10, 63); err == nil {
			return int64(n), nil
		}
	}
	return 0, s.unexpected(tok, "a whole number from 0 to 2^63-1")
}

func (x *Index) parseWeightMap(s scanner) error {
	x.WeightMap = make(map[string]string)
	files := make(map[string]string) // one string for all tensors of a file
	err := s.object(func(name string) error {
		if _, ok := x.WeightMap[name]; ok {
			return invalid("tensor %s stands twice", quote(name))
		}
		file, err := s.string()
		if err == nil {
			err = checkFileName(file)
		}
		if err != nil {
			return prefixed("tensor "+quote(name), err)
		}
		if same, ok := files[file]; ok {
			file = same
		} else {
			files[file] = file
		}
		x.WeightMap[name] = file
		return nil
	})
	if err != nil {
		return prefixed("weight_map", err)
	}
	return nil
}

// checkFileName refuses whatever is not the plain name of a file in the same
// directory on every system.
func checkFileName(name string) error {
	switch {
	case name == "", name == ".", name == "..",
		strings.ContainsAny(name, `/\:`), strings.ContainsFunc(name, unicode.IsControl), !utf8.ValidString(name):
		return invalid("file %s is not a plain file name", quote(name))
	}
	return nil
}

// Files returns the names of all files, sorted, each once.
func (x *Index) Files() []string {
	return slices.Compact(slices.Sorted(maps.Values(x.WeightMap)))
}

// Check compares the index with all files that it names, by name, and returns
// what a reader of the checkpoint would miss: NotFound for a file that headers
// lacks or a tensor that its file lacks. A tensor that is only in a file is no
// error.
func (x *Index) Check(headers map[string]*Header) error {
	for _, name := range slices.Sorted(maps.Keys(x.WeightMap)) {
		file := x.WeightMap[name]
		h, ok := headers[file]
		if !ok {
			return status.Errorf(status.NotFound, "safetensors index: tensor %s: file %s is missing", quote(name), quote(file))
		}
		if _, ok := h.Lookup(name); !ok {
			return status.Errorf(status.NotFound, "safetensors index: tensor %s is not in file %s", quote(name), quote(file))
		}
	}
	return nil
}

// WriteTo writes the index as JSON with sorted keys, so that the same index
// gives the same bytes. It is InvalidArgument for what ParseIndex refuses.
func (x *Index) WriteTo(w io.Writer) (int64, error) {
	if x.TotalSize < 0 {
		return 0, invalid("safetensors index: total_size is %d", x.TotalSize)
	}
	for name, file := range x.WeightMap {
		if err := checkFileName(file); err != nil {
			return 0, prefixed("safetensors index: tensor "+quote(name), err)
		}
		if !utf8.ValidString(name) {
			return 0, invalid("safetensors index: tensor %s: the name is not UTF-8 text", quote(name))
		}
	}
	var doc struct {
		Metadata  map[string]any    `json:"metadata"`
		WeightMap map[string]string `json:"weight_map"`
	}
	doc.Metadata = make(map[string]any)
	for key, value := range x.Metadata {
		doc.Metadata[key] = value
	}
	doc.Metadata["total_size"] = x.TotalSize
	doc.WeightMap = x.WeightMap
	if doc.WeightMap == nil {
		doc.WeightMap = map[string]string{}
	}
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(&doc); err != nil {
		return 0, prefixed("safetensors index", err)
	}
	n, err := text.WriteTo(w)
	if err != nil {
		return n, prefixed("safetensors index", err)
	}
	return n, nil
}
