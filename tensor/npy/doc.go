// Package npy reads and writes arrays in NumPy's .npy format, one array a file.
//
//	offset  bytes   content
//	0       6       "\x93NUMPY"
//	6       2       version: 1.0, 2.0 or 3.0, a byte each
//	8       2 or 4  N, the size of the header, little-endian; 2 bytes in version 1.0
//	        N       the header: a Python dictionary as text, padded with spaces, ends in a newline
//	        rest    the elements
//
// The header of a 2×3 array of float32:
//
//	{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
//
// The format is described in the documentation of numpy.lib.format. Elements
// are read in either byte order and in row-major or column-major ("Fortran")
// order, and come out as every tensor's do: little-endian and row-major.
// Character arrays ('S' and 'U') become String tensors. Object arrays are not
// read: they are pickles, which can run code. Nor are structured ones, dates,
// and floats that Go lacks.
//
// Nothing in a file is trusted: the header is a literal that is parsed, not
// evaluated, and what it announces must be what the file holds before memory
// is allocated for it.
package npy

// dataAlignment is what the written header's end, where the elements begin, is
// a multiple of, as the format asks, so that mapped arrays are aligned.
const dataAlignment = 64

const magic = "\x93NUMPY"

// chunkBytes is how much of a file is in memory at once while its elements are
// put in order: large enough for the disk, small beside any array that matters.
const chunkBytes = 1 << 20
