package verbs

import "context"

// Provider is a source of devices.
type Provider interface {
	// Name is what --provider calls it.
	Name() string
	// Devices lists the devices that are there now, whatever their ports'
	// state. The error says why none can be: ErrUnavailable with the reason.
	// Without devices the list is empty and the error nil.
	Devices() ([]DeviceInfo, error)
	// Open opens a device by name: ErrNotFound, naming those that are there.
	Open(name string) (Device, error)
}

// DeviceInfo is what a device is and can do.
type DeviceInfo struct {
	Name     string // as in /sys/class/infiniband
	NodeGUID uint64 // a number: the bytes are big-endian in the library
	Vendor   uint32
	Firmware string
	Ports    uint8 // numbered from 1
	// GoMemory says that registering does not pin: any memory may be
	// registered, also the Go heap's.
	GoMemory bool
	// Windows says that BindWindow works.
	Windows bool
	Limits  Limits
}

// Limits are a device's largest values.
type Limits struct {
	QPs, CQs, MRs, PDs int
	SendWR             int // work requests of a send queue
	RecvWR             int
	SGEs               int    // of a work request
	CQEntries          int    // of a completion queue
	MRSize             uint64 // bytes of a memory region
	ReadAtomic         uint8  // reads and atomics under way as responder
	Atomics            bool   // OpCompareSwap and OpFetchAdd work
}

// PortInfo is a port's state.
type PortInfo struct {
	State      PortState
	Link       LinkLayer
	ActiveMTU  MTU
	MaxMTU     MTU
	LID        LID
	MaxMessage uint32 // bytes of the largest message
	GIDs       int    // size of the GID table, empty entries included
	PKeys      int    // size of the partition table
}

// Counts are the objects of a device that this process has open.
type Counts struct{ PDs, MRs, CQs, QPs, Windows int }

// Device is an open device.
type Device interface {
	Info() DeviceInfo
	// Port asks for a port's state now. ErrDeviceGone when the device is gone.
	Port(port uint8) (PortInfo, error)
	// GIDs lists the entries of a port's GID table that are not empty.
	GIDs(port uint8) ([]GIDEntry, error)
	AllocPD() (PD, error)
	CreateCQ(CQConfig) (CQ, error)
	// NextEvent waits for the next asynchronous event. One goroutine at a
	// time calls it. It ends with ctx's error, or with ErrClosed.
	NextEvent(ctx context.Context) (AsyncEvent, error)
	// Counts counts what is open.
	Counts() Counts
	// Close closes the device. ErrBusy, naming the counts, while anything
	// that came from it is open. It ends NextEvent.
	Close() error
}

// CounterReader is a device that counts for itself. What the kernel counts for others is in
// sysfs (verbs/discovery).
type CounterReader interface {
	// Counters are those of a port, by name.
	Counters(port uint8) (map[string]uint64, error)
}

// CQConfig configures a completion queue.
type CQConfig struct {
	// Size is the room in completions, at least. All queue pairs on it
	// together must not be able to have more work requests outstanding,
	// signalled or not: a queue that overruns is lost.
	Size int
}

// CQ is a completion queue with its completion channel.
type CQ interface {
	// Poll takes completions, oldest first, into wcs and returns how many. It
	// does not block. Its error means that the queue is of no use any more.
	Poll(wcs []WC) (int, error)
	// Arm asks for an event at the next completion (with solicitedOnly: the
	// next solicited or failed one). A completion that came before it makes
	// none, so after Arm the queue is polled until it is empty before anybody
	// waits.
	Arm(solicitedOnly bool) error
	// Wait blocks in Go's poller until an event that Arm asked for has come,
	// and acknowledges all that have. It ends with ctx's error, or with
	// ErrClosed. An event that came while nobody waited is not lost. One
	// goroutine at a time calls it.
	Wait(ctx context.Context) error
	// Size is the room in completions, as the device rounded it.
	Size() int
	// Close destroys the queue: ErrBusy while a queue pair uses it. It ends
	// Wait, and returns when that has returned.
	Close() error
}

