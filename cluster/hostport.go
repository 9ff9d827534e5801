package cluster

import (
	"errors"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// bnsPrefix is the prefix of a name that a site's resolver turns into an address. TensorFlow
// accepts such names without a port.
const bnsPrefix = "/bns/"

// DefaultPort is the port of a server that is named by its host alone, and of TensorFlow's
// servers.
const DefaultPort = "2222"

// withPort returns an address with DefaultPort if s is a host name, an IPv4 address or an
// IPv6 address, with or without brackets, and s otherwise.
func withPort(s string) string {
	if ip, err := netip.ParseAddr(s); err == nil {
		return net.JoinHostPort(ip.String(), DefaultPort)
	}
	if s == "" || strings.HasPrefix(s, bnsPrefix) {
		return s
	}
	inBrackets := s[0] == '[' && s[len(s)-1] == ']'
	if inBrackets || !strings.Contains(s, ":") {
		return s + ":" + DefaultPort
	}
	return s
}

// ValidateHostPort checks the form of an address, without resolving it:
// "HOST:PORT" with a name, an IPv4 address or an IPv6 address in brackets and
// a port of 0 to 65535, or "/bns/NAME". An empty host is a listener on every
// interface; port 0 is a listener's free choice.
//
// TensorFlow accepts all addresses that it accepts. In addition it refuses addresses that
// cannot be dialled: a port above 65535, an IPv6 address without brackets, a host with
// blanks, control characters, bytes that are not ASCII, or one of the separators of a cluster
// spec (, ; = @) or a URL.
func ValidateHostPort(s string) error {
	if why := hostPortFault(s); why != "" {
		return invalid("address", s, "%s", why)
	}
	return nil
}

// CanonicalAddress returns the one text for all texts of an address that differ in the form of the
// host only (CanonicalHost). It resolves nothing.
func CanonicalAddress(s string) string {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return s // bnsPrefix
	}
	return net.JoinHostPort(CanonicalHost(host), port)
}

// CanonicalHost returns the one text for all texts of a host: a name in lower case without the dot
// at its end, or an address as netip writes it, without the IPv6 prefix of an IPv4 address.
func CanonicalHost(host string) string {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().String()
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// hostPortFault returns what is wrong with an address; "" for a valid one.
func hostPortFault(s string) string {
	const want = "; want HOST:PORT, an IPv6 host in brackets"
	if name, ok := strings.CutPrefix(s, bnsPrefix); ok {
		if name == "" || !plain(name, `,;=@"`) {
			return "want a name after " + bnsPrefix
		}
		return ""
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		why := err.Error()
		if addr := (*net.AddrError)(nil); errors.As(err, &addr) {
			why = addr.Err // without the address, which the caller shows
		}
		return why + want
	}
	if !plain(host, `/,;=@"`) {
		return "the host holds a character that no host name has" + want
	}
	if s[0] == '[' {
		if ip, err := netip.ParseAddr(host); err != nil || !ip.Is6() {
			return "no IPv6 address in the brackets" + want
		}
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "the port is no number of 0 to 65535" + want
	}
	return ""
}

// plain reports whether s has only visible ASCII characters, and none of those in not.
func plain(s, not string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' || strings.IndexByte(not, s[i]) >= 0 {
			return false
		}
	}
	return true
}
