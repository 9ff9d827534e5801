package tensor

import "strconv"

// DType is the type of a tensor's elements. The numbers are those of TensorFlow's
// DataType (types.proto), on the wire too. The zero value is Invalid.
type DType int32

// The element types, with TensorFlow's numbers.
const (
	Invalid    DType = 0
	Float32    DType = 1
	Float64    DType = 2
	Int32      DType = 3
	Uint8      DType = 4
	Int16      DType = 5
	Int8       DType = 6
	String     DType = 7
	Complex64  DType = 8
	Int64      DType = 9
	Bool       DType = 10
	QInt8      DType = 11
	QUint8     DType = 12
	QInt32     DType = 13
	BFloat16   DType = 14
	QInt16     DType = 15
	QUint16    DType = 16
	Uint16     DType = 17
	Complex128 DType = 18
	Float16    DType = 19
	Resource   DType = 20
	Variant    DType = 21
	Uint32     DType = 22
	Uint64     DType = 23

	Float8E5M2     DType = 24
	Float8E4M3FN   DType = 25
	Float8E4M3FNUZ DType = 26
	Float8E4M3B11  DType = 27
	Float8E5M2FNUZ DType = 28
	Int4           DType = 29
	Uint4          DType = 30
	Int2           DType = 31
	Uint2          DType = 32
	Float4E2M1FN   DType = 33
)

// refOffset is the number that TensorFlow adds to a type for a reference to a
// variable of that type.
const refOffset = 100

// dtypes has each type's TensorFlow name and the bytes of one element in memory,
// 0 for types whose elements are not plain memory. An element of four or two bits
// takes a whole byte, as in TensorFlow.
var dtypes = [...]struct {
	name string
	size int
}{
	Invalid:        {"INVALID", 0},
	Float32:        {"float", 4},
	Float64:        {"double", 8},
	Int32:          {"int32", 4},
	Uint8:          {"uint8", 1},
	Int16:          {"int16", 2},
	Int8:           {"int8", 1},
	String:         {"string", 0},
	Complex64:      {"complex64", 8},
	Int64:          {"int64", 8},
	Bool:           {"bool", 1},
	QInt8:          {"qint8", 1},
	QUint8:         {"quint8", 1},
	QInt32:         {"qint32", 4},
	BFloat16:       {"bfloat16", 2},
	QInt16:         {"qint16", 2},
	QUint16:        {"quint16", 2},
	Uint16:         {"uint16", 2},
	Complex128:     {"complex128", 16},
	Float16:        {"half", 2},
	Resource:       {"resource", 0},
	Variant:        {"variant", 0},
	Uint32:         {"uint32", 4},
	Uint64:         {"uint64", 8},
	Float8E5M2:     {"float8_e5m2", 1},
	Float8E4M3FN:   {"float8_e4m3fn", 1},
	Float8E4M3FNUZ: {"float8_e4m3fnuz", 1},
	Float8E4M3B11:  {"float8_e4m3b11fnuz", 1},
	Float8E5M2FNUZ: {"float8_e5m2fnuz", 1},
	Int4:           {"int4", 1},
	Uint4:          {"uint4", 1},
	Int2:           {"int2", 1},
	Uint2:          {"uint2", 1},
	Float4E2M1FN:   {"float4_e2m1fn", 1},
}

// Valid reports whether a tensor can have the type d. It is false for reference
// types; a tensor has their Base.
func (d DType) Valid() bool { return d > Invalid && int(d) < len(dtypes) }

// IsRef reports whether d is TensorFlow's reference to a valid type.
func (d DType) IsRef() bool { return d > refOffset && (d - refOffset).Valid() }

// Base returns the type that a reference refers to, and d itself otherwise.
func (d DType) Base() DType {
	if d.IsRef() {
		return d - refOffset
	}
	return d
}

// Size returns the bytes of one element; 0 when the elements are not plain memory
// (String, Resource, Variant) or d is not valid.
func (d DType) Size() int {
	if !d.Valid() {
		return 0
	}
	return dtypes[d].size
}

// Plain reports whether the elements are plain memory, which can be sent to
// another host as bytes.
func (d DType) Plain() bool { return d.Size() > 0 }

// String returns TensorFlow's name of the type ("float", "half", "float_ref").
func (d DType) String() string {
	switch {
	case d == Invalid || d.Valid():
		return dtypes[d].name
	case d.IsRef():
		return dtypes[d-refOffset].name + "_ref"
	}
	return "dtype(" + strconv.Itoa(int(d)) + ")"
}

// ParseDType returns the type with the given TensorFlow name. As in TensorFlow,
// "float16", "float32" and "float64" are names too.
func ParseDType(name string) (DType, bool) {
	switch name {
	case "float16":
		return Float16, true
	case "float32":
		return Float32, true
	case "float64":
		return Float64, true
	}
	for d := Invalid + 1; int(d) < len(dtypes); d++ {
		if dtypes[d].name == name {
			return d, true
		}
	}
	return Invalid, false
}
