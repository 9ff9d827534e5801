package doctor

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/verbs"
)

// Examine makes a report of facts. It is a pure function.
func Examine(f Facts) Report {
	e := examiner{facts: &f}
	e.settings()
	if f.Provider == server.ProviderAuto || f.row(f.Provider).Kernel {
		e.kernel()
		e.library()
		e.devices()
		e.choice()
		e.mtu()
		e.memlock()
		e.hugePages()
		e.congestion()
	}
	e.provider()
	e.software()
	e.fixed()
	e.peers()
	return e.report
}

// What to do where something could not be read.
const (
	doRead      = "let this user read /sys and /proc and open netlink sockets, or run the command as a user that may; what could not be read may be in order"
	doElsewhere = "RDMA needs Linux with /sys and netlink; tensors go over gRPC (--transport grpc)"
)

// examiner is the state of a call of Examine.
type examiner struct {
	facts  *Facts
	report Report
}

func (e *examiner) ok(check, format string, args ...any) {
	e.report = append(e.report, Line{OK, check, fmt.Sprintf(format, args...), ""})
}

func (e *examiner) warn(check, do, format string, args ...any) {
	e.report = append(e.report, Line{Warn, check, fmt.Sprintf(format, args...), do})
}

// lacks reports what prevents RDMA: a FAIL if the settings require verbs, unless another device
// replaces it.
func (e *examiner) lacks(check, do, format string, args ...any) {
	level := Warn
	if e.facts.Required && !e.facts.replaced() {
		level = Fail
	}
	e.report = append(e.report, Line{level, check, fmt.Sprintf(format, args...), do})
}

// absent reports what a host without RDMA devices lacks. That is no fault where nothing needs one:
// with the transports grpc and auto, and beside another device.
func (e *examiner) absent(check, do, format string, args ...any) {
	f := e.facts
	named := f.row(f.Provider).Kernel && !f.Auto || f.Want.Device != "" || f.Want.Port != 0 || f.Want.GIDIndex != nil
	switch {
	case named || len(f.Inventory.Devices) > 0, f.Required && !f.replaced():
		e.lacks(check, do, format, args...)
	case f.Required:
		e.ok(check, "%s; the other devices need none", fmt.Sprintf(format, args...))
	case f.Auto:
		e.ok(check, "%s; the other devices and gRPC need none", fmt.Sprintf(format, args...))
	default:
		e.ok(check, "%s; gRPC needs none", fmt.Sprintf(format, args...))
	}
}

// lacksFor reports what prevents the use of a device: at most a WARN for a device that was not
// chosen.
func (e *examiner) lacksFor(device, check, do, format string, args ...any) {
	if e.facts.NoChoice == nil && device != e.facts.Choice.Device {
		e.warn(check, do, format, args...)
		return
	}
	e.lacks(check, do, format, args...)
}

func (e *examiner) settings() {
	for _, s := range e.facts.Settings {
		if s.Key == shmDir && e.hasLocal() {
			continue // its check says whether the directory can be used
		}
		e.ok("setting", "%s is %q (%s)", s.Key, s.Value, s.Source)
	}
}

// hinted splits an error into its text and its hint, or the given one if it has none.
func hinted(err error, otherwise string) (text, do string) {
	v, ok := errors.AsType[*verbs.Error](err)
	if !ok || v.Hint == "" {
		return err.Error(), otherwise
	}
	plain := *v
	plain.Hint = ""
	return strings.Replace(err.Error(), v.Error(), plain.Error(), 1), v.Hint
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// bytesText formats bytes in powers of 1024, as limits and page sizes are.
func bytesText(n uint64) string {
	units := [...]string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	v, u := float64(n), 0
	for v >= 1024 && u < len(units)-1 {
		v /= 1024
		u++
	}
	if v == float64(uint64(v)) {
		return fmt.Sprintf("%d %s", uint64(v), units[u])
	}
	return fmt.Sprintf("%.1f %s", v, units[u])
}
