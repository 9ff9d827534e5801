package ops

// maxUnused is how many generators, and how many queues, accumulators and tables without a shared_name, a session keeps for
// nodes that no graph has any more. A client may
// register graphs and drop them for as long as it likes, and the name of a node may have 4 KiB.
const maxUnused = 4096

// maxStrings is how many elements a kernel makes of a tensor of strings from a shape: each takes stringBytes,
// and the string itself.
const (
	maxStrings  = 1 << 22
	stringBytes = 16
)

// maxEmpty is the limit of coordinates of no numbers: they take no memory in a tensor, but do here.
const maxEmpty = 1 << 20

// keptConstant is how many elements a constant may have whatever its message has.
const keptConstant = 64

// maxSummary is how many elements an error text shows at most.
const maxSummary = 100

// maxListDepth is how deep lists in lists may be: the last reference of the outer one releases all of them.
const maxListDepth = 64

const (
	// maxShownText is how many bytes of a string in a tensor a text shows at most.
	maxShownText = 4096
	// maxPrinted is how many bytes a node prints at most: a line of a log.
	maxPrinted = 4096
	// maxFormatted is how many bytes StringFormat makes at most.
	maxFormatted = 1 << 20
)

// What an object and what is in it take beside the tensors, in bytes. A graph chooses how many there are.
const (
	// objectBytes is a queue, an accumulator or a lookup table, without its names.
	objectBytes = 1024
	// elementBytes is an element of a queue, and partBytes each of its tensors.
	elementBytes = 128
	partBytes    = 256
	// tableEntryBytes is an entry of a table, without its key and its value if they are strings: in the map, and in the list
	// of keys.
	tableEntryBytes = 96
	// slotBytes is a place of a TensorArray, and stepBlock how many bytes of a stack or a TensorArray are reserved at a time:
	// the gradient of a loop has some for each of its values.
	slotBytes = 64
	stepBlock = 4 << 10
	// placeBytes is a place of a TensorList, which grows as a slice does.
	placeBytes = 128
	// waitBytes is a kernel that waits for a queue or an accumulator: 700 bytes, and the stack of a goroutine when its
	// step ends. A graph may have 250,000 of them, and each of its steps that run.
	waitBytes = 4096
)

// maxFileKernels is how many kernels of a process read or write files at once: enough for the parts of a checkpoint on
// several devices, and a disk that does not answer holds no more threads.
const maxFileKernels = 8

// prefixBytes is what a prefix of a merge takes beside its text.
const prefixBytes = 128
