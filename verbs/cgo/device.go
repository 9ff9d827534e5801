//go:build linux && cgo

package libibverbs

// #include "shim.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/tryst-rdma/tryst/verbs"
)

// device is an open device.
type device struct {
	lib    *C.shim_library
	sys    fs.FS
	entry  string // in sys, which goes when the device is removed; empty when it was never there
	info   verbs.DeviceInfo
	events *descriptor // asynchronous events
	told   atomic.Bool // that the device was removed

	tree
	node

	closing sync.Mutex // one Close at a time
	// use is held for reading while ctx is used by a call that leaves nothing
	// open, and for writing by Close. What enters the tree needs it not.
	use sync.RWMutex
	ctx *C.struct_ibv_context // nil when closed
}

// newDevice owns ctx, also when it fails. file is the name of the device's file.
func newDevice(lib *C.shim_library, ctx *C.struct_ibv_context, info verbs.DeviceInfo, sys fs.FS, file string) (*device, error) {
	info, err := queryDevice(lib, ctx, info)
	if err != nil {
		_ = closeContext(lib, ctx)
		return nil, err
	}
	events, err := newDescriptor(int(C.shim_async_fd(ctx)), "events of "+info.Name)
	if err != nil {
		_ = closeContext(lib, ctx)
		return nil, &verbs.Error{Op: "open", Object: info.Name, Err: err}
	}
	d := &device{lib: lib, sys: sys, entry: "class/infiniband_verbs/" + file, info: info, events: events, ctx: ctx}
	if d.removed() {
		d.entry = ""
	}
	return d, nil
}

// removed reports whether somebody removes the device. A kernel driver that
// cannot take a device away from its users (rxe up to 6.1 and later) tells them
// nothing: the removal waits until they close it, and only the entry in sysfs
// has gone. It keeps its name when the device is renamed.
func (d *device) removed() bool {
	if d.entry == "" {
		return false
	}
	_, err := fs.Stat(d.sys, d.entry)
	return errors.Is(err, fs.ErrNotExist)
}

// queryDevice fills info in.
func queryDevice(lib *C.shim_library, ctx *C.struct_ibv_context, info verbs.DeviceInfo) (verbs.DeviceInfo, error) {
	var a C.shim_device_attr
	rc, errno := C.shim_query_device(lib, ctx, &a)
	if err := zeroOrErrno(int(rc), errno); err != nil {
		return info, explain("query", info.Name, err)
	}
	info.Vendor = uint32(a.vendor_id)
	info.Firmware = C.GoStringN(&a.fw_ver[0], C.int(len(a.fw_ver)))
	info.Firmware, _, _ = strings.Cut(info.Firmware, "\x00")
	info.Ports = uint8(a.phys_port_cnt)
	info.Limits = verbs.Limits{
		QPs: int(a.max_qp), CQs: int(a.max_cq), MRs: int(a.max_mr), PDs: int(a.max_pd),
		SendWR: int(a.max_qp_wr), RecvWR: int(a.max_qp_wr), SGEs: int(a.max_sge), CQEntries: int(a.max_cqe),
		MRSize: uint64(a.max_mr_size), ReadAtomic: uint8(min(max(a.max_qp_rd_atom, 0), 255)),
		Atomics: a.atomic_cap != ibvAtomicNone,
	}
	return info, nil
}

// Info is what the device said when it was opened.
func (d *device) Info() verbs.DeviceInfo { return d.info }

// Port asks for a port's state.
func (d *device) Port(port uint8) (verbs.PortInfo, error) {
	object := fmt.Sprintf("%s port %d", d.info.Name, port)
	if port < 1 || port > d.info.Ports {
		return verbs.PortInfo{}, verbs.Errorf("query", object, verbs.ErrNotFound, "there is no such port; the device has %d, numbered from 1", d.info.Ports)
	}
	d.use.RLock()
	defer d.use.RUnlock()
	if d.ctx == nil {
		return verbs.PortInfo{}, &verbs.Error{Op: "query", Object: object, Err: verbs.ErrClosed}
	}
	var a C.shim_port_attr
	rc, errno := C.shim_query_port(d.lib, d.ctx, C.uint8_t(port), &a)
	if err := zeroOrErrno(int(rc), errno); err != nil {
		return verbs.PortInfo{}, explain("query", object, err)
	}
	if d.removed() {
		return verbs.PortInfo{}, explain("query", object, syscall.ENODEV)
	}
	return verbs.PortInfo{
		State: verbs.PortState(a.state), Link: verbs.LinkLayer(a.link_layer),
		ActiveMTU: mtuOf(uint32(a.active_mtu)), MaxMTU: mtuOf(uint32(a.max_mtu)),
		LID: verbs.LID(a.lid), MaxMessage: uint32(a.max_msg_sz), GIDs: int(a.gid_tbl_len), PKeys: int(a.pkey_tbl_len),
	}, nil
}

