package verbs

// MaxEndpointData limits Endpoint.Data, in bytes. The offer of a peer carries it.
const MaxEndpointData = 1024
