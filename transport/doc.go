// Package transport has what all transports share: the interfaces Transport, Worker and
// WorkerCache, the log of transfers, and the names of the ledger of receives (package
// delivery) that servers and workers need.
package transport
