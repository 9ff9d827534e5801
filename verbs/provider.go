package verbs

import (
	"context"
	"net/netip"
	"time"
)

// Provider gives access to the RDMA devices of this host.
type Provider interface {
	// Name returns the name of the provider, as in --provider.
	Name() string
	// Devices lists the devices that are present now, in any port state. A host
	// that can have devices but has none gives an empty list and no error. A host
	// that cannot have any gives ErrUnavailable with the reason.
	Devices() ([]DeviceInfo, error)
	// Open opens a device by its name. ErrNotFound, listing the devices present, if
	// there is none of that name; ErrUnavailable as for Devices. The caller closes
	// the device. Each call returns a device of its own.
	Open(name string) (Device, error)
}

// DeviceInfo describes a device (ibv_query_device(3)).
type DeviceInfo struct {
	Name     string // as in /sys/class/infiniband
	NodeGUID uint64 // in host byte order; libibverbs has it in network byte order
	Vendor   uint32 // IEEE OUI of the vendor; 0: none
	Firmware string
	Ports    uint8 // ports are numbered from 1
	// GoMemory: registering does not pin pages, so any memory may be registered,
	// including the Go heap.
	GoMemory bool
	// Windows: BindWindow works.
	Windows bool
	Limits  Limits
}

// Limits holds the maximum values of a device.
type Limits struct {
	QPs, CQs, MRs, PDs int
	SendWR             int    // work requests per send queue
	RecvWR             int    // work requests per receive queue
	SGEs               int    // per work request
	CQEntries          int    // per completion queue
	MRSize             uint64 // bytes per memory region
	ReadAtomic         uint8  // outstanding reads and atomics of the peer, per queue pair
	Atomics            bool   // OpCompareSwap and OpFetchAdd work
}

// PortInfo describes a port (ibv_query_port(3)).
type PortInfo struct {
	State      PortState
	Link       LinkLayer
	ActiveMTU  MTU
	MaxMTU     MTU
	LID        LID
	MaxMessage uint32 // bytes of the longest message
	GIDs       int    // entries of the GID table, including empty ones
	PKeys      int    // entries of the partition table
}

// Counts holds the number of open objects of a device, in this process.
type Counts struct{ PDs, MRs, CQs, QPs, Windows int }

// Device is an open device.
type Device interface {
	// Info returns the description of the device as of Open.
	Info() DeviceInfo
	// Port queries the current state of a port. ErrNotFound if there is no such
	// port, ErrDeviceGone if the device is gone.
	Port(port uint8) (PortInfo, error)
	// GIDs lists the non-empty entries of a port's GID table. Errors as for Port.
	GIDs(port uint8) ([]GIDEntry, error)
	// AllocPD creates a protection domain. The caller closes it.
	AllocPD() (PD, error)
	// CreateCQ creates a completion queue. The caller closes it. ErrInvalid if the
	// size is not within 1 and Limits.CQEntries.
	CreateCQ(CQConfig) (CQ, error)
	// NextEvent waits for the next asynchronous event. It returns ctx's error when
	// ctx ends, ErrClosed after Close, ErrDeviceGone when the device is gone and all
	// its events were returned. At most one goroutine may call it at a time.
	NextEvent(ctx context.Context) (AsyncEvent, error)
	// Counts returns the number of open objects.
	Counts() Counts
	// Close closes the device and ends NextEvent. ErrBusy, with the counts, while an
	// object that was created from the device is open.
	Close() error
}

// CounterReader is a Device that keeps its own packet and error counters. The counters
// of kernel devices are in sysfs (internal/discovery).
type CounterReader interface {
	// Counters returns the current counters of a port by name. The caller owns the map.
	Counters(port uint8) (map[string]uint64, error)
}

// PathReader is a Device that counts packets by peer. The counters of kernel devices are
// those of all peers.
type PathReader interface {
	// Paths returns the counters of each peer that a queue pair is connected to. They
	// begin with its first queue pair and end with its last. The caller owns the slice.
	Paths() []PathStats
}

