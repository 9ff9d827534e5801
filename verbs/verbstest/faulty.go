package verbstest

import (
	"math/bits"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/internal/rc"
)

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

// bugged is what a queue pair with a bug remembers.
type bugged struct {
	mute    bool     // completions of receives are lost
	lengths []uint64 // of all receives, for truncatesMessages
}

// accessOf returns the rights of a queue pair.
func (q *qp) accessOf(a verbs.Access) verbs.Access {
	if q.nic.f.hasBug(ignoresQPRights) {
		return ^verbs.Access(0)
	}
	return a
}

// rtsOf returns the attributes for the machine.
func (q *qp) rtsOf(a verbs.RTSAttr) *verbs.RTSAttr {
	if q.nic.f.hasBug(unlimitedRNRRetries) {
		a.RNRRetry = rc.RNRUnlimited
	}
	return &a
}

// misread changes a work request that was posted.
func (q *qp) misread(w *rc.SendWork, c *segments, wr *verbs.SendWR) {
	switch q.nic.f.bug {
	case completesUnsignaled:
		w.WR.Signaled = true
	case ignoresFence:
		w.WR.Fence = false
	case inlineLater:
		if w.IsInline {
			c.mem[0] = wr.Inline
		}
	}
}

// noteLengths remembers the lengths of receives.
func (q *qp) noteLengths(wrs []verbs.RecvWR) {
	if q.nic.f.hasBug(truncatesMessages) {
		for i := range wrs {
			q.lengths = append(q.lengths, wrs[i].Len())
		}
	}
}

// truncate cuts a SEND that is longer than its receive.
func (q *qp) truncate(p *packet) {
	if n := q.machine.Consumed(); p.op <= verbs.OpSendImm && n < uint64(len(q.lengths)) {
		p.total = min(p.total, q.lengths[n])
		p.n = min(p.n, p.total-p.off)
	}
}

// swallowReceive takes a receive for an empty WRITE.
func (q *qp) swallowReceive(p *packet) {
	if q.nic.f.hasBug(emptyTakesReceive) && p.op == verbs.OpWrite && p.total == 0 {
		q.mute = true
		if _, ready := q.machine.Begin(&rc.Request{Op: verbs.OpSend}, 0); ready {
			q.machine.Placed(0)
		}
		q.mute = false
	}
}

// immOf returns the immediate data of a packet.
func (q *qp) immOf(p *packet) uint32 {
	if q.nic.f.hasBug(swapsImm) {
		return bits.ReverseBytes32(p.imm)
	}
	return p.imm
}

// storeLate stores the last segment of a WRITE after its completion. Without the bug it returns false.
func (q *qp) storeLate(mem [][]byte, p *packet) bool {
	if !q.nic.f.hasBug(lateContent) || p.op < verbs.OpWrite || p.off+p.n < p.total {
		return false
	}
	content := make([]byte, p.n)
	copyBuffers([][]byte{content}, 0, p.content.mem, p.off, p.n)
	to := mem[0][p.off:]
	time.AfterFunc(time.Millisecond, func() { copy(to, content) })
	return true
}
