// Package trace turns step stats into a trace of Chrome: JSON that chrome://tracing and Perfetto show.
//
//	StepStats ─┬─ DeviceStepStats ─── a process "DEVICE"           one lane for what runs at a time
//	           └─ RecvTensor nodes ── a process "DEVICE receives"
package trace
