package discovery

import (
	"errors"
	"fmt"
	"path"
	"strconv"

	"github.com/tryst-rdma/tryst/verbs"
)

// Counters reads the counters of a port: those that InfiniBand defines
// (ports/P/counters) and the driver's own (ports/P/hw_counters, and hw_counters
// of the device), by the kernel's names. A name that is in several places is the
// port's. The values of counters/ are of their own units: port_xmit_data and
// port_rcv_data count words of four bytes.
//
// The error joins what could not be read; the counters that could are returned
// with it. A counter that a device lists and does not have (its file gives
// EINVAL or "not supported", or no number) is left out: never a 0.
func (s System) Counters(device string, port uint8) (map[string]uint64, error) {
	fs := s.sysfs()
	if !fs.has(classRDMA, device, "ports", strconv.Itoa(int(port))) {
		return nil, verbs.Errorf("read the counters of", fmt.Sprintf("%s port %d", device, port), verbs.ErrNotFound, "there is no such device or port")
	}
	all := make(map[string]uint64)
	var errs []error
	at := path.Join(classRDMA, device, "ports", strconv.Itoa(int(port)))
	found := false
	for _, dir := range []string{path.Join(classRDMA, device, "hw_counters"), path.Join(at, "hw_counters"), path.Join(at, "counters")} {
		names, err := fs.names(dir)
		if absent(err) {
			continue
		}
		found = true
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, name := range names {
			if name == "lifespan" { // how long the driver keeps values, in milliseconds
				continue
			}
			n, err := read(fs, parseCounter, dir, name)
			switch {
			case err == nil:
				all[name] = n
			case emptyEntry(err), absent(err), errors.Is(err, errNoCounter):
			default:
				errs = append(errs, err)
			}
		}
	}
	if !found {
		return nil, verbs.Errorf("read the counters of", fmt.Sprintf("%s port %d", device, port), verbs.ErrUnavailable, "the driver has none")
	}
	if err := errors.Join(errs...); err != nil {
		return all, &verbs.Error{Op: "read the counters of", Object: fmt.Sprintf("%s port %d", device, port), Err: err}
	}
	return all, nil
}

// errNoCounter is a file that says that it has no value.
var errNoCounter = errors.New("no counter")

// parseCounter takes a number; "N/A (no PMA)" is what ports without a
// performance agent say.
func parseCounter(s string) (uint64, error) {
	if len(s) >= 3 && s[:3] == "N/A" {
		return 0, errNoCounter
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q: want a number", s)
	}
	return n, nil
}
