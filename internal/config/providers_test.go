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
		c := Default()
		if err := (providerText{&c.Provider}).Set(text); err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		var takes []string
		for _, name := range Providers()[1:] {
			if c.Takes(name) {
				takes = append(takes, name)
			}
		}
		only := c
		if only.Provider = c.FabricOnly(); only.Provider != "" && (only.Fabric() != want.fabric || only.Takes(ProviderTCP)) || (only.Provider == "") != (want.fabric == "") {
			t.Errorf("%s: without the others it is %q", text, only.Provider)
		}
		if got := strings.Join(takes, " "); c.Provider != want.shown || c.Fabric() != want.fabric || got != want.takes {
			t.Errorf("%s: is %s, for the fabric %q, takes %s; want %+v", text, c.Provider, c.Fabric(), got, want)
		}
	}
	c := Default()
	c.SHM = SHMOff
	if c.Takes(ProviderShm) || !c.Takes(ProviderTCP) {
		t.Error("shm off leaves shared memory on, or ends more than that")
	}
}

// TestSharedMemorySettingsInWords: settings that contradict each other say what to change.
func TestSharedMemorySettingsInWords(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Config)
		says   string
	}{
		"a device of none":     {func(c *Config) { c.Provider, c.RDMA.Device = "tcp", "mlx5_0" }, "rdma.device mlx5_0: it names an RDMA device, and provider (tcp) names none"},
		"named and off":        {func(c *Config) { c.Provider, c.SHM = "tcp,shm", SHMOff }, "provider tcp,shm: it names shm, and the setting shm is off"},
		"a relative directory": {func(c *Config) { c.SHMDir = "run" }, "shm-dir run: it is no absolute path"},
		"a directory and off":  {func(c *Config) { c.SHMDir, c.SHM = "/run/tryst", SHMOff }, "shm-dir /run/tryst: it is for shared memory, and the setting shm is off"},
		"an unknown provider":  {func(c *Config) { c.Provider = "tcp,ucx" }, "ucx is unknown; want one of auto, libibverbs, roce, tcp, shm, or several with commas between them"},
	} {
		c := Default()
		test.change(&c)
		if err := c.Validate(ForServer); err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), `"`, ""), test.says) {
			t.Errorf("%s: %v, want %q", name, err, test.says)
		}
	}
}
