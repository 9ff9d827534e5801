package npy

// MaxHeader is the largest header in bytes that is read: what version 1.0 can
// hold. Longer ones describe structured elements; with 254 dimensions a plain
// array's has some 5000 bytes.
const MaxHeader = 1<<16 - 1
