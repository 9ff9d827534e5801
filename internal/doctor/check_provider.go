package doctor

import (
	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/verbs/discovery"
)

// noKernel is why no RDMA port of the kernel can be used; nil when one can.
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

// works says that nothing is known against the device in software.
func (s Software) works() bool { return s.Asked && s.Err == nil && s.Sockets.Err == nil }

// uses is the provider that these settings lead to, and why; "" when none has a
// device. It is the rule of server.Select.
func (f *Facts) uses() (provider, why string) {
	err := f.noKernel()
	software := f.Software.works()
	switch {
	case f.Provider == config.ProviderRoCE:
		if software {
			return config.ProviderRoCE, "the setting provider names it"
		}
	case f.Provider == config.ProviderLibibverbs:
		if err == nil {
			return config.ProviderLibibverbs, "the setting provider names it"
		}
	case err == nil:
		return config.ProviderLibibverbs, server.Auto(nil)
	case software:
		return config.ProviderRoCE, server.Auto(err)
	}
	return "", ""
}

func (e *examiner) provider() {
	f := e.facts
	const check = "provider"
	switch provider, why := f.uses(); {
	case provider == config.ProviderRoCE && f.Provider != config.ProviderRoCE && len(f.Inventory.Devices) > 0:
		e.warn(check, "mend what is told of the RDMA devices above, or ask for it: --provider roce", "%s, a device in software, though there is RDMA: %s", provider, why)
	case provider == config.ProviderRoCE:
		e.ok(check, "%s, a device in software: %s", provider, why)
	case provider != "":
		e.ok(check, "%s: %s", provider, why)
	case f.Provider == config.ProviderLibibverbs && f.Software.works():
		e.lacks(check, "mend what is told above, or take the device in software: --provider auto", "libibverbs was asked for, and has no device that can be used")
	}
}
