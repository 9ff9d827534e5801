// Package layout is what the host and the guest of the VM agree on: names, places and the guest's configuration.
package layout

import (
	"encoding/json"
	"fmt"
	"os"
)

const (
	// GuestName is the guest's host name, by which programs can tell that they run in it.
	GuestName = "tryst-rxe"
	// PortName is the serial port's name (virtio-ports).
	PortName = "tryst.agent"
)

// The names of the file systems (9p mount_tag).
const (
	RootTag  = "tryst.root"
	ShareTag = "tryst.share"
)

// The arguments with which the binary that is the guest's init becomes process 1 and the agent.
const (
	InitArg  = "guest-init"
	AgentArg = "guest-agent"
)

// Where the initial file system has that binary, the modules and a Config.
const (
	InitFile   = "/init"
	ModulesDir = "/modules"
	ConfigFile = "/config.json"
)

// Config is what the guest's init must know before it can hear the host.
type Config struct {
	Modules []string `json:"modules"` // file names in ModulesDir, in the order in which they are loaded
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
