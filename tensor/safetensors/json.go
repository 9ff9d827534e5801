package safetensors

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor/internal/fileio"
)

var quote = fileio.Quote

func invalid(format string, args ...any) *status.Error {
	return status.Errorf(status.InvalidArgument, format, args...)
}

// prefixed puts where an error happened in front of it.
func prefixed(where string, err error) error { return fileio.Wrap(where, err) }

// scanner reads foreign JSON token by token. Unmarshal is no choice here: it
// takes the last of two equal keys, ignores the case of keys, and takes null
// for anything. Every error says at which byte of the text it is.
type scanner struct {
	text []byte
	dec  *json.Decoder
}

func newScanner(text []byte) scanner {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	return scanner{text, dec}
}

// object reads an object and calls each after every key; each reads the value.
func (s scanner) object(each func(key string) error) error {
	if err := s.delim('{', "an object"); err != nil {
		return err
	}
	for s.dec.More() {
		key, err := s.string()
		if err != nil {
			return err
		}
		if err := each(key); err != nil {
			return err
		}
	}
	return s.delim('}', "the object's end")
}

// array reads an array and calls each before every value; each reads it.
func (s scanner) array(each func(i int) error) error {
	if err := s.delim('[', "an array"); err != nil {
		return err
	}
	for i := 0; s.dec.More(); i++ {
		if err := each(i); err != nil {
			return err
		}
	}
	return s.delim(']', "the array's end")
}

// string reads a string. A surrogate without its other half is refused: the decoder
// would put U+FFFD in its place, and different names could become one.
func (s scanner) string() (string, error) {
	begin := s.dec.InputOffset()
	tok, err := s.token()
	if err != nil {
		return "", err
	}
	text, ok := tok.(string)
	if !ok {
		return "", s.unexpected(tok, "a string")
	}
	if at := loneSurrogate(s.text[begin:s.dec.InputOffset()]); at >= 0 {
		return "", invalid("byte %d: half of a surrogate pair, which is no character", begin+int64(at))
	}
	return text, nil
}

// loneSurrogate returns where valid JSON has an escape of a surrogate (\ud800 to
// \udfff) that is not part of a pair, -1 when it has none.
func loneSurrogate(text []byte) int {
	escape := func(at int) (r rune, ok bool) {
		if at+6 > len(text) || text[at] != '\\' || text[at+1] != 'u' {
			return 0, false
		}
		n, err := strconv.ParseUint(string(text[at+2:at+6]), 16, 16)
		return rune(n), err == nil
	}
	for at := 0; ; {
		i := bytes.IndexByte(text[at:], '\\')
		if i < 0 {
			return -1
		}
		at += i
		first, ok := escape(at)
		if !ok {
			at += len(`\n`)
			continue
		}
		second, _ := escape(at + len(`\u0000`))
		switch {
		case !utf16.IsSurrogate(first):
			at += len(`\u0000`)
		case utf16.DecodeRune(first, second) == utf8.RuneError:
			return at
		default:
			at += 2 * len(`\u0000`)
		}
	}
}

// null reads the value of a key if it is null, and reports whether it was.
func (s scanner) null() bool {
	rest := bytes.TrimLeft(s.text[s.dec.InputOffset():], " \t\r\n:")
	if !bytes.HasPrefix(rest, []byte("null")) {
		return false
	}
	_, err := s.token()
	return err == nil
}

// size reads an integer from 0 to 2⁶³−1, written without fraction or exponent.
func (s scanner) size() (int64, error) {
	const want = "an integer from 0 to 2^63-1"
	tok, err := s.token()
	if err != nil {
		return 0, err
	}
	number, ok := tok.(json.Number)
	if !ok {
		return 0, s.unexpected(tok, want)
	}
	n, err := strconv.ParseUint(number.String(), 10, 63)
	if err != nil {
		return 0, s.unexpected(tok, want)
	}
	return int64(n), nil
}

// skip reads a value of any kind and drops it. The decoder bounds its depth.
func (s scanner) skip() error {
	_, err := s.raw()
	return err
}

// raw reads a value of any kind.
func (s scanner) raw() (json.RawMessage, error) {
	var raw json.RawMessage
	if err := s.dec.Decode(&raw); err != nil {
		return nil, s.syntax(err)
	}
	return raw, nil
}

// end checks that nothing but white space follows.
func (s scanner) end() error {
	switch tok, err := s.dec.Token(); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return s.syntax(err)
	default:
		return s.unexpected(tok, "nothing more")
	}
}

func (s scanner) delim(d json.Delim, want string) error {
	tok, err := s.token()
	if err != nil {
		return err
	}
	if tok != d {
		return s.unexpected(tok, want)
	}
	return nil
}

func (s scanner) token() (json.Token, error) {
	tok, err := s.dec.Token()
	if err != nil {
		return nil, s.syntax(err)
	}
	return tok, nil
}

func (s scanner) syntax(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return invalid("byte %d: the JSON text ends too early", s.dec.InputOffset())
	}
	return invalid("byte %d: %w", s.dec.InputOffset(), err)
}

func (s scanner) unexpected(tok json.Token, want string) error {
	var have string
	switch tok := tok.(type) {
	case json.Delim:
		have = strconv.Quote(tok.String())
	case string:
		have = "the string " + quote(tok)
	case json.Number:
		have = "the number " + quote(tok.String())
	case bool:
		have = strconv.FormatBool(tok)
	default:
		have = "null"
	}
	return invalid("byte %d: %s where %s belongs", s.dec.InputOffset(), have, want)
}
