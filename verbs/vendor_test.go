package verbs

import (
	"strings"
	"testing"
)

func TestVendorErrorText(t *testing.T) {
	for _, tt := range []struct {
		vendor, code uint32
		want         string
	}{
		{vendorMellanox, 0x81, "vendor error 0x81: no acknowledgement arrived after all retries"},
		{vendorMellanox, 0x7, "vendor error 0x7: its meaning is not public, vendor 0x0002c9"},
		{0x14e4, 0x81, "vendor error 0x81: its meaning is not public, vendor 0x0014e4"},
		{vendorMellanox, 0, "no vendor error"},
	} {
		if got := VendorError(tt.vendor, tt.code); got != tt.want {
			t.Errorf("%#x of %#x: %q, want %q", tt.code, tt.vendor, got, tt.want)
		}
	}
}

// TestCausesNameTheFlag: a cause that a setting can remove names the flag.
func TestCausesNameTheFlag(t *testing.T) {
	for s, flags := range map[Status][]string{
		StatusRetryExceeded:    {"rdma.gid-index", "rdma.mtu", "rdma.timeout", "4791"},
		StatusRNRRetryExceeded: {"rdma.queue-depth"},
		StatusResponseTimeout:  {"rdma.timeout"},
		StatusLocalProtection:  {"report"},
		StatusFatal:            {"dmesg"},
	} {
		for _, f := range flags {
			if !strings.Contains(s.Cause(), f) {
				t.Errorf("%v: %q does not name %s", s, s.Cause(), f)
			}
		}
	}
	for s := StatusLocalLength; s <= StatusGeneral; s++ {
		if s.Cause() == "" {
			t.Errorf("%v has no cause", s)
		}
	}
}
