package verbstest

// bug is a typical fault of a provider. The tests of the suite give a fabric one bug at a
// time (Fabric.bug) and check that the suite fails.
type bug string

const (
	anyTransition          bug = "allows any state transition"
	flushesSignaledOnly    bug = "flushes only signaled requests"
	receivesNotFlushed     bug = "does not flush receives"
	respondsAfterClose     bug = "a closed queue pair still responds"
	overcountsPosted       bug = "counts the rejected work request as posted"
	anyLocalKey            bug = "accepts any local key"
	unlimitedRetries       bug = "retries without limit"
	omitsAccessNAK         bug = "sends no NAK for a wrong access"
	losesWakeUps           bug = "drops an event that occurs before Wait"
	lateContent            bug = "completes before the content is in memory"
	emptyTakesReceive      bug = "an empty write consumes a receive"
	ignoresRights          bug = "ignores the rights of a region"
	ignoresQPRights        bug = "ignores the rights of a queue pair"
	anyDomain              bug = "accepts keys of another protection domain"
	anyPSN                 bug = "accepts any PSN"
	completesUnsignaled    bug = "completes unsignaled requests"
	truncatesMessages      bug = "truncates a message that is too long"
	swapsImm               bug = "swaps the bytes of the immediate data"
	anyCloseOrder          bug = "closes an object in use"
	windowKeyOutlivesClose bug = "the key of a closed window still works"
	inlineLater            bug = "reads inline bytes after the post"
	waitOutlivesClose      bug = "Wait does not end when its queue is closed"
	unlimitedRNRRetries    bug = "waits for receives without limit"
	ignoresFence           bug = "ignores fences"
	silentPorts            bug = "sends no port events"
	ignoresSolicited       bug = "raises an event for an unsolicited completion"
)

// hasBug reports whether the fabric has this bug.
func (f *Fabric) hasBug(b bug) bool { return f.bug == b }
