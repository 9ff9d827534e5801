package config

const (
	// envPrefix begins every variable that is a setting.
	envPrefix = "TRYST_"
	// testPrefix begins the variables of tests, which are no settings.
	testPrefix = "TRYST_TEST_"
	// tfConfigVariable is TensorFlow's.
	tfConfigVariable = "TF_CONFIG"

	// Verbs is the transport that RDMA's settings are for.
	Verbs = "verbs"

	// ProviderAuto takes an active RDMA port of ProviderLibibverbs where there is
	// one, else ProviderRoCE.
	ProviderAuto = "auto"
	// ProviderLibibverbs has the devices of the kernel, by rdma-core's library.
	ProviderLibibverbs = "libibverbs"
	// ProviderRoCE has a device in software on each network interface.
	ProviderRoCE = "roce"

	// transportKey is the setting that chooses the wire.
	transportKey = "transport"
	// configKey is the setting that names the file.
	configKey = "config"
	// clusterKey and taskKey are the settings that TF_CONFIG gives, too.
	clusterKey = "cluster"
	taskKey    = "task"
)
