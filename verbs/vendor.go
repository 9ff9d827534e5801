package verbs

import "fmt"

// vendorMellanox is the vendor id of mlx4 and mlx5 (NVIDIA's): an IEEE OUI.
const vendorMellanox = 0x2c9

// mellanoxWords are vendor errors of mlx5. NVIDIA documents none of them; these
// have been seen, always the same beside one status, in reports to perftest, UCX
// and others.
var mellanoxWords = map[uint32]string{
	0x51: "memory behind a local key could not be read or written; with memory of a GPU look at the IOMMU and at PCIe's ACS",
	0x52: "memory behind a local key could not be read or written; with memory of a GPU look at the IOMMU and at PCIe's ACS",
	0x81: "no acknowledgement came after all retries",
	0x88: "the peer's NIC refused the key or the address",
	0x8a: "the peer's NIC refused the request as invalid",
	0xf9: "flushed after an earlier error",
}

// VendorError tells a completion's vendor error in words, as far as they are known.
func VendorError(vendor, code uint32) string {
	switch {
	case code == 0:
		return "no vendor error"
	case vendor == vendorMellanox && mellanoxWords[code] != "":
		return fmt.Sprintf("vendor error %#x: %s", code, mellanoxWords[code])
	}
	return fmt.Sprintf("vendor error %#x: only the vendor knows it, %#06x", code, vendor)
}
