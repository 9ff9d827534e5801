// Package config is the one place that reads flags, environment and file.
//
// A setting has one name, its key, from which its other names follow:
//
//	key           log.level             in the YAML file, nested or dotted
//	flag          --log-level           dots become dashes
//	environment   TRYST_LOG_LEVEL       upper case, dots and dashes become _
//
// Where several sources give a setting, the highest counts:
//
//	flags  >  TRYST_ variables  >  YAML file  >  TF_CONFIG  >  defaults
//
// A value that a higher source overrides is not judged, except what has to be
// understood before it is one setting's value: TF_CONFIG, the form of the YAML
// file, the code of a timeout in RDMA_QP_TIMEOUT or RDMA_TIMEOUT, and two RDMA_
// names of one setting that disagree. A mistake there is an error whatever the
// flags say.
//
// TF_CONFIG gives the cluster and the own task, nothing else. A variable that
// is there but empty gives the empty value, which turns some settings off. An
// unknown TRYST_ variable is an error; variables that begin with TRYST_TEST_
// belong to tests and are passed over.
//
// The file is one YAML document; JSON is YAML, too. A key that is unknown or
// stands twice, a value of another kind and a second document are errors, each
// told with its line.
//
// All settings stand in one table, [Settings]. The flags, the variables, the
// file's keys, what [Describe] prints and the table in docs/settings.md come from it.
package config
