// Package bundle reads and writes TensorFlow's checkpoints of version 2, the tensor bundles: the files of
// SaveV2, RestoreV2 and MergeV2Checkpoints.
//
//	PREFIX.index                 a table: names of tensors, and where these are
//	PREFIX.data-00000-of-00002   their elements, one after the other, little-endian and row-major
//	PREFIX.data-00001-of-00002
//
// The table is that of LevelDB (doc/table_format.md there), with blocks of 256 KiB and no compression. Its
// keys are sorted:
//
//	key               value
//	""                BundleHeaderProto: number of data files, byte order, version
//	name              BundleEntryProto: type, shape, data file, offset, size, CRC-32C of the elements (masked)
//	name              of a variable in parts: type and shape of the whole, and the part of each
//	name and extents  in ordered code (Slice.key): BundleEntryProto of a part
//
// The elements of a tensor of strings are
//
//	n varints         the lengths
//	4 bytes           CRC-32C of the lengths as uint32 (uint64 beyond 4 GiB), masked
//	the rest          the strings
//
// and the checksum of the entry is over the lengths as numbers, the 4 bytes, and the strings.
//
// A writer writes each file under a temporary name, syncs it and renames it, the index last. So a reader
// never sees a part of a bundle, and after a crash of the host neither.
//
// Files are foreign. Each length, offset and count is checked before it is used, what a file makes the
// reader keep is reserved in the allocator first, and every error names the file and the key.
// All files are below an os.Root: no path and no symbolic link leads out of it.
package bundle
