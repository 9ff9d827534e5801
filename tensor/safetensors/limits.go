package safetensors

// MaxHeader is the largest header in bytes, as in the reference
// implementation. It bounds what parsing a hostile file costs.
const MaxHeader = 100_000_000

// MaxIndex is the largest index in bytes. An index names the tensors of all
// files of a checkpoint, and is smaller than their headers.
const MaxIndex = 100_000_000
