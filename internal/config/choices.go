package config

import (
	"strconv"
	"strings"

	"github.com/tryst-rdma/tryst/internal/providers"
)

// Values returns the valid values of the setting where they are few, such as the names of
// transports; nil otherwise. Shells complete them.
func (s Setting) Values() []string {
	switch v := s.value(nil).(type) {
	case choice:
		return v.known
	case providerText:
		return Providers()
	case level:
		return strings.Split(v.limits(), ", ")
	case boolean:
		return []string{"true", "false"}
	case oneOf:
		var all []string
		for _, n := range v.known {
			all = append(all, strconv.Itoa(n))
		}
		return all
	}
	return nil
}

// The values of Kernels.
const (
	// KernelsAuto are those of the command: Go's of tryst, TensorFlow's of tryst-tensorflow.
	KernelsAuto = "auto"
	// KernelsGo are the kernels of package tensorflow/ops.
	KernelsGo = "go"
	// KernelsTensorFlow are those of TensorFlow's library, which the command tryst-tensorflow links.
	KernelsTensorFlow = "tensorflow"
	// KernelsNone refuses graphs.
	KernelsNone = "none"
)

// Transports returns the valid values of the setting transport.
//
// Another value is InvalidArgument, as for every setting. TensorFlow's server factory returns
// NotFound for an unknown protocol.
func Transports() []string { return []string{Auto, "grpc", Verbs} }

// Providers returns the names in the setting provider: auto, and those of the table in internal/providers.
func Providers() []string {
	names := []string{ProviderAuto}
	for _, p := range providers.All() {
		names = append(names, p.Name)
	}
	return names
}

// The values of Deltas.
const (
	// DeltasAuto gives a watcher what differs from the version that it has, where that is there before the whole.
	DeltasAuto = "auto"
	// DeltasNone gives each version whole.
	DeltasNone = "none"
)
