package tier

import (
	"context"
	"fmt"
)

// Mode is the value of TRYST_TEST_RXE: where the user wants the tests to run.
type Mode string

// The modes.
const (
	Auto   Mode = ""       // the VM, or nowhere if no VM is possible
	VM     Mode = "vm"     // the VM; an error if no VM is possible
	Native Mode = "native" // this machine's kernel, with devices that are added; an error without rdma_rxe
	Off    Mode = "off"    // nowhere
)

// ParseMode parses the value of TRYST_TEST_RXE.
func ParseMode(value string) (Mode, error) {
	switch m := Mode(value); m {
	case Auto, VM, Native, Off:
		return m, nil
	case "auto":
		return Auto, nil
	}
	return "", fmt.Errorf("TRYST_TEST_RXE=%s: must be auto, vm, native or off", value)
}

// Where is where the tests run.
type Where string

// The places.
const (
	InVM    Where = "vm"
	Here    Where = "native"
	Nowhere Where = "skip"
)

// Decision is where the tests run.
type Decision struct {
	Where  Where
	Reason string // for Nowhere; "" otherwise
}

// Decide chooses the place. prepareVM prepares the VM, or returns why no VM is possible. Decide
// changes nothing in this machine's kernel unless the mode is Native. It returns an error if an
// explicit mode is not possible, or if ctx ends first: an interrupt does not mean that no VM is
// possible.
func Decide(ctx context.Context, mode Mode, prepareVM func() error) (Decision, error) {
	switch mode {
	case Off:
		return Decision{Nowhere, "TRYST_TEST_RXE=off"}, nil
	case Native:
		return Decision{Where: Here}, nil
	}
	err := prepareVM()
	switch {
	case err == nil:
		return Decision{Where: InVM}, nil
	case ctx.Err() != nil:
		return Decision{}, fmt.Errorf("prepare the VM: %w", context.Cause(ctx))
	case mode == VM:
		return Decision{}, fmt.Errorf("TRYST_TEST_RXE=vm: %w", err)
	}
	return Decision{Nowhere, err.Error()}, nil
}
