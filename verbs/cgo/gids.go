//go:build linux && cgo

package libibverbs

// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"github.com/tryst-rdma/tryst/verbs"
)

// GIDs lists the entries of a port's GID table that are not empty: by the
// library's own table where it has one (rdma-core 30 and later), else entry by
// entry, with the types from sysfs.
func (d *device) GIDs(port uint8) ([]verbs.GIDEntry, error) {
	info, err := d.Port(port)
	if err != nil {
		return nil, err
	}
	d.use.RLock()
	defer d.use.RUnlock()
	object := fmt.Sprintf("GIDs of %s port %d", d.info.Name, port)
	if d.ctx == nil {
		return nil, &verbs.Error{Op: "query", Object: object, Err: verbs.ErrClosed}
	}
	if C.shim_has_gid_table(d.lib) != 0 {
		entries, err := d.gidTable(port, info)
		if err == nil {
			return entries, nil
		}
		if !errors.Is(err, syscall.EOPNOTSUPP) && !errors.Is(err, syscall.EINVAL) {
			return nil, explain("query", object, err)
		}
	}
	return d.gidsOneByOne(port, info, object)
}

// gidTable asks for all ports at once, which is the only way to ask.
func (d *device) gidTable(port uint8, info verbs.PortInfo) ([]verbs.GIDEntry, error) {
	// The ports of one device have tables of one size.
	table := make([]C.shim_gid_entry, max(info.GIDs, 1)*int(d.info.Ports))
	n, err := countOrNegative(int64(C.shim_query_gid_table(d.lib, d.ctx, &table[0], C.size_t(len(table)))))
	if err != nil {
		return nil, err
	}
	var entries []verbs.GIDEntry
	for _, e := range table[:min(n, len(table))] {
		if e.port_num != C.uint32_t(port) {
			continue
		}
		entry := verbs.GIDEntry{Index: int(e.gid_index), Type: gidTypeOf(uint32(e.gid_type))}
		for i, b := range e.gid {
			entry.GID[i] = byte(b)
		}
		if !entry.GID.IsZero() {
			entries = append(entries, entry)
		}
	}
	return entries, nil
}

// gidTypeOf is the type of an ibv_gid_type.
func gidTypeOf(n uint32) verbs.GIDType {
	switch n {
	case 0:
		return verbs.GIDTypeIB
	case 1:
		return verbs.GIDTypeRoCEv1
	case 2:
		return verbs.GIDTypeRoCEv2
	}
	return verbs.GIDTypeUnknown
}

func (d *device) gidsOneByOne(port uint8, info verbs.PortInfo, object string) ([]verbs.GIDEntry, error) {
	var entries []verbs.GIDEntry
	for i := range info.GIDs {
		var raw [16]C.uint8_t
		rc, errno := C.shim_query_gid(d.lib, d.ctx, C.uint8_t(port), C.int(i), &raw[0])
		if err := zeroOrMinusOne(int(rc), errno); err != nil {
			return nil, explain("query", object, err)
		}
		entry := verbs.GIDEntry{Index: i}
		for j, b := range raw {
			entry.GID[j] = byte(b)
		}
		if entry.GID.IsZero() {
			continue
		}
		var err error
		if entry.Type, err = sysfsGIDType(d.sys, d.info.Name, port, i, info.Link); err != nil {
			return nil, &verbs.Error{Op: "query", Object: object, Err: err}
		}
		entries = append(entries, entry)
	}
	return entries, nil
}

// sysfsGIDType reads the type of an entry that is not empty (of one that is,
// reading says EINVAL: it may have become so since it was queried). Kernels
// before 4.5 have no types: what they have then is the link's first.
func sysfsGIDType(sys fs.FS, device string, port uint8, index int, link verbs.LinkLayer) (verbs.GIDType, error) {
	old := verbs.GIDTypeIB
	if link == verbs.LinkEthernet {
		old = verbs.GIDTypeRoCEv1
	}
	text, err := fs.ReadFile(sys, fmt.Sprintf("class/infiniband/%s/ports/%d/gid_attrs/types/%d", device, port, index))
	switch {
	case errors.Is(err, syscall.EINVAL):
		return verbs.GIDTypeUnknown, nil
	case errors.Is(err, fs.ErrNotExist):
		return old, nil
	case err != nil:
		return 0, err
	}
	switch strings.TrimSpace(string(text)) {
	case "RoCE v2":
		return verbs.GIDTypeRoCEv2, nil
	case "IB/RoCE v1":
		return old, nil
	}
	return verbs.GIDTypeUnknown, nil
}
