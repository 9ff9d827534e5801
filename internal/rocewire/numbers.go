package rocewire

// Port is the UDP port of RoCEv2 (annex A17.4.3; IANA).
const Port = 4791

// Lengths of the headers in bytes (9.2 to 9.3.6; FETH: annex A19).
const (
	BTHLen          = 12
	FETHLen         = 4
	RETHLen         = 16
	AtomicETHLen    = 28
	AETHLen         = 4
	AtomicAckETHLen = 8
	ImmDtLen        = 4
	IETHLen         = 4
	CNPLen          = 16 // reserved bytes after the BTH of a CNP, all 0 (annex A17.9.3)
	ICRCLen         = 4
)

const (
	// MaxHeaderLen is the length of the longest header: BTH and AtomicETH.
	MaxHeaderLen = BTHLen + AtomicETHLen
	// MinPacketLen is the length of the shortest packet: BTH and ICRC.
	MinPacketLen = BTHLen + ICRCLen
	// MaxOverhead is the most that a packet with payload has besides it: the header of
	// a WRITE Only with Immediate, the pad and the ICRC.
	MaxOverhead = BTHLen + RETHLen + ImmDtLen + 3 + ICRCLen
)

// DefaultPKey is the default partition key, with full membership (10.9.1.2).
const DefaultPKey = 0xffff

// Masks of fields that are narrower than their type.
const (
	mask24 = 1<<24 - 1 // queue pair, packet and message sequence numbers
	maxPad = 3
)

// Bits of the BTH, by byte.
const (
	bitSolicited = 0x80 // byte 1
	bitMigReq    = 0x40
	shiftPad     = 4
	maskVersion  = 0x0f
	bitFECN      = 0x80 // byte 4
	bitBECN      = 0x40
	bitAckReq    = 0x80 // byte 8
)

// congestionByte is the byte of the BTH that switches may change: FECN, BECN and
// reserved bits. The ICRC counts it as all ones.
const congestionByte = 4
