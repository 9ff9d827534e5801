package frame

// MaxPayload limits the bytes that follow a header. Longer messages take several frames, so
// that acknowledgements and responses can go between them.
const MaxPayload = 1 << 20

// MaxMessage limits the bytes of a request (specification, volume 1, 9.7.6).
const MaxMessage = 1 << 31

// MaxReason limits the text of a refusal, in bytes.
const MaxReason = 512

// Limits of an endpoint: maxAddresses for the addresses of a host with several interfaces, maxAddress for the
// length of each in bytes, which is that of a DNS name.
const (
	maxAddresses = 16
	maxAddress   = 255 // bytes
)
