package verbstest

// mistake is one that a provider could make. The suite's own tests plant one at
// a time in a fabric (Fabric.planted), to see that the suite finds it.
type mistake string

const (
	anyStep           mistake = "takes any change of state"
	flushesSignalled  mistake = "flushes signalled requests only"
	keepsReceives     mistake = "does not flush receives"
	closedLives       mistake = "a closed queue pair still answers"
	countsTooMany     mistake = "counts the work request that was refused"
	anyLocalKey       mistake = "takes any local key"
	neverGivesUp      mistake = "never gives up a dead peer"
	toleratesAccess   mistake = "says nothing of a wrong access"
	losesWakeUps      mistake = "loses an event for which nobody waits yet"
	lateContent       mistake = "completes before the content is there"
	emptyTakesReceive mistake = "an empty write takes a receive"
	ignoresRights     mistake = "ignores the rights of a region"
	ignoresQPRights   mistake = "ignores the rights of a queue pair"
	anyDomain         mistake = "takes keys of another protection domain"
	anyPSN            mistake = "takes any PSN"
	completesAll      mistake = "completes what is not signalled"
	cutsLong          mistake = "cuts a message that is too long"
	swapsImm          mistake = "turns the bytes of an imm around"
	anyCloseOrder     mistake = "closes what is in use"
	windowSurvives    mistake = "a closed window's key lives"
	inlineLater       mistake = "reads inline bytes after the post"
	waitOutlivesClose mistake = "a wait outlives its queue"
	waitsForReceives  mistake = "waits for receives for ever"
	ignoresFence      mistake = "ignores fences"
	silentPorts       mistake = "says nothing of ports"
	ignoresSolicited  mistake = "makes an event of what is not solicited"
)

// has says whether a mistake is planted.
func (f *Fabric) has(m mistake) bool { return f.planted == m }