// CallbackCQ is a CQ of a device in software, which can call for an event where a
// NIC wakes somebody: the goroutine that took the packet goes on with what it means,
// and none has to be woken for it.
type CallbackCQ interface {
	CQ
	// OnEvent makes the device call f for each event that a packet brought, which
	// Wait does not see then. The others, of a post, a timer or the end of the
	// device, still end Wait. f is called with no lock of the device held, by one of
	// its goroutines, which receives nothing meanwhile: f may poll, arm and post, and
	// must not wait for a packet nor close anything. A call that has begun may go on
	// when Close has returned. OnEvent is called before the first Arm.
	OnEvent(f func())
}

// PD is a protection domain: memory and queue pairs that belong together.
type PD interface {
	// RegisterMemory lends mem to the device until the MR is closed. ErrMemlock,
	// with the numbers, when the process may not lock so much.
	RegisterMemory(mem []byte, access Access) (MR, error)
	CreateQP(QPConfig) (QP, error)
	// Close frees the domain: ErrBusy while anything in it is open.
	Close() error
}

// MR is a registered memory region.
type MR interface {
	// Addr is the address of its first byte, and Len its length in bytes.
	Addr() uint64
	Len() uint64
	LKey() LKey
	RKey() RKey
	// Close takes the memory back. Work requests that name it must have
	// ended: those that have not fail, and break their queue pair. ErrBusy
	// while windows are bound to it.
	Close() error
}

// QPConfig configures a reliable-connected queue pair.
type QPConfig struct {
	SendCQ, RecvCQ CQ // may be the same
	MaxSend        int
	MaxRecv        int
	MaxSendSGE     int // 0 is taken as 1
	MaxRecvSGE     int
	MaxInline      int // bytes; more than the device has is an error
}

// QP is a reliable-connected queue pair. Its methods may be called from many
// goroutines; the order of posts that run at the same time is not defined.
type QP interface {
	// QPN is its number.
	QPN() QPN
	// Endpoint is what the peer must know, but for the PSN, GID and LID, which
	// are the caller's choice.
	Endpoint() Endpoint
	// MaxInline is how many bytes can be sent inline, as the device rounded it.
	MaxInline() int
	// State asks the device for the state.
	State() (QPState, error)
	ToInit(InitAttr) error
	ToRTR(RTRAttr) error
	ToRTS(RTSAttr) error
	// ToErr breaks the queue pair: everything posted completes with
	// StatusFlushed, save what had completed.
	ToErr() error
	ToReset() error
	// PostSend posts work requests in order and returns how many were taken.
	// With an error, that one and those behind it were not: ErrQueueFull when
	// there is no room, ErrInvalid when it does not fit or the queue pair is
	// not in RTS or ERR (in ERR it is taken, and flushed).
	PostSend(wrs []SendWR) (int, error)
	// PostRecv does the same for receives, in every state but RESET.
	PostRecv(wrs []RecvWR) (int, error)
	// PostSendAndPoll posts, then polls cq, in one crossing where the provider
	// has such. The error is PostSend's or Poll's; both counts are right.
	PostSendAndPoll(wrs []SendWR, cq CQ, wcs []WC) (posted, polled int, err error)
	// BindWindow gives a peer rights to a part of a memory region through this
	// queue pair, by a key that dies with the window. errors.ErrUnsupported,
	// with the reason, where DeviceInfo.Windows is false.
	BindWindow(mr MR, offset, length uint64, access Access) (Window, error)
	// Close destroys the queue pair. When it has returned, no work request
	// of this side or of the peer touches memory any more. Completions that
	// nobody has polled may be lost.
	Close() error
}

// Window is a lease of a part of a memory region.
type Window interface {
	// RKey is the key of the lease. The address is the memory region's, plus
	// the offset.
	RKey() RKey
	// Close ends the lease: later accesses by its key fail.
	Close() error
}
