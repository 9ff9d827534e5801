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
// tensors then come through the ordinary rendezvous of whatever transport there
// is: there is no second data path. The step ends with the stream of Open, by
// whatever cause, and with it everything that is kept for the puller.
//
// Published tensors are not sent into a step's table. Their keys are answered
// in every step, by reference, as often as asked, so what one puller took is
// there for all others (ARCHITECTURE.md section 6b).
//
// Tensors that lie in files are read when they are asked for, into memory that
// all who ask for them share. A file must stay as it was when it was published:
// one whose size, time or inode changed is an error to pullers.
package checkpoint
