package rc

import "github.com/tryst-rdma/tryst/verbs"

// PostSend posts work requests as verbs.QP does, and returns their number and bytes.
func (m *Machine) PostSend(wrs []verbs.SendWR) (n int, bytes uint64, err error) {
	const op = "post send"
	if err := m.Open(op); err != nil {
		return 0, 0, err
	}
	if m.state != verbs.StateRTS && m.state != verbs.StateErr {
		return 0, 0, m.errorf(op, verbs.ErrInvalid, "the queue pair is in %v; it can send only in RTS", m.state)
	}
	for i := range wrs {
		if err := m.checkSend(op, &wrs[i]); err != nil {
			return i, bytes, err
		}
		if m.posted-m.freed.Load() >= uint64(m.config.MaxSend) { //nolint:gosec // not negative
			return i, bytes, m.errorf(op, verbs.ErrQueueFull, "all %d slots of the send queue are taken", m.config.MaxSend)
		}
		bytes += m.addSend(&wrs[i])
	}
	return len(wrs), bytes, nil
}

// checkSend returns an error for a work request that is invalid in itself.
func (m *Machine) checkSend(op string, wr *verbs.SendWR) error {
	switch {
	case wr.Op > verbs.OpFetchAdd:
		return m.errorf(op, verbs.ErrInvalid, "unknown operation %d", wr.Op)
	case wr.Inline != nil && wr.Op >= verbs.OpRead:
		return m.errorf(op, verbs.ErrInvalid, "%v cannot be inline", wr.Op)
	case len(wr.Inline) > m.config.MaxInline:
		return m.errorf(op, verbs.ErrInvalid, "%d bytes inline: the limit is %d", len(wr.Inline), m.config.MaxInline)
	case len(wr.SGL) > m.config.MaxSendSGE:
		return m.errorf(op, verbs.ErrInvalid, "%d scatter/gather elements: the limit is %d", len(wr.SGL), m.config.MaxSendSGE)
	case m.config.MaxPost > 0 && wr.Len() > m.config.MaxPost:
		return m.errorf(op, verbs.ErrInvalid, "a message of %d bytes: the limit is %d", wr.Len(), m.config.MaxPost)
	case wr.Op < verbs.OpCompareSwap:
		return nil
	case m.config.NoAtomics:
		return m.errorf(op, verbs.ErrInvalid, "the device does not support atomics")
	case len(wr.SGL) != 1 || wr.SGL[0].Length != 8:
		return m.errorf(op, verbs.ErrInvalid, "%v needs one scatter/gather element of 8 bytes", wr.Op)
	case wr.RemoteAddr%8 != 0:
		return m.errorf(op, verbs.ErrInvalid, "%v needs an address that is a multiple of 8", wr.Op)
	}
	return nil
}

// addSend adds a work request to the send queue, and returns its length in bytes.
func (m *Machine) addSend(wr *verbs.SendWR) uint64 {
	m.sends.Grow(m.freed.Load(), m.posted, m.config.MaxSend)
	w := m.sends.At(m.posted)
	w.WR = *wr
	w.WR.SGL, w.WR.Inline = nil, nil
	w.SGL, w.Inline = append(w.SGL[:0], wr.SGL...), append(w.Inline[:0], wr.Inline...)
	w.Length, w.IsInline, w.Got, w.done = wr.Len(), wr.Inline != nil, 0, !w.HasResponse()
	m.posted++
	if m.state == verbs.StateErr && !m.flushing {
		m.flush()
	}
	return w.Length
}

// PostRecv posts receives as verbs.QP does.
func (m *Machine) PostRecv(wrs []verbs.RecvWR) (int, error) {
	const op = "post receive"
	if err := m.Open(op); err != nil {
		return 0, err
	}
	if m.state == verbs.StateReset {
		return 0, m.errorf(op, verbs.ErrInvalid, "the queue pair is in RESET; receives can be posted from INIT on")
	}
	for i := range wrs {
		if len(wrs[i].SGL) > m.config.MaxRecvSGE {
			return i, m.errorf(op, verbs.ErrInvalid, "%d scatter/gather elements: the limit is %d", len(wrs[i].SGL), m.config.MaxRecvSGE)
		}
		freed := m.recvFreed.Load()
		if m.recvPosted-freed >= uint64(m.config.MaxRecv) { //nolint:gosec // not negative
			return i, m.errorf(op, verbs.ErrQueueFull, "all %d slots of the receive queue are taken", m.config.MaxRecv)
		}
		m.recvs.Grow(freed, m.recvPosted, m.config.MaxRecv)
		w := m.recvs.At(m.recvPosted)
		w.id, w.sgl, w.length = wrs[i].ID, append(w.sgl[:0], wrs[i].SGL...), wrs[i].Len()
		m.recvPosted++
		if m.state == verbs.StateErr && !m.flushing {
			m.flush()
		}
	}
	return len(wrs), nil
}

// PostSendAndPoll implements verbs.QP for queue pairs that have no faster way.
func PostSendAndPoll(q verbs.QP, wrs []verbs.SendWR, c verbs.CQ, wcs []verbs.WC) (posted, polled int, err error) {
	posted, err = q.PostSend(wrs)
	polled, pollErr := c.Poll(wcs)
	if err == nil {
		err = pollErr
	}
	return posted, polled, err
}
