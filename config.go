package tryst

import "github.com/tryst-rdma/tryst/internal/config"

// Config is the settings of a server. docs/settings.md lists every setting with
// its default, unit and limits. A field with its zero value takes the default.
//
//	cfg := tryst.Config{Listen: ":2222", Client: tryst.ClientConfig{Transport: "verbs"}}
//	cfg.RDMA.Device = "mlx5_0"
type Config = config.Config

// ClientConfig is the part of the settings that a process without a listener
// needs, too.
type ClientConfig = config.Client

// The parts of ClientConfig.
type (
	// TLSConfig names the PEM files of this process and of those that it trusts.
	TLSConfig = config.TLS
	// RDMAConfig chooses the RDMA device and sets how its queue pairs send.
	RDMAConfig = config.RDMA
	// KeepaliveConfig sets when a silent connection is probed.
	KeepaliveConfig = config.Keepalive
	// LogConfig sets what the command logs. A Server logs to WithLogger.
	LogConfig = config.Log
	// OTelConfig names the collector of OpenTelemetry traces.
	OTelConfig = config.OTel
)

// LoadConfig returns the settings of a server as the command tryst serve would
// have them without flags: from TRYST_ variables, the YAML file that
// TRYST_CONFIG names, TF_CONFIG, and the defaults. Several errors are joined;
// each is an InvalidArgument of one line that names the source of the value.
// A program that sets Cluster or Task afterwards sets Listen, too; "" is the
// address of Task in Cluster.
func LoadConfig() (Config, error) {
	return config.Load(config.LoadOptions{Use: config.ForServer})
}
