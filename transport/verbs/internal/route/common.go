package route

import "github.com/tryst-rdma/tryst/status"

// Known reports whether the peer has shown its devices, or that it cannot.
func (r *Router) Known() bool { return r.known }

// noRoutePrefix begins the sentence by which a side refuses a route that no path leads over.
const noRoutePrefix = "no route over "

// IsUnreachable reports whether the peer has refused the route because no path leads over it.
func IsUnreachable(err error) bool {
	return status.CodeOf(err) == status.FailedPrecondition && says(err, noRoutePrefix)
}
