package vm

import "fmt"

// Accelerator is how QEMU runs the guest's processors.
type Accelerator string

// The accelerators.
const (
	// Auto takes KVM where it works and emulation elsewhere. What it found is kept in the cache: /dev/kvm can be there and not work with a
	// stock kernel (inside some virtual machines), and finding out costs a deadline.
	Auto Accelerator = "auto"
	KVM  Accelerator = "kvm"
	TCG  Accelerator = "tcg" // emulation
)

// ParseAccelerator takes the name of an accelerator; "" is Auto.
func ParseAccelerator(name string) (Accelerator, error) {
	switch a := Accelerator(name); a {
	case Auto, KVM, TCG:
		return a, nil
	case "":
		return Auto, nil
	}
	return "", fmt.Errorf("accelerator %q: auto, kvm or tcg is needed", name)
}
