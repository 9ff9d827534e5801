// Package layout has the names, paths and the configuration that the host and the guest of the VM
// share.
package layout

import (
	"encoding/json"
	"fmt"
	"os"
)

const (
	// GuestName is the guest's host name. Programs can detect the guest by it.
	GuestName = "tryst-rxe"
	// PortName is the serial port's name (virtio-ports).
	PortName = "tryst.agent"
)

// The names of the file systems (9p mount_tag).
const (
	RootTag  = "tryst.root"
	ShareTag = "tryst.share"
)

// Arguments of the guest's binary, which select init or the agent.
const (
	InitArg  = "guest-init"
	AgentArg = "guest-agent"
)

// Paths in the initial file system: the binary, the modules and a Config.
const (
	InitFile   = "/init"
	ModulesDir = "/modules"
	ConfigFile = "/config.json"
)

// Config is what the guest's init needs before the port to the host works.
type Config struct {
	Modules []string `json:"modules"` // file names in ModulesDir, in load order
	Share   string   `json:"share"`   // the host's directory that the guest may write to, absolute
}

// ReadConfig reads a Config.
func ReadConfig(path string) (Config, error) {
	var c Config
	text, err := os.ReadFile(path)
	if err != nil {
		return c, fmt.Errorf("guest configuration: %w", err)
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return c, fmt.Errorf("guest configuration %s: %w", path, err)
	}
	return c, nil
}
