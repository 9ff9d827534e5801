// Package sources reads the settings, and is the only code that reads flags, environment and
// configuration file. Package config has the settings themselves.
//
// If several sources set a value, the highest one counts:
//
//	flags  >  TRYST_ variables  >  YAML file  >  TF_CONFIG  >  defaults
//
// A value that a higher source overrides is not checked. Exceptions are errors that
// prevent reading a source: in TF_CONFIG, in the syntax of the YAML file, in the timeout
// code of RDMA_QP_TIMEOUT or RDMA_TIMEOUT, and two RDMA_ variables of one setting with
// different values.
//
// TF_CONFIG sets the cluster and the task of this process, nothing else. If no source sets
// listen, its value is the address of the task in the cluster. An empty variable sets the
// empty value, which turns some settings off. An unknown TRYST_ variable is an error;
// variables that begin with TRYST_TEST_ belong to tests and are ignored. So are those that the
// kubelet sets for a Service of Kubernetes named tryst or tryst-SOMETHING, such as
// TRYST_PORT=tcp://10.0.0.1:2222: they are recognised by the form of name and value.
//
// The file is one YAML document (JSON is YAML, too). An unknown or repeated key, a value of
// the wrong kind and a second document are errors, reported with their line.
package sources
