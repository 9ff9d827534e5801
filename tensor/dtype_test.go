package tensor

import (
	"fmt"
	"testing"
)

// TestDTypes holds every type to TensorFlow's types.proto (number),
// DataTypeString (name) and DataTypeSize (bytes of an element).
func TestDTypes(t *testing.T) {
	for _, c := range []struct {
		dtype  DType
		number int32
		name   string
		size   int
	}{
		{Float32, 1, "float", 4},
		{Float64, 2, "double", 8},
		{Int32, 3, "int32", 4},
		{Uint8, 4, "uint8", 1},
		{Int16, 5, "int16", 2},
		{Int8, 6, "int8", 1},
		{String, 7, "string", 0},
		{Complex64, 8, "complex64", 8},
		{Int64, 9, "int64", 8},
		{Bool, 10, "bool", 1},
		{QInt8, 11, "qint8", 1},
		{QUint8, 12, "quint8", 1},
		{QInt32, 13, "qint32", 4},
		{BFloat16, 14, "bfloat16", 2},
		{QInt16, 15, "qint16", 2},
		{QUint16, 16, "quint16", 2},
		{Uint16, 17, "uint16", 2},
		{Complex128, 18, "complex128", 16},
		{Float16, 19, "half", 2},
		{Resource, 20, "resource", 0},
		{Variant, 21, "variant", 0},
		{Uint32, 22, "uint32", 4},
		{Uint64, 23, "uint64", 8},
		{Float8E5M2, 24, "float8_e5m2", 1},
		{Float8E4M3FN, 25, "float8_e4m3fn", 1},
		{Float8E4M3FNUZ, 26, "float8_e4m3fnuz", 1},
		{Float8E4M3B11, 27, "float8_e4m3b11fnuz", 1},
		{Float8E5M2FNUZ, 28, "float8_e5m2fnuz", 1},
		{Int4, 29, "int4", 1},
		{Uint4, 30, "uint4", 1},
		{Int2, 31, "int2", 1},
		{Uint2, 32, "uint2", 1},
		{Float4E2M1FN, 33, "float4_e2m1fn", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := c.dtype
			if int32(d) != c.number || d.String() != c.name || d.Size() != c.size {
				t.Errorf("number %d, name %q, size %d; want %d, %q, %d", d, d, d.Size(), c.number, c.name, c.size)
			}
			if !d.Valid() || d.IsRef() || d.Base() != d || d.Plain() != (c.size > 0) {
				t.Errorf("valid %v, ref %v, base %v, plain %v", d.Valid(), d.IsRef(), d.Base(), d.Plain())
			}
			if got, ok := ParseDType(c.name); !ok || got != d {
				t.Errorf("ParseDType(%q) = %v, %v", c.name, got, ok)
			}
			ref := d + 100
			if ref.Valid() || !ref.IsRef() || ref.Base() != d || ref.Size() != 0 || ref.String() != c.name+"_ref" {
				t.Errorf("reference %v: valid %v, ref %v, base %v, size %d", ref, ref.Valid(), ref.IsRef(), ref.Base(), ref.Size())
			}
			if _, err := ByteSize(ref, Shape{}); err == nil {
				t.Error("a tensor of a reference type was accepted")
			}
		})
	}
}

func TestDTypesThatAreNone(t *testing.T) {
	for _, d := range []DType{Invalid, -1, 34, 99, 100, 134, 200, 201, 1 << 30, -1 << 31} {
		if d.Valid() || d.IsRef() || d.Size() != 0 || d.Plain() || d.Base() != d {
			t.Errorf("%d: valid %v, ref %v, size %d, base %v", d, d.Valid(), d.IsRef(), d.Size(), d.Base())
		}
		want := fmt.Sprintf("dtype(%d)", int32(d))
		if d == Invalid {
			want = "INVALID"
		}
		if d.String() != want {
			t.Errorf("%d is called %q", int32(d), d)
		}
	}
	for _, name := range []string{"", "INVALID", "Float", "float_ref", "dtype(1)"} {
		if d, ok := ParseDType(name); ok {
			t.Errorf("ParseDType(%q) = %v", name, d)
		}
	}
}

func TestParseDTypeAliases(t *testing.T) {
	for name, want := range map[string]DType{"float16": Float16, "float32": Float32, "float64": Float64} {
		if got, ok := ParseDType(name); !ok || got != want {
			t.Errorf("ParseDType(%q) = %v, %v", name, got, ok)
		}
	}
}
