//go:build linux && cgo

package libibverbs

// #include "shim.h"
import "C"

// The descriptors that Go and C share.
type (
	sgeDescriptor        = C.shim_sge
	sendDescriptor       = C.shim_send_wr
	recvDescriptor       = C.shim_recv_wr
	completionDescriptor = C.shim_wc
)

// headerFacts are the numbers, sizes and offsets that the C compiler found, by
// name; empty where it found no header.
func headerFacts() map[string]int64 {
	facts := map[string]int64{}
	for i := C.int(0); ; i++ {
		f := C.shim_fact_at(i)
		if f.name == nil {
			return facts
		}
		facts[C.GoString(f.name)] = int64(f.value)
	}
}
