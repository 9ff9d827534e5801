package rendezvous

import "context"

// Guard returns an error if a peer must not receive a value of a step that runs in a session: which
// process the destination of a key is depends on the session. A receive with a Guard waits until its
// step begins.
type Guard func(*Session) error

type guardKey struct{}

// WithGuard returns a context for RecvLocalAsync, which then calls the Guard before the receive takes
// a value.
func WithGuard(ctx context.Context, g Guard) context.Context {
	if g == nil {
		return ctx
	}
	return context.WithValue(ctx, guardKey{}, g)
}

func guardOf(ctx context.Context) Guard {
	g, _ := ctx.Value(guardKey{}).(Guard)
	return g
}
