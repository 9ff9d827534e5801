package sources

import (
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tryst-rdma/tryst/internal/config"
)

// linkForm is a form of the variables that the kubelet sets for a Service of Kubernetes.
type linkForm struct {
	name *regexp.Regexp // after the name of the Service in upper case; the groups are the port and the protocol
	is   func(value, port, protocol string) bool
}

// linkForms has all forms. Service names may end in _SERVICE or _PORT themselves, so a variable can
// match the names of several forms.
var linkForms = []linkForm{
	{regexp.MustCompile(`._SERVICE_HOST$`), isAddress},                        // 10.0.0.1
	{regexp.MustCompile(`._SERVICE_PORT(?:_[A-Z0-9_]+)?$`), isPort},           // 2222; the suffix is the name of the port
	{regexp.MustCompile(`._PORT$`), isEndpoint},                               // tcp://10.0.0.1:2222
	{regexp.MustCompile(`._PORT_([0-9]+)_(TCP|UDP|SCTP)$`), isEndpoint},       // tcp://10.0.0.1:2222
	{regexp.MustCompile(`._PORT_([0-9]+)_(TCP|UDP|SCTP)_ADDR$`), isAddress},   // 10.0.0.1
	{regexp.MustCompile(`._PORT_([0-9]+)_(TCP|UDP|SCTP)_PORT$`), isPort},      // 2222
	{regexp.MustCompile(`._PORT_([0-9]+)_(TCP|UDP|SCTP)_PROTO$`), isProtocol}, // tcp
}

// isServiceLink reports whether a variable describes a Service. The kubelet sets such variables in
// the pods of the Service's namespace, so a Service named tryst or tryst-rdma makes variables
// that begin with TRYST_, such as TRYST_RDMA_PORT. Name and value must both have the form.
// Anything else is a setting or a typing error.
func isServiceLink(name, value string) bool {
	return slices.ContainsFunc(linkForms, func(f linkForm) bool {
		m := f.name.FindStringSubmatch(name)
		if m == nil {
			return false
		}
		m = append(m, "", "")
		return f.is(value, m[1], strings.ToLower(m[2]))
	})
}

// isEndpoint reports whether value is PROTOCOL://ADDRESS:PORT. An empty protocol or port matches any.
func isEndpoint(value, port, protocol string) bool {
	scheme, host, ok := strings.Cut(value, "://")
	at, err := netip.ParseAddrPort(host)
	return ok && err == nil && isProtocol(scheme, "", protocol) && isPort(strconv.Itoa(int(at.Port())), port, "")
}

func isAddress(value, _, _ string) bool {
	_, err := netip.ParseAddr(value)
	return err == nil
}

// isPort reports whether value is the number of a port, and the given one unless that is "".
func isPort(value, port, _ string) bool {
	n, err := strconv.ParseUint(value, 10, 16)
	return err == nil && n > 0 && (port == "" || value == port)
}

// isProtocol reports whether value is a protocol of Services, and the given one unless that is "".
func isProtocol(value, _, protocol string) bool {
	return (value == "tcp" || value == "udp" || value == "sctp") && (protocol == "" || value == protocol)
}

// withoutServiceLinks returns the environment without the variables of Services that have, or begin
// as, the name of a setting, and the names of those.
func withoutServiceLinks(environ []string) (rest, passedOver []string) {
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		if ours := strings.HasPrefix(name, config.EnvPrefix) || config.IsInherited(name); ours && isServiceLink(name, value) {
			passedOver = append(passedOver, name)
			continue
		}
		rest = append(rest, variable)
	}
	return rest, passedOver
}
