package rocetest

import "github.com/tryst-rdma/tryst/internal/rocewire"

// AppendPacket appends a packet, from BTH to ICRC, to b. It sets the pad count of h.
// id is the IPv4 identification that the ICRC covers. change, unless it is nil,
// alters the bytes from BTH to pad before the ICRC is computed.
func AppendPacket(b []byte, path *rocewire.Path, id uint16, h rocewire.Header, payload []byte, change func([]byte) []byte) []byte {
	h.Pad = rocewire.PadOf(len(payload))
	p := append(h.Append(nil), payload...)
	p = append(p, make([]byte, h.Pad)...)
	if change != nil {
		p = change(p)
	}
	return append(b, rocewire.AppendICRC(p, rocewire.UpdateHeader(path.BeginID(len(p)+rocewire.ICRCLen, id), p))...)
}