// PathStats counts the packets to and from the receiving socket of a peer. A loss counts
// once, however many packets in a row were lost and were sent again for it.
type PathStats struct {
	Peer netip.AddrPort
	// Sent counts packets to the peer, Resent those of them that had been sent before,
	// and Lost the losses that made this side send again.
	Sent, Resent, Lost uint64
	// Received counts packets of the peer, and Missing the gaps between them.
	Received, Missing uint64
	// RoundTrip is the last smoothed round trip, including the time that packets and
	// acknowledgements waited at both hosts; 0 before it is measured.
	RoundTrip time.Duration
	// Shortest is the shortest round trip, which is closest to that of the network.
	Shortest time.Duration
}

// CQConfig holds the parameters of CreateCQ.
type CQConfig struct {
	// Size is the least number of completions that the queue can hold. It must cover
	// all work requests that can be outstanding on its queue pairs, signaled or not:
	// a queue that overruns is unusable (specification, volume 1, 11.6.3.1).
	Size int
}

// CQ is a completion queue with its completion channel.
type CQ interface {
	// Poll moves up to len(wcs) completions into wcs, oldest first, and returns their
	// number. It does not block. wcs is the caller's again on return. An error means
	// that the queue is closed or unusable.
	Poll(wcs []WC) (int, error)
	// Arm requests one event: for the next completion, or with solicitedOnly for the
	// next solicited or failed one (ibv_req_notify_cq(3)). A completion that is
	// already in the queue does not cause an event. So after Arm, poll until the
	// queue is empty before Wait.
	Arm(solicitedOnly bool) error
	// Wait blocks the goroutine, not a thread, until an event that Arm requested has
	// occurred, and acknowledges all that have. An event that occurred before the
	// call ends it at once. It returns ctx's error when ctx ends, and ErrClosed after
	// Close. At most one goroutine may call it at a time.
	Wait(ctx context.Context) error
	// Size returns the number of completions that the queue can hold. The device may
	// have rounded it up.
	Size() int
	// Close destroys the queue. ErrBusy while a queue pair uses it. It ends Wait and
	// returns after Wait has returned.
	Close() error
}

// CallbackCQ is a CQ of a software device, which can run a function for an event where
// other devices wake a goroutine. The goroutine that received the packet then also
// handles the completion.
type CallbackCQ interface {
	CQ
	// OnEvent makes the device call f for each event that a received packet causes.
	// Wait does not report these events. Events of other causes (a post, a timer, the
	// end of the device) still end Wait. Call OnEvent before the first Arm.
	//
	// f runs on a receiving goroutine of the device, which receives nothing meanwhile.
	// The device holds no lock during the call. f may poll, arm and post; it must not
	// wait for a packet or close an object. A running call of f may outlast Close.
	OnEvent(f func())
}

// DrivenCQ is a CallbackCQ whose Poll does the work of the device: it looks for what peers
// have sent and handles it on the calling goroutine, which so waits for no other one.
type DrivenCQ interface {
	CallbackCQ
	// Disarm takes back what Arm requested. Until the next Arm the caller polls all the
	// time, so no event is delivered, the goroutines of the device may rest, and peers
	// need not wake this process. It is no error to call it twice.
	Disarm()
}

// PD is a protection domain. A queue pair can access only memory that is registered in
// its own protection domain.
type PD interface {
	// RegisterMemory registers mem (ibv_reg_mr(3)). The device may access mem until the
	// MR is closed; the caller keeps it valid until then, and must not move or unmap
	// it (see the package comment). ErrInvalid if mem is empty, longer than
	// Limits.MRSize, or gives peers write access without AccessLocalWrite;
	// ErrMemlock, with the numbers, if RLIMIT_MEMLOCK does not allow it.
	RegisterMemory(mem []byte, access Access) (MR, error)
	// CreateQP creates a queue pair in RESET. The caller closes it. ErrInvalid if a
	// value exceeds the limits of the device.
	CreateQP(QPConfig) (QP, error)
	// Close frees the domain. ErrBusy while a memory region or queue pair of it is open.
	Close() error
}

// SharedMemory is an optional interface of protection domains of devices whose peers, on
// the same host, read the memory of this process.
type SharedMemory interface {
	// RegisterShared is RegisterMemory for memory of a file, which mem maps from offset on.
	// While it is registered, peers may map the file read-only and read all of it, not only
	// what work requests name. The file is a memfd of full length without holes, sealed
	// against shrinking, growing, writable mappings and further seals. fd stays the
	// caller's, and open until MR.Close has returned. Close may wait until peers have
	// confirmed that they dropped their mappings.
	RegisterShared(mem []byte, fd int, offset int64, access Access) (MR, error)
}

