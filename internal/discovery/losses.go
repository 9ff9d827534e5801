package discovery

// LossKind is a way in which packets are lost, or the sender has to wait. Each has its own cure.
type LossKind uint8

// The kinds.
const (
	// LostSent: packets to peers, or their acknowledgements, did not arrive in time.
	LostSent LossKind = iota + 1
	// LostReceived: packets of peers did not arrive, or in another order.
	LostReceived
	// LostBuffer: packets of peers arrived, and the receive buffer had no space.
	LostBuffer
	// LostDamaged: packets of peers arrived with a wrong checksum.
	LostDamaged
	// NotReady: a side had no receive posted, so the sender waits.
	NotReady
	// LostConnection: a queue pair failed after all retries.
	LostConnection
)

// LossKinds are all kinds.
var LossKinds = []LossKind{LostSent, LostReceived, LostBuffer, LostDamaged, NotReady, LostConnection}

// String is the kind as a label of metrics.
func (k LossKind) String() string {
	return [...]string{"", "sent", "received", "buffer_full", "damaged", "not_ready", "connection"}[min(k, LostConnection)]
}

// lossCounter is what a counter of a device means.
type lossCounter struct {
	kind LossKind
	text string
}

// lossCounters are the counters that mean loss, by the names that the drivers of the kernel
// (mlx5, mlx4, irdma, bnxt_re, hns, rxe), InfiniBand's port counters and roce have for them.
// Counters of congestion marks and pauses are none: they prevent loss.
var lossCounters = map[string]lossCounter{
	"packet_seq_err":                  {LostSent, "peers reported missing packets"},
	"rcvd_seq_err":                    {LostSent, "peers reported missing packets"},
	"seq_err_naks_rcvd":               {LostSent, "peers reported missing packets"},
	"implied_nak_seq_err":             {LostSent, "peers acknowledged packets behind a response that is missing"},
	"sq_num_oos":                      {LostSent, "peers reported missing packets"},
	"local_ack_timeout_err":           {LostSent, "acknowledgements were late"},
	"completer_retry_err":             {LostSent, "acknowledgements were late"},
	"to_retransmits":                  {LostSent, "acknowledgements were late"},
	"sq_num_to":                       {LostSent, "acknowledgements were late"},
	"roce_adp_retrans":                {LostSent, "packets were sent again"},
	"roce_adp_retrans_to":             {LostSent, "packets were sent again, and were late again"},
	"missing_resp":                    {LostSent, "responses were missing"},
	"port_xmit_discards":              {LostSent, "the port discarded packets to send"},
	"out_of_sequence":                 {LostReceived, "packets arrived out of order"},
	"out_of_seq_request":              {LostReceived, "packets arrived out of order"},
	"rq_num_oos":                      {LostReceived, "packets arrived out of order"},
	"oos_drop_count":                  {LostReceived, "packets arrived out of order and were dropped"},
	"dropped_buffer_full":             {LostBuffer, "the socket's receive buffer was full"},
	"excessive_buffer_overrun_errors": {LostBuffer, "the port's receive buffer was full"},
	"dropped_icrc":                    {LostDamaged, "packets had a wrong ICRC"},
	"rx_icrc_encapsulated":            {LostDamaged, "packets had a wrong ICRC"},
	"port_rcv_errors":                 {LostDamaged, "the port received damaged packets"},
	"symbol_error":                    {LostDamaged, "the cable damages symbols"},
	"rnr_nak_retry_err":               {NotReady, "peers had no receive posted"},
	"rcvd_rnr_err":                    {NotReady, "peers had no receive posted"},
	"rnr_naks_rcvd":                   {NotReady, "peers had no receive posted"},
	"sq_num_rnr":                      {NotReady, "peers had no receive posted"},
	"send_rnr_err":                    {NotReady, "no receive was posted for packets of peers"},
	"out_of_buffer":                   {NotReady, "no receive was posted for packets of peers"},
	"retry_exceeded_err":              {LostConnection, "connections broke after all retries"},
	"retry_rnr_exceeded_err":          {LostConnection, "connections broke since a peer had no receive posted"},
	"max_retry_exceeded":              {LostConnection, "connections broke after all retries"},
	"req_transport_retries_exceeded":  {LostConnection, "connections broke after all retries"},
}

