package cluster_test

import (
	"testing"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/status"
)

func TestH5HostPortAccepted(t *testing.T) {
	for _, s := range []string{
		"127.0.0.1:2222",
		"example.com:2222",
		"fqdn.example.com.:2222",
		"[2002:a9c:258e::]:2222",
		"[::]:2222",
		"/bns/example",
		// Not in TensorFlow's list.
		"localhost:0", ":2222", "h_1:65535", "[fe80::1%eth0]:2222",
	} {
		if err := cluster.ValidateHostPort(s); err != nil {
			t.Error(err)
		}
	}
}

func TestH5HostPortRefused(t *testing.T) {
	for s, why := range map[string]string{
		"example.com/abc:2222": "a character that no host name has",
		"127.0.0.1:2222/":      "the port is no number",
		"example.com/abc:":     "a character that no host name has",
		"[::]/:2222":           "",
		"[::]:2222/":           "the port is no number",
		"[::]:":                "the port is no number",
		// Not in TensorFlow's list.
		"":                  "missing port",
		"host":              "missing port",
		"2222":              "missing port",
		"::1:2222":          "too many colons",
		"host:65536":        "the port is no number of 0 to 65535",
		"host:-1":           "the port is no number",
		"host:+1":           "the port is no number",
		"host:http":         "the port is no number",
		"ho st:1":           "a character that no host name has",
		" host:1":           "a character that no host name has",
		"host\x00:1":        "a character that no host name has",
		"h\u00f6st:1":       "a character that no host name has",
		"a,b:1":             "a character that no host name has",
		"user@host:1":       "a character that no host name has",
		"[127.0.0.1]:2222":  "no IPv6 address in the brackets",
		"[]:2222":           "no IPv6 address in the brackets",
		"[::1:2222":         "missing ']'",
		"http://host:2222":  "too many colons",
		"/bns/":             "want a name after /bns/",
		"/bns/a b":          "want a name after /bns/",
		"host:2222\nsecond": "the port is no number",
	} {
		wantError(t, cluster.ValidateHostPort(s), status.InvalidArgument, "address", why)
	}
}

// TestCanonicalAddress: addresses that differ in the form of the host only have one text.
func TestCanonicalAddress(t *testing.T) {
	for s, want := range map[string]string{
		"h1.example:2222":         "h1.example:2222",
		"H1.Example.:2222":        "h1.example:2222",
		"10.0.0.1:1":              "10.0.0.1:1",
		"[::ffff:10.0.0.1]:1":     "10.0.0.1:1",
		"[2001:DB8:0:0:0:0:0:1]:": "[2001:db8::1]:",
		"[fe80::1%Eth0]:2222":     "[fe80::1%Eth0]:2222",
		":2222":                   ":2222",
		"/bns/Name":               "/bns/Name",
	} {
		if got := cluster.CanonicalAddress(s); got != want {
			t.Errorf("%s: %s, want %s", s, got, want)
		}
	}
}