// NextEvent waits for the next asynchronous event, and acknowledges it. Every
// presenceCheck it looks whether the device is still there: when it is not,
// that is EventDeviceFatal, once, and then ErrDeviceGone.
func (d *device) NextEvent(ctx context.Context) (verbs.AsyncEvent, error) {
	for {
		check, cancel := context.WithTimeout(ctx, presenceCheck)
		event, err := d.nextEvent(check)
		cancel()
		switch {
		case ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded):
			return event, err
		case !d.removed():
		case d.told.CompareAndSwap(false, true):
			return verbs.AsyncEvent{Kind: verbs.EventDeviceFatal}, nil
		default:
			return verbs.AsyncEvent{}, explain("read events of", d.info.Name, syscall.ENODEV)
		}
	}
}

func (d *device) nextEvent(ctx context.Context) (event verbs.AsyncEvent, err error) {
	var problem error
	err = d.events.wait(ctx, func(uintptr) bool {
		d.use.RLock()
		defer d.use.RUnlock()
		if d.ctx == nil {
			problem = verbs.ErrClosed
			return true
		}
		var e C.shim_async_event
		rc, errno := C.shim_get_async_event(d.lib, d.ctx, &e)
		switch problem = zeroOrMinusOne(int(rc), errno); {
		case errors.Is(problem, syscall.EAGAIN), errors.Is(problem, syscall.EINTR):
			problem = nil
			return false
		case problem == nil:
			kind, known := eventKinds[uint32(e.event_type)]
			if !known {
				kind = verbs.EventOther
			}
			event = verbs.AsyncEvent{Kind: kind, Port: uint8(e.port_num), QPN: verbs.QPN(e.qp_num)}
		}
		return true
	})
	switch {
	case err != nil:
		return verbs.AsyncEvent{}, err
	case problem != nil:
		return verbs.AsyncEvent{}, explain("read events of", d.info.Name, problem)
	}
	return event, nil
}

// Counts counts what is open.
func (d *device) Counts() verbs.Counts { return d.openCounts() }

// Close closes the device.
func (d *device) Close() error {
	d.closing.Lock()
	defer d.closing.Unlock()
	if d.ctx == nil {
		return nil
	}
	err := d.shut(&d.node, func(_ int, c verbs.Counts) string {
		return fmt.Sprintf("open are %d PD, %d MR, %d CQ, %d QP", c.PDs, c.MRs, c.CQs, c.QPs)
	})
	if err != nil {
		return &verbs.Error{Op: "close", Object: d.info.Name, Err: err}
	}
	d.events.close()
	d.use.Lock()
	defer d.use.Unlock()
	if err := closeContext(d.lib, d.ctx); err != nil && !gone(err) {
		// The library frees the context whatever the kernel says, so that a
		// second try would be one too many.
		d.ctx = nil
		return explain("close", d.info.Name, err)
	}
	d.ctx = nil
	return nil
}

// AllocPD makes a protection domain.
func (d *device) AllocPD() (verbs.PD, error) {
	const op = "allocate a protection domain on"
	if err := d.enter(&d.counts.PDs, &d.node); err != nil {
		return nil, &verbs.Error{Op: op, Object: d.info.Name, Err: err}
	}
	pd, errno := C.shim_alloc_pd(d.lib, d.ctx)
	if err := pointerOrErrno(pd == nil, errno); err != nil {
		d.leave(&d.counts.PDs, &d.node)
		return nil, explain(op, d.info.Name, err)
	}
	return &protectionDomain{device: d, handle: pd}, nil
}

// protectionDomain is an allocated protection domain.
type protectionDomain struct {
	device *device
	node
	closing sync.Mutex // one Close at a time
	handle  *C.struct_ibv_pd
}

