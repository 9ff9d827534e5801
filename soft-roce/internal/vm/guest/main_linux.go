package guest

import (
	"fmt"
	"os"

	"github.com/tryst-rdma/tryst/soft-roce/internal/vm/internal/layout"
)

// Main runs the guest's init or agent if the arguments, of which the first is the program's name,
// select one. It returns false, and does nothing, if they do not. It does not return from init.
func Main(args []string) bool {
	switch {
	case len(args) == 2 && args[1] == layout.InitArg && os.Getpid() == 1:
		Init()
	case len(args) == 2 && args[1] == layout.AgentArg:
		if err := Agent(); err != nil {
			fmt.Fprintln(os.Stderr, layout.GuestName+" agent:", err)
			os.Exit(1) //nolint:forbidigo // This is the agent's main. Its exit status tells init of the failure.
		}
	default:
		return false
	}
	return true
}
