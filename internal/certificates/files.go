package certificates

// Files names PEM files. A listener uses TLS if Cert and Key are set.
type Files struct {
	// Cert is the certificate chain of this process, for both directions, and Key its private key.
	Cert, Key string
	// CA has the authorities that are trusted: for the servers that this process dials, and for the client
	// certificates of its listener. Empty: those of the system for servers, none for clients.
	CA string
	// ServerName is the expected name in the certificates of dialed servers. Empty: the host of the address.
	ServerName string
	// RequireClientCert makes the listener refuse clients without a certificate of CA: mutual TLS.
	// Otherwise a certificate is optional, and is verified if there is one.
	RequireClientCert bool
}

// Enabled reports whether this process dials with TLS: whether any of the files or ServerName is set.
func (f Files) Enabled() bool {
	return f.Cert != "" || f.Key != "" || f.CA != "" || f.ServerName != ""
}
