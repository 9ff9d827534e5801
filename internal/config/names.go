package config

const (
	// envPrefix begins every variable that is a setting.
	envPrefix = "TRYST_"
	// testPrefix begins the variables of tests. They are not settings.
	testPrefix = "TRYST_TEST_"
	// tfConfigVariable is the variable that TensorFlow's launchers set.
	tfConfigVariable = "TF_CONFIG"

	// Verbs is the transport over RDMA.
	Verbs = "verbs"

	// ProviderAuto means ProviderLibibverbs if an RDMA port is active, otherwise
	// ProviderRoCE.
	ProviderAuto = "auto"
	// ProviderLibibverbs has the devices of the kernel, through rdma-core's library.
	ProviderLibibverbs = "libibverbs"
	// ProviderRoCE has a device in user space on each network interface.
	ProviderRoCE = "roce"

	// transportKey is the setting for the transport.
	transportKey = "transport"
	// configKey is the setting that names the file.
	configKey = "config"
	// listenKey is the setting that a cluster gives when no source does.
	listenKey = "listen"
	// clusterKey and taskKey are the settings that TF_CONFIG can set, too.
	clusterKey = "cluster"
	taskKey    = "task"
)
