// Package transport has what all transports share: the interfaces Transport, Worker and
// WorkerCache, the log of transfers, and what lies between a transport and the ledger of
// receives (internal/delivery):
//
//	requester    ledger ──► Conn.Begin ──► Attempt.Wait ──► ledger
//	                            │ Request       ▲ Response
//	                            ▼               │
//	responder             ResponseCache ──► Replier.Reply
package transport
