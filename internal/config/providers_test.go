package config

import (
	"strings"
	"testing"
)

// TestProvidersAreASet: their order and repetitions have no meaning, and auto stands for all of
// them.
func TestProvidersAreASet(t *testing.T) {
	for text, want := range map[string]struct{ shown, fabric, takes string }{
		"auto":            {"auto", "auto", "libibverbs roce tcp shm"},
		"shm, tcp":        {"tcp,shm", "", "tcp shm"},
		"tcp,shm,tcp":     {"tcp,shm", "", "tcp shm"},
		"tcp,roce":        {"roce,tcp", "roce", "roce tcp"},
		"libibverbs":      {"libibverbs", "libibverbs", "libibverbs"},
		"roce,libibverbs": {"libibverbs,roce", "auto", "libibverbs roce"},
		"roce,auto":       {"auto,roce", "auto", "libibverbs roce tcp shm"},
	} {
		shown := ""
		if err := (providerText{&shown}).Set(text); err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		c := NewProviderSet(shown, "auto")
		var takes []string
		for _, name := range Providers()[1:] {
			if c.Takes(name) {
				takes = append(takes, name)
			}
		}
		text := c.FabricOnly()
		only := NewProviderSet(text, "auto")
		if text != "" && (only.Fabric() != want.fabric || only.Takes(ProviderTCP)) || (text == "") != (want.fabric == "") {
			t.Errorf("%s: without the others it is %q", shown, text)
		}
		if got := strings.Join(takes, " "); shown != want.shown || c.Fabric() != want.fabric || got != want.takes {
			t.Errorf("%s: is %s, for the fabric %q, takes %s; want %+v", want.shown, shown, c.Fabric(), got, want)
		}
	}
	if c := NewProviderSet("", SHMOff); c.Takes(ProviderShm) || !c.Takes(ProviderTCP) {
		t.Error("shm off leaves shared memory on, or ends more than that")
	}
}

// TestSharedMemorySettingsInWords: settings that contradict each other say what to change.
func TestSharedMemorySettingsInWords(t *testing.T) {
	type settings struct {
		Provider string `setting:"provider"`
		SHM      string `setting:"shm"`
		SHMDir   string `setting:"shm-dir"`
		Device   string `setting:"rdma.device"`
	}
	for name, test := range map[string]struct {
		given settings
		says  string
	}{
		"a device of none":     {settings{Provider: "tcp", Device: "mlx5_0"}, "rdma.device mlx5_0: it names an RDMA device, and provider (tcp) names none"},
		"named and off":        {settings{Provider: "tcp,shm", SHM: SHMOff}, "provider tcp,shm: it names shm, and the setting shm is off"},
		"a relative directory": {settings{SHMDir: "run"}, "shm-dir run: it is no absolute path"},
		"a directory and off":  {settings{SHMDir: "/run/tryst", SHM: SHMOff}, "shm-dir /run/tryst: it is for shared memory, and the setting shm is off"},
		"an unknown provider":  {settings{Provider: "tcp,ucx"}, "ucx is unknown; want one of auto, libibverbs, roce, tcp, shm, or several with commas between them"},
	} {
		f := Bind(&test.given)
		f.FillDefaults()
		if err := f.Validate(ForServer, nil); err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), `"`, ""), test.says) {
			t.Errorf("%s: %v, want %q", name, err, test.says)
		}
	}
}

// TestAutoAsksForNoRDMA: the transport auto takes no device in user space, and under TLS no RDMA at all, unless a setting
// names the provider or the device. The other transports take what the settings allow.
func TestAutoAsksForNoRDMA(t *testing.T) {
	for _, c := range []struct {
		provider, transport, device string
		tls                         bool
		takes                       string
	}{
		{"auto", Auto, "", false, "libibverbs tcp shm"},
		{"auto", Auto, "", true, "tcp shm"},
		{"auto", Auto, "eth0", true, "libibverbs roce tcp shm"},
		{"roce,auto", Auto, "", false, "libibverbs roce tcp shm"},
		{"roce,auto", Auto, "", true, "roce tcp shm"},
		{"libibverbs", Auto, "", true, "libibverbs"},
		{"auto", Verbs, "", true, "libibverbs roce tcp shm"},
	} {
		set := NewProviderSet(c.provider, "auto").ForTransport(c.transport, c.device, c.tls)
		var takes []string
		for _, name := range Providers()[1:] {
			if set.Takes(name) {
				takes = append(takes, name)
			}
		}
		if got := strings.Join(takes, " "); got != c.takes {
			t.Errorf("%+v: takes %s", c, got)
		}
	}
}
