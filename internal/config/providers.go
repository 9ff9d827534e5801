package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
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
}

// NewProviderSet returns what the values of provider and shm allow; an empty one is the default.
func NewProviderSet(provider, shm string) ProviderSet {
	names, err := parseProviders(cmp.Or(provider, ProviderAuto))
	if err != nil {
		names = nil // the settings are not valid
	}
	return ProviderSet{names, shm == SHMOff}
}

// providers returns what the settings allow.
func (f Fields) providers() ProviderSet { return NewProviderSet(f.Text("provider"), f.Text("shm")) }

// Names reports whether the setting provider names a provider.
func (s ProviderSet) Names(provider string) bool { return slices.Contains(s.names, provider) }

// Takes reports whether devices of a provider may be used: whether the setting provider names it,
// or auto stands for it.
func (s ProviderSet) Takes(provider string) bool {
	if provider == ProviderShm && s.noSHM {
		return false
	}
	return s.Names(provider) || s.Names(ProviderAuto)
}

// FabricOnly returns the setting provider without the devices that are no RDMA; "" if there are none
// left.
func (s ProviderSet) FabricOnly() string {
	var names []string
	for _, name := range []string{ProviderLibibverbs, ProviderRoCE} {
		if s.Takes(name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ",")
}

// Fabric returns the provider of the RDMA device among several devices: ProviderLibibverbs,
// ProviderRoCE, ProviderAuto for the first of them with a usable device, or "" for none.
func (s ProviderSet) Fabric() string {
	kernel, software := s.Takes(ProviderLibibverbs), s.Takes(ProviderRoCE)
	switch {
	case kernel && software:
		return ProviderAuto
	case kernel:
		return ProviderLibibverbs
	case software:
		return ProviderRoCE
	}
	return ""
}
