package config

import "log/slog"

// Own has the settings of the command alone: a program passes arguments in place of them.
type Own struct {
	// File is the path of the YAML file that was read. Default: none.
	File string `setting:"config"`
	// Kernels runs the graphs that TensorFlow masters register: KernelsAuto or one of the others.
	Kernels string `setting:"kernels"`
	// Log sets the level and format of the log.
	Log Log
	// OTel sets the export of traces.
	OTel OTel
}

// Log sets what a process logs to stderr.
type Log struct {
	// Level is the lowest level logged.
	Level slog.Level `setting:"log.level"`
	// Format is "text" or "json".
	Format string `setting:"log.format"`
}

// OTel sets the export of OpenTelemetry traces.
type OTel struct {
	// Endpoint is the address of the OTLP/gRPC collector, HOST:PORT. Empty: nothing is traced.
	Endpoint string `setting:"otel.endpoint"`
	// SampleRatio is the fraction of traces that is exported: above 0, up to 1.
	SampleRatio float64 `setting:"otel.sample-ratio"`
	// Insecure connects to the collector without TLS.
	Insecure bool `setting:"otel.insecure"`
}

// Entry is one setting with its value.
type Entry struct {
	// Key names the setting.
	Key string
	// Value is in the form of a flag.
	Value string
	// Source is where the value comes from.
	Source Source
}
