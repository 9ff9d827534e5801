package config

const (
	// EnvPrefix begins every variable that is a setting.
	EnvPrefix = "TRYST_"
	// TFConfig is the variable that TensorFlow's launchers set.
	TFConfig = "TF_CONFIG"

	// DefaultTransport is the transport where no setting names one.
	DefaultTransport = Auto
	// Auto is the transport over verbs where both sides have it, and over gRPC otherwise.
	Auto = "auto"
	// Verbs is the transport over RDMA.
	Verbs = "verbs"

	// ProviderAuto means every device that works here: ProviderLibibverbs if an RDMA
	// port is active, otherwise ProviderRoCE, and beside it ProviderTCP and ProviderShm.
	ProviderAuto = "auto"
	// ProviderLibibverbs has the devices of the kernel, through rdma-core's library.
	ProviderLibibverbs = "libibverbs"
	// ProviderRoCE has a device in user space on each network interface.
	ProviderRoCE = "roce"
	// ProviderTCP has a device whose queue pairs are TCP connections.
	ProviderTCP = "tcp"
	// ProviderShm has a device that reaches processes of this host over shared memory.
	ProviderShm = "shm"

	// SHMKey is the setting that switches shared memory off.
	SHMKey = "shm"
	// SHMOff is the value of the setting shm without shared memory.
	SHMOff = "off"

	// TransportKey is the setting for the transport.
	TransportKey = "transport"
	// ConfigKey is the setting that names the file.
	ConfigKey = "config"
	// ListenKey is the setting that a cluster gives when no source does.
	ListenKey = "listen"
	// ClusterKey is the setting for the tasks and their addresses, which TF_CONFIG can set, too.
	ClusterKey = "cluster"
	// TaskKey is the setting for the name of this process, which TF_CONFIG can set, too.
	TaskKey = "task"
)
