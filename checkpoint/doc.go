// Package checkpoint offers named sets of tensors, publications, to any number
// of pullers, and pulls them: model checkpoints on their way to a fleet.
//
//	files, tensors ─► Catalog                                Puller ─► file, iterator
//	                   │  └──── Publications service, gRPC ────► │
//	                   │        (List, Describe, Open: the keys) │
//	                   └─ rendezvous.Source ◄─── transport ◄─── Receiver
//	                      (the tensors)
//
// A publication does not change; its version is derived from its content. Open
// gives a puller a step of its own and the rendezvous key of each tensor. The
// tensors then come through the ordinary rendezvous of the transport that is
// configured: there is no second data path. The step ends when the stream of
// Open ends, for any reason, and everything kept for the puller ends with it.
//
// Published tensors are not put into a step's table. Every request for one of
// their keys, in any step, is answered with a reference to the same tensor,
// which stays there for all others.
//
// Tensors in files are read when the first request for them comes. Requests at
// the same time share one read and one buffer. A file must stay as it was when
// it was published: pullers get an error when its size, time or inode changed.
package checkpoint
