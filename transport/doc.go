// Package transport has what all transports share: the interfaces Transport, Worker and
// WorkerCache, the log of transfers, and the types of package delivery, the ledger of
// receives, that servers and workers need.
package transport
