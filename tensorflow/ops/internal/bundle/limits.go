package bundle

// The numbers of the format.
const (
	// blockSize is how many bytes of entries a block of the index has before the next one begins: TensorFlow's.
	blockSize = 256 << 10
	// restartInterval is how many entries of a block share prefixes: TensorFlow's.
	restartInterval = 16
	// trailerSize is what follows a block: its kind of compression and its checksum.
	trailerSize = 5
	// footerSize is the end of a table: two handles of blocks, padded, and the magic number.
	footerSize = 48
	magic      = 0xdb4775248b80fb57
	// version is that of the format, which TensorFlow writes since 2016.
	version = 1
)

// The limits of this package.
const (
	// maxBlock is the largest block that is read. TensorFlow begins a new one after 256 KiB. The index block has
	// some 30 bytes for each of these, so this is enough for an index of 100 GB.
	maxBlock = 16 << 20
	// maxKey is the longest key. Names of nodes have 4 KiB at most; a part of a variable of 254 dimensions adds 5 KiB.
	maxKey = 64 << 10
	// maxValue is the largest value of the index. An entry takes some 50 bytes, and 10 to 20 more for each part.
	maxValue = 256 << 10
	// maxSlices is how many parts a variable may have: each is compared with each.
	maxSlices = 4096
	// maxSpec is the longest description of a part: 254 extents and offsets of 20 digits.
	maxSpec = 16 << 10

	// entryBytes is what an entry takes in memory beside its key and parts, and entryGrowth what a byte of
	// its value may become when it is parsed: two bytes are an empty part of 80.
	entryBytes  = 512
	entryGrowth = 48
	// chunk is how many bytes are read or written between two looks at the context.
	chunk = 1 << 20
	// bufferSize is the buffer of a file that is read or written in small parts.
	bufferSize = 64 << 10
	// maxOpen is how many data files a reader has open at a time.
	maxOpen = 8
	// budgetStep is how many bytes are reserved at a time.
	budgetStep = 64 << 10
)
