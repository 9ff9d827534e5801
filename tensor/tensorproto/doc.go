// Package tensorproto turns tensors into TensorFlow's TensorProto and back.
//
// On the wire, as a TensorFlow worker writes it, a tensor of plain elements is
//
//	field 1  dtype            the DType's number
//	field 2  tensor_shape     a message of one dim for each dimension; absent for a scalar
//	field 4  tensor_content   the elements' memory, and nothing after it
//
// AppendHeader writes all before the memory, so that a transport can send the
// memory itself behind it; ParseHeader reads that form and says where the
// memory begins. Elements that are not plain memory make a content of their
// lengths, as varints, and then all their bytes.
//
// FromProto reads this form and all others that TensorFlow knows: lists of
// values by type, of which the last one repeats.
package tensorproto
