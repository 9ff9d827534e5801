// Package integration tests Tryst across processes.
package integration
