package guest

import (
	"fmt"
	"os"

	"github.com/tryst-rdma/tryst/soft-roce/vm/internal/layout"
)

// Main takes the process over when its arguments (with the program's name first) say that it is the guest's init or agent, and says
// whether they did.
func Main(args []string) bool {
	switch {
	case len(args) == 2 && args[1] == layout.InitArg && os.Getpid() == 1:
		Init()
	case len(args) == 2 && args[1] == layout.AgentArg:
		if err := Agent(); err != nil {
			fmt.Fprintln(os.Stderr, layout.GuestName+" agent:", err)
			os.Exit(1) //nolint:forbidigo // It is main's body: the agent's failure is init's to tell.
		}
	default:
		return false
	}
	return true
}
