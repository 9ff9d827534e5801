// Package checkpoint publishes named sets of tensors, and pulls them from other processes. A
// typical publication is a model checkpoint that a fleet of servers pulls.
//
//	files, tensors ─► Catalog                                Puller ─► file, iterator
//	                   │  └──── Publications service, gRPC ────► │
//	                   │        (List, Describe, Open: the keys) │
//	                   └─ rendezvous.Publisher ◄─── transport ◄─── Receiver
//	                      (the tensors)
//
// A publication is immutable; its version is derived from its content. Open gives a puller a
// step of its own and the rendezvous key of each tensor. The puller receives the tensors
// through the rendezvous, over any transport. The step ends with the stream of Open, and with
// it everything that is cached for the puller.
//
// Published tensors are not sent to a step. Their keys can be received in every step, any
// number of times and by reference, so all pullers can receive the same tensors
// (ARCHITECTURE.md section 7).
//
// Tensors in files are read on request, into memory that all pullers share. Published files stay
// open. When another file is renamed onto the name of one of them, the publication gets a new
// version, and the old one stays for the pulls of it. A file that is written in place is an error
// to pullers until Catalog.Reload; one that was only touched is not.
package checkpoint
