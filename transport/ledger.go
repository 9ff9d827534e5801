package transport

import (
	"github.com/tryst-rdma/tryst/internal/delivery"
)

// These are the types of the ledger of receives, package delivery.
type (
	// Process identifies a process: its task name and incarnation.
	Process = delivery.Process
	// Request is one attempt of one receive, as the responder gets it.
	Request = delivery.Request
	// Response is a value or an error.
	Response = delivery.Response
	// Values is where a responder takes values from.
	Values = delivery.Values
	// Replier sends responses to requesters.
	Replier = delivery.Replier
	// ResponseCache keeps responses until they are acknowledged. A process has one for
	// all its transports.
	ResponseCache = delivery.ResponseCache
	// CacheOptions configures a ResponseCache.
	CacheOptions = delivery.CacheOptions
	// CacheStats is a snapshot of a ResponseCache.
	CacheStats = delivery.CacheStats
	// RequesterState describes a process that sends requests.
	RequesterState = delivery.RequesterState
	// Unreached describes a peer that receives cannot reach.
	Unreached = delivery.Unreached
	// Conn carries requests to one peer.
	Conn = delivery.Conn
	// Receive is a receive that a Conn carries.
	Receive = delivery.Transfer
	// Attempt is one attempt of a Receive.
	Attempt = delivery.Attempt
	// Partial is what has come of the content of a Receive.
	Partial = delivery.Partial
	// Peer is the process at the other end of a Conn.
	Peer = delivery.Peer
	// LostError reports that a request has ended without the peer's response.
	LostError = delivery.LostError
	// UndecidedError refuses a request without any effect; it may be repeated.
	UndecidedError = delivery.UndecidedError
)

// The defaults of the ledger that an operator may change.
const (
	DefaultMaxWaiting       = delivery.DefaultMaxWaiting
	DefaultMaxWaitingBytes  = delivery.DefaultMaxWaitingBytes
	DefaultKeptPerRequester = delivery.DefaultKeptPerRequester
	DefaultPeerTimeout      = delivery.DefaultPeerTimeout
	// MaxProcessName is the longest name of a process, in bytes.
	MaxProcessName = delivery.MaxProcessName
)

// ErrProcessGone is in the chain of the error of a receive whose request may have reached a
// process of the peer that is gone.
var ErrProcessGone = delivery.ErrProcessGone

// NewResponseCache returns a cache whose values come from source.
func NewResponseCache(values Values, o CacheOptions) *ResponseCache {
	return delivery.NewResponseCache(values, o)
}

// OtherProcess returns the error for a request that was meant for another process of this
// task: the request has incarnation requested, this process has incarnation own.
func OtherProcess(requested, own uint64) error { return delivery.OtherProcess(requested, own) }
