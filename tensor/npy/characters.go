package npy

import (
	"bytes"
	"encoding/binary"
	"strconv"
	"unicode/utf8"

	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/internal/fileio"
)

func (f *File) readCharacters(tensor.Allocator) (*tensor.Tensor, error) {
	decode := decodeBytes
	switch {
	case f.element.kind == 'S':
	case f.element.number > 0:
		decode = func(b []byte) (string, error) { return decodeUTF32(binary.BigEndian, b) }
	default:
		decode = func(b []byte) (string, error) { return decodeUTF32(binary.LittleEndian, b) }
	}
	elems := make([]string, f.info.Shape.Elements())
	err := f.each(func(place int64, b []byte) (err error) {
		if elems[place], err = decode(b); err != nil {
			return fileio.Wrap("element "+strconv.FormatInt(place, 10), err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return tensor.FromStrings(f.info.Shape, elems)
}

func decodeBytes(b []byte) (string, error) {
	return string(bytes.TrimRight(b, "\x00")), nil
}

// decodeUTF32 turns characters of four bytes into UTF-8.
func decodeUTF32(order binary.ByteOrder, b []byte) (string, error) {
	var text []byte
	end := 0 // of text without the zeros at its end
	for ; len(b) >= 4; b = b[4:] {
		c := order.Uint32(b)
		if c > utf8.MaxRune || !utf8.ValidRune(rune(c)) {
			return "", invalid("%#x is no Unicode character", c)
		}
		text = utf8.AppendRune(text, rune(c))
		if c != 0 {
			end = len(text)
		}
	}
	return string(text[:end]), nil
}
