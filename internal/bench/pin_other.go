//go:build !linux

package bench

import (
	"os"

	"github.com/tryst-rdma/tryst/status"
)

var errNoPin = status.New(status.Unimplemented, "--pin: this system does not say which processor a process runs on; Linux does")

func pinProcess(int) (func() error, error) { return nil, errNoPin }

func keepProcs(int) {}

func pinChild(*os.Process, int) error { return errNoPin }

func twoProcessors() ([2]int, error) { return [2]int{}, errNoPin }
