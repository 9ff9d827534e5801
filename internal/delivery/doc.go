// Package delivery is the one ledger of receives and responses, for all transports
// (ARCHITECTURE.md section 6). A broken connection loses nothing:
//
//	consumer                                              producer
//	rendezvous.BaseRemote                                 rendezvous.Manager
//	      │ RecvFromRemoteAsync                                 ▲ TakeLocal, RecvLocalAsync
//	  Requester ── request, request again, ack, cancel ──► ResponseCache
//	      └─────── one transport.Conn per peer ──────────┘
//
// A receive has a random id and a number of attempts. The Requester requests it again when
// a connection was lost and the peer is still the same process. The ResponseCache gives an
// id the same response in each attempt, and keeps it until the requester acknowledges it.
// The rules of both are pure state machines (requests.go and responses.go); goroutines,
// clocks and connections are in the shells around them (requester.go and cache.go).
package delivery