// LossCounter returns what a counter of Counters, or of verbs.CounterReader, means. ok is false
// if it does not mean loss.
func LossCounter(name string) (kind LossKind, text string, ok bool) {
	c, ok := lossCounters[name]
	return c.kind, c.text, ok
}

// Losses are the losses of a port in some time, as its counters show them.
type Losses struct {
	// Sent and Received are the packets in that time; 0 if no counter has them.
	Sent, Received uint64
	// By counts the losses of each kind. One loss may be of many packets.
	By map[LossKind]uint64
	// Names are the counters that have changed.
	Names map[string]uint64
}

// LossesBetween compares the counters of a port at two times; a nil before means since they
// started. A counter that went back was reset, and counts from 0. A counter that another before lacks
// could not be read then, and does not count.
func LossesBetween(before, after map[string]uint64) Losses {
	delta := func(name string) uint64 {
		if was := before[name]; was <= after[name] {
			return after[name] - was
		}
		return after[name]
	}
	both := func(name string) bool {
		_, was := before[name]
		_, is := after[name]
		return is && (was || before == nil)
	}
	first := func(names ...string) uint64 {
		for _, n := range names {
			if both(n) {
				return delta(n)
			}
		}
		return 0
	}
	l := Losses{
		Sent: first("sent_pkts", "tx_pkts", "port_xmit_packets"), Received: first("rcvd_pkts", "rx_pkts", "port_rcv_packets"),
		By: make(map[LossKind]uint64), Names: make(map[string]uint64),
	}
	for name := range after {
		if c, ok := lossCounters[name]; ok && both(name) {
			if n := delta(name); n > 0 {
				l.By[c.kind] += n
				l.Names[name] = n
			}
		}
	}
	if _, roce := after["resent_pkts"]; !roce { // rxe counts a retry for each NAK, too (rxe_comp.c)
		l.By[LostSent] -= min(l.Names["rcvd_seq_err"], l.Names["completer_retry_err"])
	}
	if l.By[LostSent] == 0 {
		delete(l.By, LostSent)
	}
	return l
}

// Of returns the packets of which a kind's losses are a part; 0 if that is not known.
func (l Losses) Of(kind LossKind) uint64 {
	if kind == LostReceived || kind == LostBuffer || kind == LostDamaged {
		return l.Received
	}
	return l.Sent
}

// Rate returns the losses of a kind for each packet, at most 1; 0 if the number of packets is not
// known.
func (l Losses) Rate(kind LossKind) float64 {
	if l.Of(kind) == 0 {
		return 0
	}
	return min(1, float64(l.By[kind])/float64(l.Of(kind)))
}

// LossDo returns what to do about losses of a kind. software is set for devices without hardware,
// infiniband for ports with that link layer.
func LossDo(kind LossKind, software, infiniband bool) string {
	switch kind {
	case LostBuffer:
		if software {
			return "let peers send less at once than the buffer holds: sysctl -w net.core.rmem_max=4194304 on this host, and restart; or give this process more processor time"
		}
	case LostDamaged:
		return "replace the cable or transceiver that damages packets: compare the error counters of both ends (ethtool -S, ibqueryerrors)"
	case NotReady:
		return "the receiving process does not keep up: give it more processor time, or raise the setting rdma.queue-depth there"
	}
	switch {
	case software:
		return "find where packets are lost (ip -s link, tc -s qdisc, the counters of the switches), and run tryst doctor --transport verbs with --cluster or --from; while it lasts, the setting transport grpc may be faster: TCP sends again only what is lost"
	case infiniband:
		return "find the link that loses packets: ibqueryerrors, perfquery"
	}
	return "make the network lossless for RoCE: enable PFC for one priority on the NICs and all switches between them, or ECN (DCQCN); choose the setting rdma.traffic-class for that priority"
}
