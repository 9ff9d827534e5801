package frame

import (
	"fmt"
	"net"

	"github.com/tryst-rdma/tryst/verbs"
)

// version is the first byte of an endpoint and of a greeting after its magic. A side that
// gets another one refuses.
const version = 1

// SecretLen is the length of the secret of a queue pair in bytes.
const SecretLen = 16

// Endpoint is what a queue pair over TCP adds to its offer (verbs.Endpoint.Data).
type Endpoint struct {
	Secret    [SecretLen]byte
	Addresses []string // "host:port" where the process takes connections; none: it cannot be dialed
}

// Append appends the endpoint to b. The caller has checked it.
func (e *Endpoint) Append(b []byte) []byte {
	b = append(b, version)
	b = append(b, e.Secret[:]...)
	b = append(b, byte(len(e.Addresses)))
	for _, a := range e.Addresses {
		b = append(b, byte(len(a)))
		b = append(b, a...)
	}
	return b
}

// Check returns an error for addresses that no endpoint may have.
func (e *Endpoint) Check() error {
	if len(e.Addresses) > maxAddresses {
		return fmt.Errorf("%d addresses: at most %d", len(e.Addresses), maxAddresses)
	}
	size := 0
	for _, a := range e.Addresses {
		if len(a) > maxAddress {
			return fmt.Errorf("the address %.40q... has %d bytes: at most %d", a, len(a), maxAddress)
		}
		if _, port, err := net.SplitHostPort(a); err != nil || port == "" || port == "0" {
			return fmt.Errorf("the address %q is not host:port", a)
		}
		size += 1 + len(a)
	}
	if size += 2 + SecretLen; size > verbs.MaxEndpointData {
		return fmt.Errorf("the addresses take %d bytes: at most %d", size, verbs.MaxEndpointData)
	}
	return nil
}

// Parse reads an endpoint, which a peer has sent.
func (e *Endpoint) Parse(b []byte) error {
	*e = Endpoint{}
	switch {
	case len(b) > verbs.MaxEndpointData:
		return fmt.Errorf("%d bytes: at most %d", len(b), verbs.MaxEndpointData)
	case len(b) < 2+SecretLen:
		return fmt.Errorf("%d bytes: at least %d", len(b), 2+SecretLen)
	case b[0] != version:
		return fmt.Errorf("version %d: this process knows only %d", b[0], version)
	}
	copy(e.Secret[:], b[1:])
	n := int(b[1+SecretLen])
	b = b[2+SecretLen:]
	for range n {
		if len(b) == 0 || len(b) < 1+int(b[0]) {
			return fmt.Errorf("it ends within an address")
		}
		e.Addresses = append(e.Addresses, string(b[1:1+int(b[0])]))
		b = b[1+int(b[0]):]
	}
	if len(b) > 0 {
		return fmt.Errorf("%d bytes follow its end", len(b))
	}
	return e.Check()
}
