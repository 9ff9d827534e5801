package ops

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/tryst-rdma/tryst/tensor"
)

// summary returns the first n elements of a tensor as text; a negative n means all. The text is that of TensorFlow's
// Assert and Print: rows in brackets, and "..." for what is left out.
func summary(t *tensor.Tensor, n int) string {
	if t == nil {
		return "resource"
	}
	if n < 0 || n > maxSummary {
		n = maxSummary
	}
	all := t.Shape().Elements()
	shown, known := elementTexts(t, int(min(int64(n), all)))
	w := summaryWriter{dims: t.Shape().Dims(), texts: shown}
	if len(w.dims) == 0 || !known {
		w.b.WriteString(strings.Join(shown, " "))
	} else {
		w.dimension(0)
	}
	if int64(len(shown)) < all {
		w.b.WriteString("...")
	}
	return w.b.String()
}

// summaryWriter writes elements by the dimensions of their tensor.
type summaryWriter struct {
	dims  []int64
	texts []string // that are not written yet
	b     strings.Builder
}

// dimension writes what is left of texts from dimension d on. A row that is not whole ends with "...", if there are
// several.
func (w *summaryWriter) dimension(d int) {
	last := d == len(w.dims)-1
	for i := int64(0); i < w.dims[d]; i++ {
		if len(w.texts) == 0 {
			if last && d > 0 {
				w.b.WriteString("...")
			}
			return
		}
		if !last {
			w.b.WriteByte('[')
			w.dimension(d + 1)
			w.b.WriteByte(']')
			continue
		}
		if i > 0 {
			w.b.WriteByte(' ')
		}
		w.b.WriteString(w.texts[0])
		w.texts = w.texts[1:]
	}
}

// elementTexts returns the texts of the first n elements; "?" and false for a type that has none.
func elementTexts(t *tensor.Tensor, n int) (list []string, known bool) {
	text, known := elementText(t, maxShownText)
	list = make([]string, n)
	for i := range list {
		list[i] = text(i)
	}
	return list, known
}

// elementText returns a function that gives the text of an element, of strings the first most bytes; that of "?" and false
// for a type that has none.
func elementText(t *tensor.Tensor, most int) (text func(i int) string, known bool) {
	switch t.DType() {
	case tensor.String:
		elems := t.Elements()
		return func(i int) string { return escape(elems[i][:min(len(elems[i]), most)]) }, true
	case tensor.Float16:
		return texts(t, func(x tensor.Float16Bits) string { return floatText(float64(fromHalf(x)), 32) }), true
	case tensor.BFloat16:
		return texts(t, func(x tensor.BFloat16Bits) string { return floatText(float64(fromBrain(x)), 32) }), true
	case tensor.Float32:
		return texts(t, func(x float32) string { return floatText(float64(x), 32) }), true
	case tensor.Float64:
		return texts(t, func(x float64) string { return floatText(x, 64) }), true
	case tensor.Bool:
		return texts(t, func(x bool) string {
			if x {
				return "1"
			}
			return "0"
		}), true
	case tensor.Int8:
		return texts(t, plainText[int8]), true
	case tensor.Uint8:
		return texts(t, plainText[uint8]), true
	case tensor.Int16:
		return texts(t, plainText[int16]), true
	case tensor.Uint16:
		return texts(t, plainText[uint16]), true
	case tensor.Int32:
		return texts(t, plainText[int32]), true
	case tensor.Uint32:
		return texts(t, plainText[uint32]), true
	case tensor.Int64:
		return texts(t, plainText[int64]), true
	case tensor.Uint64:
		return texts(t, plainText[uint64]), true
	}
	return func(int) string { return "?" }, false
}

func texts[T tensor.Element](t *tensor.Tensor, text func(T) string) func(i int) string {
	v, err := tensor.Values[T](t)
	if err != nil {
		return func(int) string { return err.Error() }
	}
	return func(i int) string { return text(v[i]) }
}

func plainText[T any](x T) string { return fmt.Sprint(x) }

// floatText returns a number with 6 or 15 digits if they are enough to read it again, else with 9 or 17.
func floatText(x float64, bits int) string {
	few, all := 6, 9
	if bits == 64 {
		few, all = 15, 17
	}
	switch {
	case math.IsNaN(x):
		return "nan"
	case math.IsInf(x, 0):
		return strings.TrimPrefix(strings.ToLower(strconv.FormatFloat(x, 'g', -1, 64)), "+")
	}
	text := digits(x, few)
	if back, err := strconv.ParseFloat(text, bits); err != nil || back != x {
		text = digits(x, all)
	}
	return text
}

// digits is C's %.*g: without trailing zeros, and with two digits of an exponent at least.
func digits(x float64, n int) string {
	text := strconv.FormatFloat(x, 'e', n-1, 64)
	mantissa, exponent, _ := strings.Cut(text, "e")
	e, _ := strconv.Atoi(exponent)
	if e < -4 || e >= n {
		if strings.Contains(mantissa, ".") {
			mantissa = strings.TrimRight(strings.TrimRight(mantissa, "0"), ".")
		}
		return mantissa + fmt.Sprintf("e%+03d", e)
	}
	text = strconv.FormatFloat(x, 'f', max(n-1-e, 0), 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}

// escape returns a string as in a literal of C, with octal numbers for what is not printable ASCII.
func escape(s string) string {
	var b strings.Builder
	for i := range len(s) {
		switch c := s[i]; {
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\r':
			b.WriteString(`\r`)
		case c == '\t':
			b.WriteString(`\t`)
		case c == '"' || c == '\'' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < 0x20 || c >= 0x7f:
			fmt.Fprintf(&b, `\%03o`, c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}
