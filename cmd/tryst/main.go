// Command tryst publishes tensors and pulls them: model checkpoints on their
// way to a fleet, over the rendezvous that its packages implement.
//
//	tryst serve --publish gpt2=gpt2.safetensors        offer
//	tryst keys --from host:2222                         look
//	tryst pull --from host:2222 --out gpt2.safetensors  take
//
// Results go to stdout, progress and logs to stderr. It exits with 0 when it
// has done what it was asked, 1 when that failed, 2 for wrong usage, 130 when it
// was interrupted, 141 when the reader of the results has gone away. A server
// that stops gracefully on a signal has done what it was asked.
package main

import (
	"os"

	"github.com/tryst-rdma/tryst/internal/command"
)

func main() { os.Exit(command.Main(command.Options{})) }
