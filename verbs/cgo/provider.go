//go:build linux && cgo

package libibverbs

// #cgo LDFLAGS: -ldl
// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"io/fs"
	"math/bits"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tryst-rdma/tryst/verbs"
)

// Provider opens devices through libibverbs. The library is opened when it is
// first needed, again and again until that succeeds, and then stays: it does not
// like to be unloaded.
type Provider struct {
	library string
	sys     fs.FS  // sysfs, /sys
	dev     string // where the devices' files are

	mu  sync.Mutex // protects what follows
	lib *C.shim_library
	old bool // tests: as if the library had no optional functions
}

var _ verbs.Provider = (*Provider)(nil)

// New makes a provider. It opens nothing.
func New(opts Options) *Provider {
	if opts.Library == "" {
		opts.Library = DefaultLibrary
	}
	return &Provider{library: opts.Library, sys: os.DirFS("/sys"), dev: "/dev/infiniband"}
}

// Name is Name.
func (p *Provider) Name() string { return Name }

// open opens the library.
func (p *Provider) open() (*C.shim_library, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lib != nil {
		return p.lib, nil
	}
	path := C.CString(p.library)
	defer C.free(unsafe.Pointer(path))
	var why [256]C.char
	var problem C.enum_shim_open_error
	lib := C.shim_open_library(path, &problem, &why[0], C.size_t(len(why)))
	if lib != nil {
		if p.old {
			C.shim_forget_optional(lib)
		}
		p.lib = lib
		return lib, nil
	}
	words := C.GoString(&why[0])
	switch problem {
	case C.SHIM_OPEN_NO_HEADERS:
		return nil, unavailable(p.library, "install libibverbs-dev (Debian, Ubuntu) or rdma-core-devel (Fedora, RHEL), and build again, by make build or go build -a: Go's cache does not notice a header that came later",
			"this program was built without the header infiniband/verbs.h")
	case C.SHIM_OPEN_NO_SYMBOL:
		return nil, unavailable(p.library, "install a current rdma-core", "the library has no function %s", words)
	case C.SHIM_OPEN_NO_MEMORY:
		return nil, unavailable(p.library, "", "no memory")
	}
	return nil, unavailable(p.library, "install libibverbs1 and ibverbs-providers (Debian, Ubuntu) or rdma-core and libibverbs (Fedora, RHEL)",
		"the library cannot be opened: %s", words)
}

// devices calls each with the library and every device that it lists, while the
// list lives. It stops at each's first error.
func (p *Provider) devices(each func(lib *C.shim_library, d *C.struct_ibv_device, name string) error) error {
	lib, err := p.open()
	if err != nil {
		return err
	}
	var n C.int
	list, errno := C.shim_get_device_list(lib, &n)
	if err := pointerOrErrno(list == nil, errno); err != nil {
		return explain("list", "devices", err)
	}
	defer C.shim_free_device_list(lib, list)
	for i := range n {
		d := C.shim_device_at(list, i)
		if err := each(lib, d, C.GoString(C.shim_get_device_name(lib, d))); err != nil {
			return err
		}
	}
	if n == 0 {
		return p.whyNone()
	}
	return nil
}

// whyNone tells why the library lists no device although the kernel has some,
// nil when it has none.
func (p *Provider) whyNone() error {
	entries, err := fs.ReadDir(p.sys, "class/infiniband")
	if err != nil || len(entries) == 0 {
		return nil // a machine without RDMA devices: an ordinary answer
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return unavailable(strings.Join(names, ", "),
		"modprobe ib_uverbs; give the container /dev/infiniband; install ibverbs-providers (Debian, Ubuntu) or libibverbs (Fedora, RHEL)",
		"the kernel has the device and libibverbs does not list it")
}

// Devices lists the devices. One that cannot be opened is listed with its name
// and GUID, and no limits; when none can be, it is an error with the reason of
// each.
func (p *Provider) Devices() ([]verbs.DeviceInfo, error) {
	var infos []verbs.DeviceInfo
	var problems []error
	opened := false
	err := p.devices(func(lib *C.shim_library, d *C.struct_ibv_device, name string) error {
		info := verbs.DeviceInfo{Name: name, NodeGUID: guid(C.shim_get_device_guid(lib, d))}
		ctx, err := p.openContext(lib, d, name)
		if err == nil {
			opened = true
			info, err = queryDevice(lib, ctx, info)
			_ = closeContext(lib, ctx)
		}
		if err != nil {
			problems = append(problems, err)
		}
		infos = append(infos, info)
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case len(infos) > 0 && !opened:
		return nil, errors.Join(problems...)
	}
	return infos, nil
}

// Open opens a device by name.
func (p *Provider) Open(name string) (verbs.Device, error) {
	var found *device
	var names []string
	err := p.devices(func(lib *C.shim_library, d *C.struct_ibv_device, have string) error {
		names = append(names, have)
		if have != name {
			return nil
		}
		ctx, err := p.openContext(lib, d, name)
		if err != nil {
			return err
		}
		info := verbs.DeviceInfo{Name: name, NodeGUID: guid(C.shim_get_device_guid(lib, d))}
		found, err = newDevice(lib, ctx, info, p.sys, C.GoString(C.shim_device_dev_name(d)))
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case found != nil:
		return found, nil
	case len(names) == 0:
		return nil, verbs.Errorf("open", name, verbs.ErrNotFound, "there is no RDMA device")
	}
	return nil, verbs.Errorf("open", name, verbs.ErrNotFound, "there is no such device; there are %s", strings.Join(names, ", "))
}

// openContext opens a device. The library tries several ways to open its file
// and keeps the reason of the last one, so openContext opens the file itself to learn the reason.
func (p *Provider) openContext(lib *C.shim_library, d *C.struct_ibv_device, name string) (*C.struct_ibv_context, error) {
	ctx, errno := C.shim_open_device(lib, d)
	err := pointerOrErrno(ctx == nil, errno)
	if err == nil {
		return ctx, nil
	}
	file := filepath.Join(p.dev, C.GoString(C.shim_device_dev_name(d)))
	if fd, why := unix.Open(file, unix.O_RDWR|unix.O_CLOEXEC, 0); why == nil {
		_ = unix.Close(fd)
	} else {
		err = &fs.PathError{Op: "open", Path: file, Err: why}
	}
	if errors.Is(err, errNoReason) || errors.Is(err, fs.ErrNotExist) {
		return nil, &verbs.Error{
			Op: "open", Object: name, Err: fmt.Errorf("%w: %w", verbs.ErrUnavailable, err),
			Hint: "is " + p.dev + " in this container, and did udev make the file?",
		}
	}
	return nil, explain("open", name, err)
}

func closeContext(lib *C.shim_library, ctx *C.struct_ibv_context) error {
	rc, errno := C.shim_close_device(lib, ctx)
	return zeroOrMinusOne(int(rc), errno)
}

// guid makes a number of the library's GUID, which is big-endian in memory.
// Tryst builds on little-endian machines only.
func guid(be C.uint64_t) uint64 { return bits.ReverseBytes64(uint64(be)) }
