package npy

import (
	"strconv"
	"strings"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/internal/fileio"
)

// header is the dictionary in front of the elements.
type header struct {
	descr   string
	element element
	fortran bool // the first index runs fastest, not the last
	shape   tensor.Shape
}

// parseHeader reads the dictionary: three keys in any order, each once. It
// takes the subset of Python's literals that NumPy has ever written there.
func parseHeader(text string) (header, error) {
	var (
		h                            header
		hasDescr, hasOrder, hasShape bool
	)
	p := &literal{text: text}
	err := p.dict(func(key string) (err error) {
		var seen *bool
		switch key {
		case "descr":
			seen = &hasDescr
			h.descr, h.element, err = p.descr()
		case "fortran_order":
			seen = &hasOrder
			h.fortran, err = p.bool()
		case "shape":
			seen = &hasShape
			h.shape, err = p.shape()
		default:
			return p.errorf("key %s is none of descr, fortran_order, shape", fileio.Quote(key))
		}
		if err != nil {
			return err
		}
		if *seen {
			return p.errorf("%s stands twice", key)
		}
		*seen = true
		return nil
	})
	if err != nil {
		return header{}, err
	}
	for _, key := range []struct {
		name string
		has  bool
	}{{"descr", hasDescr}, {"fortran_order", hasOrder}, {"shape", hasShape}} {
		if !key.has {
			return header{}, invalid("%s is missing", key.name)
		}
	}
	return h, nil
}

// literal reads a Python literal from text. Errors say at which byte.
type literal struct {
	text string
	pos  int
}

func (p *literal) errorf(format string, args ...any) error {
	return invalid(format, args...).WithPrefix("byte " + strconv.Itoa(p.pos))
}

// want is the error for something else at the current place.
func (p *literal) want(what string) error {
	if p.pos == len(p.text) {
		return p.errorf("the header ends where %s belongs", what)
	}
	return p.errorf("%q where %s belongs", p.text[p.pos], what)
}

// peek skips white space and returns the next byte, 0 at the end.
func (p *literal) peek() byte {
	for p.pos < len(p.text) {
		c := p.text[p.pos]
		if strings.IndexByte(" \t\r\n", c) < 0 {
			return c
		}
		p.pos++
	}
	return 0
}

// take skips c when it is next, and reports whether it was.
func (p *literal) take(c byte) bool {
	if p.peek() != c {
		return false
	}
	p.pos++
	return true
}

// dict reads a dictionary that is the whole text, and calls each after every
// key and colon; each reads the value.
func (p *literal) dict(each func(key string) error) error {
	if !p.take('{') {
		return p.want("'{'")
	}
	for !p.take('}') {
		key, err := p.string()
		if err != nil {
			return err
		}
		if !p.take(':') {
			return p.want("':'")
		}
		if err := each(key); err != nil {
			return err
		}
		if !p.take(',') && p.peek() != '}' {
			return p.want("',' or '}'")
		}
	}
	if p.peek(); p.pos < len(p.text) {
		return p.want("the end")
	}
	return nil
}

// string reads a text in single or double quotes. Escapes, which none of the
// texts in a header needs, are refused.
func (p *literal) string() (string, error) {
	quote := p.peek()
	if quote != '\'' && quote != '"' {
		return "", p.want("a string")
	}
	rest := p.text[p.pos+1:]
	end := strings.IndexByte(rest, quote)
	if end < 0 {
		return "", p.errorf("a string without an end")
	}
	if i := strings.IndexAny(rest[:end], "\\\n"); i >= 0 {
		p.pos += 1 + i
		return "", p.want("a plain character")
	}
	p.pos += 1 + end + 1
	return rest[:end], nil
}

func (p *literal) bool() (bool, error) {
	p.peek()
	switch rest := p.text[p.pos:]; {
	case strings.HasPrefix(rest, "True"):
		p.pos += len("True")
		return true, nil
	case strings.HasPrefix(rest, "False"):
		p.pos += len("False")
		return false, nil
	}
	return false, fileio.Wrap("fortran_order", p.want("True or False"))
}

func (p *literal) descr() (string, element, error) {
	if c := p.peek(); c == '[' || c == '(' {
		return "", element{}, status.New(status.Unimplemented, "descr: structured elements are not supported: save each field as an array")
	}
	descr, err := p.string()
	if err != nil {
		return "", element{}, fileio.Wrap("descr", err)
	}
	e, err := parseDescr(descr)
	return descr, e, err
}

// shape reads a tuple of integers: "()", "(3,)", "(2, 3)", and with the suffix
// that Python 2 wrote behind long ones "(2L, 3L)".
func (p *literal) shape() (tensor.Shape, error) {
	dims, err := p.tuple()
	if err != nil {
		return tensor.Shape{}, fileio.Wrap("shape", err)
	}
	shape, err := tensor.NewShape(dims...)
	if err != nil {
		return tensor.Shape{}, fileio.Wrap("shape", err)
	}
	return shape, nil
}

func (p *literal) tuple() ([]int64, error) {
	if !p.take('(') {
		return nil, p.want("'('")
	}
	var dims []int64
	for comma := true; !p.take(')'); {
		if !comma {
			return nil, p.want("','")
		}
		if len(dims) == tensor.MaxDims {
			return nil, p.errorf("more than %d dimensions", tensor.MaxDims)
		}
		d, err := p.dimension()
		if err != nil {
			return nil, err
		}
		dims = append(dims, d)
		comma = p.take(',')
		if len(dims) == 1 && !comma {
			return nil, p.want("',' (one number in brackets is no tuple)")
		}
	}
	return dims, nil
}

func (p *literal) dimension() (int64, error) {
	p.peek()
	rest := strings.TrimLeft(p.text[p.pos:], "0123456789")
	digits := p.text[p.pos : len(p.text)-len(rest)]
	if digits == "" {
		return 0, p.want("a dimension of at least 0")
	}
	d, err := strconv.ParseUint(digits, 10, 63)
	if err != nil {
		return 0, p.errorf("dimension %s is above 2^63-1", fileio.Quote(digits))
	}
	p.pos = len(p.text) - len(strings.TrimPrefix(rest, "L"))
	return int64(d), nil
}
