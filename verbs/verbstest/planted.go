package verbstest

// mistake is one that a provider could make: the suite's own tests plant it, to
// see that the suite finds it.
type mistake string

const (
	anyStep          mistake = "takes any change of state"
	flushesSignalled mistake = "flushes signalled requests only"
	keepsReceives    mistake = "does not flush receives"
	closedLives      mistake = "a closed queue pair still answers"
	countsTooMany    mistake = "counts the work request that was refused"
	anyLocalKey      mistake = "takes any local key"
	neverGivesUp     mistake = "never gives up a dead peer"
	toleratesAccess  mistake = "says nothing of a wrong access"
)