// MR is a registered memory region.
type MR interface {
	// Addr returns the address of the first byte, for SGE.Addr and SendWR.RemoteAddr.
	Addr() uint64
	// Len returns the length in bytes.
	Len() uint64
	// LKey returns the key for work requests of this side (SGE.LKey).
	LKey() LKey
	// RKey returns the key for work requests of peers (SendWR.RKey).
	RKey() RKey
	// Close deregisters the memory. When it has returned, the device no longer
	// accesses the memory. Outstanding work requests that name it fail and break
	// their queue pair. ErrBusy while a window is bound to it.
	Close() error
}

// QPConfig holds the parameters of CreateQP. The queue pair is of type RC (reliable
// connection).
type QPConfig struct {
	SendCQ, RecvCQ CQ  // of the same open device; may be the same queue
	MaxSend        int // outstanding work requests of the send queue
	MaxRecv        int // outstanding work requests of the receive queue
	MaxSendSGE     int // per work request; 0 means 1
	MaxRecvSGE     int // likewise
	MaxInline      int // bytes of SendWR.Inline
}

// QP is a reliable-connected queue pair. Posts of several goroutines at once are safe;
// their order is undefined.
type QP interface {
	// QPN returns the queue pair number.
	QPN() QPN
	// Endpoint returns what the peer needs to connect, without PSN, GID and LID: the
	// caller chooses these and fills them in.
	Endpoint() Endpoint
	// MaxInline returns the limit of SendWR.Inline in bytes. The device may have
	// rounded it up.
	MaxInline() int
	// State queries the current state from the device.
	State() (QPState, error)
	// ToInit, ToRTR, ToRTS, ToErr and ToReset change the state (ibv_modify_qp(3)).
	// ErrInvalid, naming the state or the attribute, if the state diagram or the
	// device does not allow it (CheckTransition, RTRAttr.Check, RTSAttr.Check).
	ToInit(InitAttr) error
	ToRTR(RTRAttr) error
	ToRTS(RTSAttr) error
	// ToErr breaks the queue pair: work requests that have not completed complete
	// with StatusFlushed.
	ToErr() error
	// ToReset discards all work requests without completions.
	ToReset() error
	// PostSend posts work requests in order and returns the number that the queue
	// accepted. wrs and their SGLs are the caller's again on return; the memory that
	// they name is the device's until the completion. With an error, wrs[n] and those
	// after it are not posted: ErrQueueFull if the queue has no free slot, ErrInvalid
	// if the request is malformed or the queue pair is neither in RTS nor in ERR. In
	// ERR requests are accepted and complete with StatusFlushed.
	//
	// A slot becomes free when a completion of its request, or of a later request of
	// the same queue, is polled.
	PostSend(wrs []SendWR) (int, error)
	// PostRecv does the same for receives, in every state but RESET.
	PostRecv(wrs []RecvWR) (int, error)
	// PostSendAndPoll is PostSend followed by cq.Poll. Providers that cross into C do
	// both in one call. err is that of PostSend, else that of Poll; both counts are
	// valid in any case.
	PostSendAndPoll(wrs []SendWR, cq CQ, wcs []WC) (posted, polled int, err error)
	// BindWindow binds a memory window of type 2B to length bytes at offset of mr
	// (specification, volume 1, 10.6.7.2). The window grants the remote rights in
	// access through this queue pair alone, by a key of its own, until it is closed.
	// The queue pair must be in RTS, and mr must have AccessBindWindow.
	// errors.ErrUnsupported, with the reason, if DeviceInfo.Windows is false.
	BindWindow(mr MR, offset, length uint64, access Access) (Window, error)
	// Close destroys the queue pair. When it has returned, no work request of this
	// side or of the peer accesses memory. Completions that were not polled may be lost.
	Close() error
}

// ConnectionReporter is a QP of a device that makes a connection for each queue pair, and knows more
// about its failure than the status of a completion tells.
type ConnectionReporter interface {
	QP
	// ConnectionError returns why the queue pair has no connection any more, or never got one;
	// nil while there is no reason.
	ConnectionError() error
}

// Window is a memory window: temporary remote access to a part of a memory region.
type Window interface {
	// RKey returns the key of the window. Peers address the memory as through the
	// region: MR.Addr plus the offset.
	RKey() RKey
	// Close revokes the key: later accesses by it fail.
	Close() error
}
