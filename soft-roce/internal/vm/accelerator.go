package vm

import "fmt"

// Accelerator is how QEMU runs the guest's processors.
type Accelerator string

// The accelerators.
const (
	// Auto uses KVM if it works, and emulation otherwise. It keeps the result in the cache: inside
	// some virtual machines /dev/kvm exists but does not work with a stock kernel, and detecting
	// that takes kvmDeadline.
	Auto Accelerator = "auto"
	KVM  Accelerator = "kvm"
	TCG  Accelerator = "tcg" // emulation
)

// ParseAccelerator parses the name of an accelerator; "" is Auto.
func ParseAccelerator(name string) (Accelerator, error) {
	switch a := Accelerator(name); a {
	case Auto, KVM, TCG:
		return a, nil
	case "":
		return Auto, nil
	}
	return "", fmt.Errorf("accelerator %q: must be auto, kvm or tcg", name)
}
