package status

// The limits of a message that is sent to a peer.
const (
	// MaxMessage is the limit in bytes, as between TensorFlow's workers.
	MaxMessage = 3072

	// maxEncoded is the limit in bytes of gRPC's header, in which each byte that is not
	// printable ASCII takes three ("%C3"). TensorFlow's gRPC refuses a response whose
	// headers have more than 8 KiB; this leaves 2 KiB for the other ones.
	maxEncoded = 6 << 10
)
