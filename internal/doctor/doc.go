// Package doctor says whether tensors can move from this host, and what to do
// where they cannot: lines of OK, WARN or FAIL, each with what would mend it.
//
//	Gather (asks the host) ──► Facts ──► Examine (pure) ──► Report ──► text, JSON, exit status
//
// Examine has all the judgement and touches nothing, so that what it says about
// a host can be tested without the host.
//
// WARN is what works and is slower, or reaches less far, than it could. FAIL is
// what does not work: without RDMA that is so only when RDMA was asked for, since
// tensors go over gRPC otherwise.
package doctor
