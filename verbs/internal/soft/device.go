package soft

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/tryst-rdma/tryst/verbs"
)

// OnlyPort is the number of the only port of a device.
const OnlyPort = 1

// Device is an opened device without its queue pairs. It implements CreateCQ, NextEvent and Counts of
// verbs.Device; AllocPD and Close of the provider use NewPD and End.
//
// Lock order: Mu, then the locks of the provider's queue pairs; then one of Keys.Mu, a completion
// queue and the events, of which Keys.Mu comes before a completion queue.
type Device struct {
	// Keys holds the registered memory.
	Keys *Keys
	// Mu also guards what the provider keeps of its queue pairs.
	Mu sync.Mutex

	name   string
	limits verbs.Limits
	hooks  Hooks
	events events
	done   chan struct{} // closed by End

	gone       atomic.Pointer[string] // why
	goneSignal chan struct{}          // closed when gone is set

	// Mu guards the fields below.
	closed  bool
	waiting waiter
	cqs     map[*CQ]struct{}
	pds     int
	mrs     int
	qps     int
	windows int
}

// Hooks tell a provider that memory is taken back. Both are called with Device.Mu held, when the
// keys give no access any more, and return when no access that has begun uses the memory. A provider
// that holds Keys.Mu during each access needs none: taking the keys away waits for it.
type Hooks struct {
	// RegionClosed may return what is to be waited for after Device.Mu was released.
	RegionClosed func(*Region) (wait func())
	WindowClosed func(*Window)
}

// Init prepares a device. name is used in errors.
func (d *Device) Init(name string, limits verbs.Limits, hooks Hooks) {
	d.name, d.limits, d.hooks, d.Keys = name, limits, hooks, NewKeys()
	d.events.wake = make(chan struct{}, 1)
	d.done, d.goneSignal, d.cqs = make(chan struct{}), make(chan struct{}), make(map[*CQ]struct{})
}

// Name is the name of Init.
func (d *Device) Name() string { return d.name }

// Done is closed when the device is.
func (d *Device) Done() <-chan struct{} { return d.done }

// UsableLocked returns an error if the device is closed or gone.
func (d *Device) UsableLocked(op string) error {
	if d.closed {
		return verbs.Errorf(op, d.name, verbs.ErrClosed, "the device is closed")
	}
	return d.Gone(op)
}

// CheckPort returns an error if the device is not usable or does not have the port.
func (d *Device) CheckPort(op string, port uint8) error {
	d.Mu.Lock()
	defer d.Mu.Unlock()
	return d.CheckPortLocked(op, port)
}

// CheckPortLocked is CheckPort for a caller that holds the lock.
func (d *Device) CheckPortLocked(op string, port uint8) error {
	if err := d.UsableLocked(op); err != nil {
		return err
	}
	if port != OnlyPort {
		return verbs.Errorf(op, fmt.Sprintf("%s port %d", d.name, port), verbs.ErrNotFound, "the only port is %d", OnlyPort)
	}
	return nil
}

// Gone returns an error if the device is gone, nil if it is not.
func (d *Device) Gone(op string) error {
	if why := d.gone.Load(); why != nil {
		return verbs.Errorf(op, d.name, verbs.ErrDeviceGone, "%s", *why)
	}
	return nil
}

// MarkGoneLocked makes all later calls fail, and waits return. It returns false if it did so before.
// The caller then flushes the queue pairs, and calls SignalGone.
func (d *Device) MarkGoneLocked(why string) bool { return d.gone.CompareAndSwap(nil, &why) }

// SignalGoneLocked ends the waits for events and completions.
func (d *Device) SignalGoneLocked() {
	for c := range d.cqs {
		c.dead.Store(true)
	}
	close(d.goneSignal)
}

// Counts implements verbs.Device.
func (d *Device) Counts() verbs.Counts {
	d.Mu.Lock()
	defer d.Mu.Unlock()
	return d.countsLocked()
}

func (d *Device) countsLocked() verbs.Counts {
	return verbs.Counts{PDs: d.pds, MRs: d.mrs, CQs: len(d.cqs), QPs: d.qps, Windows: d.windows}
}

// End closes the device, and waits until NextEvent has returned. It returns false if it was closed
// before, and an error if something is open.
func (d *Device) End() (ended bool, err error) {
	d.Mu.Lock()
	if d.closed {
		d.Mu.Unlock()
		return false, nil
	}
	if c := d.countsLocked(); c != (verbs.Counts{}) {
		d.Mu.Unlock()
		return false, verbs.Errorf("close", d.name, verbs.ErrBusy, "still open: %d PDs, %d MRs, %d CQs, %d QPs, %d windows",
			c.PDs, c.MRs, c.CQs, c.QPs, c.Windows)
	}
	d.closed = true
	returned := d.waiting.returns()
	d.Mu.Unlock()
	close(d.done)
	if returned != nil {
		<-returned
	}
	return true, nil
}
