package doctor

import (
	"github.com/tryst-rdma/tryst/internal/devices"
	"github.com/tryst-rdma/tryst/internal/discovery"
)

// noKernel returns why no RDMA port of the kernel can be used, or nil if one can.
func (f *Facts) noKernel() error {
	switch l := f.Library; {
	case f.NoDiscovery != nil:
		return f.NoDiscovery
	case f.NoChoice != nil:
		return f.NoChoice
	case l.Asked && l.Err != nil:
		return l.Err
	case l.Asked && l.OpenErr != nil:
		return l.OpenErr
	case l.Asked:
		_, err := discovery.PathMTU(f.Want.MTU, l.Port.ActiveMTU)
		return err
	}
	return nil
}

// works reports whether no error of the device in user space is known.
func (s Software) works() bool { return s.Asked && s.Err == nil && s.Sockets.Err == nil }

// uses returns the provider that the settings lead to, and the reason; "" if none has a usable
// device. Without a selection it follows devices.Select.
func (f *Facts) uses() (provider, why string) {
	if s := f.Selected; s.Asked {
		if s.Err != nil {
			return "", ""
		}
		return s.Provider, s.Why
	}
	err := f.noKernel()
	software := f.Software.works()
	const named = "the setting provider names it"
	switch {
	case f.Provider == softwareProvider:
		if software {
			return f.Provider, named
		}
	case f.inUserSpace(f.Provider): // its device is known when it is selected
	case f.row(f.Provider).Kernel:
		if err == nil {
			return f.Provider, named
		}
	case err == nil:
		return f.kernelProvider(), devices.Auto(nil)
	case software:
		return softwareProvider, devices.Auto(err)
	}
	return "", ""
}

// kernelProvider returns the provider of the kernel's devices.
func (f *Facts) kernelProvider() string {
	for _, row := range f.rows() {
		if row.Kernel {
			return row.Name
		}
	}
	return ""
}

func (e *examiner) provider() {
	f := e.facts
	const check = "provider"
	if s := f.Selected; s.Asked && s.Err == nil {
		e.ok("device", "%s is the RDMA device of a process with these settings", s.Choice)
	} else if s.Asked && (!f.Auto || len(f.Inventory.Devices) > 0 || f.Want.Device != "") {
		e.lacks("device", "fix what is reported about the devices, or name another one (--rdma-device, --provider)", "a process with these settings has no RDMA device: %v", s.Err)
	}
	if f.Provider == "" {
		return // the devices that are no RDMA have lines of their own
	}
	switch provider, why := f.uses(); {
	case f.inUserSpace(provider) && f.Provider != provider && len(f.Inventory.Devices) > 0:
		e.warn(check, "fix what is reported about the RDMA devices above, or set --provider "+provider, "%s, a device in user space, although there are RDMA devices: %s", provider, why)
	case f.inUserSpace(provider):
		e.ok(check, "RDMA by %s, a device in user space: %s", provider, why)
	case provider != "":
		e.ok(check, "RDMA by %s: %s", provider, why)
	case f.row(f.Provider).Kernel && !f.Auto && f.Software.works():
		e.lacks(check, "fix what is reported above, or use the device in user space: --provider auto", "the setting provider names %s, which has no usable device", f.Provider)
	}
}
