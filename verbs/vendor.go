package verbs

import "fmt"

// vendorMellanox is the vendor ID of mlx4 and mlx5 devices (NVIDIA): an IEEE OUI.
const vendorMellanox = 0x2c9

// mellanoxErrors explains vendor errors of mlx5. NVIDIA does not document them: the texts
// follow from the status that accompanies each in public bug reports (perftest, UCX).
var mellanoxErrors = map[uint32]string{
	0x51: "memory behind a local key could not be read or written; with memory of a GPU look at the IOMMU and at PCIe's ACS",
	0x52: "memory behind a local key could not be read or written; with memory of a GPU look at the IOMMU and at PCIe's ACS",
	0x81: "no acknowledgement arrived after all retries",
	0x88: "the peer's NIC refused the key or the address",
	0x8a: "the peer's NIC refused the request as invalid",
	0xf9: "flushed after an earlier error",
}

// VendorError returns the text of a vendor error (WC.VendorErr) of a device of that
// vendor (DeviceInfo.Vendor), as far as it is known.
func VendorError(vendor, code uint32) string {
	switch {
	case code == 0:
		return "no vendor error"
	case vendor == vendorMellanox && mellanoxErrors[code] != "":
		return fmt.Sprintf("vendor error %#x: %s", code, mellanoxErrors[code])
	}
	return fmt.Sprintf("vendor error %#x: its meaning is not public, vendor %#06x", code, vendor)
}