// Close frees the domain.
func (p *protectionDomain) Close() error {
	p.closing.Lock()
	defer p.closing.Unlock()
	if p.handle == nil {
		return nil
	}
	d := p.device
	err := d.shut(&p.node, func(users int, _ verbs.Counts) string {
		return fmt.Sprintf("%d memory regions and queue pairs in it are open", users)
	})
	if err != nil {
		return &verbs.Error{Op: "free a protection domain of", Object: d.info.Name, Err: err}
	}
	rc, errno := C.shim_dealloc_pd(d.lib, p.handle)
	if err := zeroOrErrno(int(rc), errno); err != nil && !gone(err) {
		d.reopen(&p.node)
		return explain("free a protection domain of", d.info.Name, err)
	}
	p.handle = nil
	d.leave(&d.counts.PDs, &d.node)
	return nil
}

// RegisterMemory registers mem, which must not be of the Go heap: see the
// package comment.
func (p *protectionDomain) RegisterMemory(mem []byte, access verbs.Access) (verbs.MR, error) {
	d := p.device
	const op = "register memory with"
	if len(mem) == 0 {
		return nil, verbs.Errorf(op, d.info.Name, verbs.ErrInvalid, "there are no bytes to register")
	}
	if limit := d.info.Limits.MRSize; uint64(len(mem)) > limit {
		return nil, verbs.Errorf(op, d.info.Name, verbs.ErrInvalid, "%d bytes are more than a memory region of this device holds (%d)", len(mem), limit)
	}
	if access&(verbs.AccessRemoteWrite|verbs.AccessRemoteAtomic) != 0 && access&verbs.AccessLocalWrite == 0 {
		return nil, verbs.Errorf(op, d.info.Name, verbs.ErrInvalid, "peers cannot be given the right to write without AccessLocalWrite")
	}
	if err := d.enter(&d.counts.MRs, &p.node); err != nil {
		return nil, &verbs.Error{Op: op, Object: d.info.Name, Err: err}
	}
	start := unsafe.Pointer(unsafe.SliceData(mem))
	addr := uint64(uintptr(start))
	var mr *C.struct_ibv_mr
	var errno error
	if C.shim_has_reg_mr_iova2(d.lib) != 0 {
		mr, errno = C.shim_reg_mr_iova2(d.lib, p.handle, start, C.size_t(len(mem)), C.uint64_t(addr), C.uint(accessBits(access)))
	} else {
		mr, errno = C.shim_reg_mr(d.lib, p.handle, start, C.size_t(len(mem)), C.uint(accessBits(access&^verbs.AccessRelaxedOrdering)))
	}
	if err := pointerOrErrno(mr == nil, errno); err != nil {
		d.leave(&d.counts.MRs, &p.node)
		return nil, outOfMemory(op, d.info.Name, uint64(len(mem)), err)
	}
	return &memoryRegion{
		pd: p, handle: mr, addr: addr, len: uint64(len(mem)),
		lkey: verbs.LKey(C.shim_mr_lkey(mr)), rkey: verbs.RKey(C.shim_mr_rkey(mr)),
	}, nil
}

// memoryRegion is registered memory.
type memoryRegion struct {
	pd        *protectionDomain
	addr, len uint64
	lkey      verbs.LKey
	rkey      verbs.RKey
	closing   sync.Mutex // one Close at a time
	handle    *C.struct_ibv_mr
}

func (m *memoryRegion) Addr() uint64     { return m.addr }
func (m *memoryRegion) Len() uint64      { return m.len }
func (m *memoryRegion) LKey() verbs.LKey { return m.lkey }
func (m *memoryRegion) RKey() verbs.RKey { return m.rkey }

// Close takes the memory back.
func (m *memoryRegion) Close() error {
	m.closing.Lock()
	defer m.closing.Unlock()
	if m.handle == nil {
		return nil
	}
	d := m.pd.device
	rc, errno := C.shim_dereg_mr(d.lib, m.handle)
	if err := zeroOrErrno(int(rc), errno); err != nil && !gone(err) {
		return explain("deregister memory of", d.info.Name, err)
	}
	m.handle = nil
	d.leave(&d.counts.MRs, &m.pd.node)
	return nil
}
