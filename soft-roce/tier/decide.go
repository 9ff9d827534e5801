package tier

import (
	"context"
	"fmt"
)

// Mode is what the person asked for (TRYST_TEST_RXE).
type Mode string

// The modes.
const (
	Auto   Mode = ""       // the VM, or nowhere when none is possible
	VM     Mode = "vm"     // the VM; it is an error when none is possible
	Native Mode = "native" // this machine's own kernel, on which it makes devices; an error when it has no rdma_rxe
	Off    Mode = "off"    // nowhere
)

// ParseMode takes the value of TRYST_TEST_RXE.
func ParseMode(value string) (Mode, error) {
	switch m := Mode(value); m {
	case Auto, VM, Native, Off:
		return m, nil
	case "auto":
		return Auto, nil
	}
	return "", fmt.Errorf("TRYST_TEST_RXE=%s: auto, vm, native or off is needed", value)
}

// Where is where the tests run.
type Where string

// The places.
const (
	InVM    Where = "vm"
	Here    Where = "native"
	Nowhere Where = "skip"
)

// Decision is where the tests run; with Nowhere it has a reason.
type Decision struct {
	Where Where
	Why   string
}

// Decide chooses the place. prepareVM makes the VM bootable, or says why it is not possible; nothing of this machine's kernel is touched unless
// the mode is Native. An error means that what was asked for explicitly cannot be had, or that the context ended before it was known: an
// interrupt does not say that no VM is possible.
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
