package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tryst-rdma/tryst/internal/providers"
)

// providerText is the text of a list of providers, separated by commas. Their order has no meaning:
// the text has them in the order of Providers, each once.
type providerText struct{ p *string }

func (v providerText) String() string { return *v.p }
func (v providerText) Type() string   { return "names" }
func (v providerText) limits() string { return strings.Join(Providers(), ", ") }

func (v providerText) Set(s string) error {
	names, err := parseProviders(s)
	if err != nil {
		return err
	}
	*v.p = strings.Join(names, ",")
	return nil
}

func (v providerText) check() error {
	_, err := parseProviders(*v.p)
	return err
}

// parseProviders returns the names in a list, in the order of Providers.
func parseProviders(s string) ([]string, error) {
	given := make(map[string]bool)
	for name := range strings.SplitSeq(s, ",") {
		name = strings.TrimSpace(name)
		switch {
		case name == "":
			return nil, errors.New("a name is missing; want one of " + strings.Join(Providers(), ", ") + ", or several with commas between them")
		case !slices.Contains(Providers(), name):
			return nil, fmt.Errorf("%s is unknown; want one of %s, or several with commas between them", Quote(name), strings.Join(Providers(), ", "))
		}
		given[name] = true
	}
	return slices.DeleteFunc(Providers(), func(name string) bool { return !given[name] }), nil
}

// ProviderSet is what the settings provider and shm allow.
type ProviderSet struct {
	names []string
	noSHM bool

	unasked, encrypted bool // ForTransport
}

// NewProviderSet returns what the values of provider and shm allow; an empty one is the default.
func NewProviderSet(provider, shm string) ProviderSet {
	names, err := parseProviders(cmp.Or(provider, ProviderAuto))
	if err != nil {
		names = nil // the settings are not valid
	}
	return ProviderSet{names: names, noSHM: shm == SHMOff}
}

// ForTransport returns what of the set a transport takes. Nobody has asked for RDMA with the transport auto, unless a
// setting names a device. So it opens no device in user space, which would listen on a port of its own, and under TLS
// no RDMA device at all, whose packets are not encrypted. What the setting provider names it takes.
func (s ProviderSet) ForTransport(transport, device string, tls bool) ProviderSet {
	s.unasked, s.encrypted = cmp.Or(transport, DefaultTransport) == Auto && device == "", tls
	return s
}

// providers returns what the settings allow.
func (f Fields) providers() ProviderSet { return NewProviderSet(f.Text("provider"), f.Text(SHMKey)) }

// Names reports whether the setting provider names a provider.
func (s ProviderSet) Names(provider string) bool { return slices.Contains(s.names, provider) }

// Takes reports whether devices of a provider may be used: whether the setting provider names it,
// or auto stands for it.
func (s ProviderSet) Takes(provider string) bool {
	p, _ := providers.Of(provider)
	if p.Local() && s.noSHM {
		return false
	}
	passedOver := s.unasked && p.RDMA() && (s.encrypted || !p.Kernel)
	return s.Names(provider) || s.Names(ProviderAuto) && !passedOver
}

// FabricOnly returns the setting provider without the devices that are no RDMA; "" if there are none
// left.
func (s ProviderSet) FabricOnly() string { return strings.Join(s.fabric(), ",") }

// fabric returns the providers of RDMA devices that may be used.
func (s ProviderSet) fabric() (names []string) {
	for _, p := range providers.All() {
		if p.RDMA() && s.Takes(p.Name) {
			names = append(names, p.Name)
		}
	}
	return names
}

// Fabric returns the provider of the RDMA device: its name, ProviderAuto for the first of several with
// a usable device, or "" for none.
func (s ProviderSet) Fabric() string {
	switch names := s.fabric(); len(names) {
	case 0:
		return ""
	case 1:
		return names[0]
	}
	return ProviderAuto
}

// providersHelp lists the providers for the help of the setting provider, the preferred one first.
func providersHelp() string {
	var all []string
	for _, p := range providers.Preferred(providers.All()) {
		if p.Help != "" {
			p.Name += " (" + p.Help + ")"
		}
		all = append(all, p.Name)
	}
	return strings.Join(all, ", ")
}

// defaultHelp describes the default of a setting of queue pairs: that of NICs, and those of the
// providers that have another one, as "2, for roce 1".
func defaultHelp[T comparable](nic T, of func(providers.Row) T) string {
	var none T
	var values []T
	names := map[T][]string{}
	for _, p := range providers.All() {
		if v := of(p); v != none && v != nic {
			if names[v] == nil {
				values = append(values, v)
			}
			names[v] = append(names[v], p.Name)
		}
	}
	texts := []string{fmt.Sprint(nic)}
	for _, v := range values {
		texts = append(texts, fmt.Sprintf("for %s %v", enumerate(names[v]), v))
	}
	return strings.Join(texts, ", ")
}

// enumerate returns "a", "a and b", or "a, b and c".
func enumerate(names []string) string {
	last := len(names) - 1
	if last == 0 {
		return names[0]
	}
	return strings.Join(names[:last], ", ") + " and " + names[last]
}
