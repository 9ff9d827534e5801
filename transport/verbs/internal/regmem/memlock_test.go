package regmem

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/verbs"
)

const procStatus = "Name:\ttryst\nVmPin:\t     512 kB\nCapInh:\t0000000000000000\nCapPrm:\t000001ffffffffff\nCapEff:\t%\n"

func TestCapabilitiesAndPinnedBytesAreRead(t *testing.T) {
	for _, c := range []struct {
		text   string
		cap    uint64
		pinned uint64
		bad    bool
	}{
		{strings.ReplaceAll(procStatus, "%", "000001ffffffffff"), 1<<41 - 1, 512 << 10, false},
		{strings.ReplaceAll(procStatus, "%", "0000000000004000"), 1 << capIPCLock, 512 << 10, false},
		{"CapEff:\t0\n", 0, 0, false}, // kernels without VmPin
		{strings.ReplaceAll(procStatus, "%", "x"), 0, 0, true},
		{"VmPin:\t99999999999999999999 kB\nCapEff:\t0\n", 0, 0, true},
		{"", 0, 0, true},
	} {
		got, pinned, err := parseStatus([]byte(c.text))
		if got != c.cap && !c.bad || pinned != c.pinned && !c.bad || (err != nil) != c.bad {
			t.Errorf("%q: %#x, %d, %v", c.text, got, pinned, err)
		}
	}
}

// In a user namespace of its own a process has every capability and still may lock no more
// than its limit: the kernel checks the capability in the initial namespace.
func TestCapabilitiesCountInTheInitialUserNamespaceOnly(t *testing.T) {
	for text, want := range map[string]bool{
		"         0          0 4294967295\n": true, "0 100000 65536\n": false, "0 0 4294967295\n1 1 1\n": false, "": false,
	} {
		if initialNamespace([]byte(text)) != want {
			t.Errorf("%q: %v", text, !want)
		}
	}
}

func TestMemlockIsFoundOutBeforeAnythingIsRegistered(t *testing.T) {
	device, o := verbs.DeviceInfo{Name: "mlx5_0"}, Options{Arena: mib, SendLimit: 100 * mib, RecvLimit: 100 * mib}
	for _, c := range []struct {
		name string
		l    Memlock
		want []string // parts of the text; nil when the limit is enough
	}{
		{"exempt", Memlock{Limit: 8 * mib, Exempt: true}, nil},
		{"unlimited", Memlock{Limit: NoMemlock}, nil},
		{"exactly", Memlock{Limit: 201 * mib}, nil},
		{"docker's", Memlock{Limit: 8 * mib, Hard: 8 * mib}, []string{
			"mlx5_0", "210763776 bytes (104857600 to send", "may lock 8388608", "ulimit -l 205824;", "LimitMEMLOCK=210763776", "memlock=210763776:210763776"}},
		{"a part is taken", Memlock{Limit: 201 * mib, Locked: mib, Hard: NoMemlock}, []string{
			"1048576 are taken", "its hard limit (unlimited) is enough", "ulimit -l 206848;"}},
		{"hard is enough", Memlock{Limit: mib, Hard: 300 * mib}, []string{"its hard limit (314572800 bytes) is enough"}},
	} {
		err := o.CheckMemlock(device, c.l, mib)
		if c.want == nil {
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		if !exhausted(err) || !errors.Is(err, verbs.ErrMemlock) {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: no %q in %v", c.name, want, err)
			}
		}
	}
	device.GoMemory = true
	if err := o.CheckMemlock(device, Memlock{}, 0); err != nil {
		t.Errorf("a device that locks nothing: %v", err)
	}
}

func TestReadMemlockAsksTheSystem(t *testing.T) {
	l, err := ReadMemlock()
	if err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS == "linux" && (l.Limit == 0 && !l.Exempt || l.Hard < l.Limit) {
		t.Errorf("%+v", l)
	}
}
