// Package doctor checks whether tensors can move from this host. Each check gives a line of OK,
// WARN or FAIL, with what to do about it.
//
//	Gather (reads the host) ──► Facts ──► Examine (pure) ──► Report ──► text, JSON, exit status
//
// Examine makes all decisions and has no side effects, so that the report about a host can be
// tested without that host.
//
// WARN means that something works, but is slower or reaches fewer peers than it could. FAIL
// means that something does not work. Missing RDMA is a FAIL only if the settings require RDMA;
// otherwise tensors go over gRPC.
package doctor
