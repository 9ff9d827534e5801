//go:build linux && cgo

package libibverbs

import (
	"testing"
	"unsafe"

	"github.com/tryst-rdma/tryst/verbs"
)

// facts are the header's, which every test of this file needs.
func facts(t *testing.T) map[string]int64 {
	f := headerFacts()
	if len(f) == 0 {
		t.Skip("built without infiniband/verbs.h: nothing to compare with")
	}
	return f
}

func compare(t *testing.T, header map[string]int64, want map[string]int64) {
	t.Helper()
	for name, n := range want {
		if got, ok := header[name]; !ok {
			t.Errorf("the shim does not tell %s", name)
		} else if got != n {
			t.Errorf("%s is %d in C and %d here", name, got, n)
		}
	}
}

func TestGoAndCSeeTheSameDescriptors(t *testing.T) {
	var (
		g sgeDescriptor
		s sendDescriptor
		r recvDescriptor
		c completionDescriptor
	)
	header := facts(t)
	compare(t, header, map[string]int64{
		"sizeof shim_sge": int64(unsafe.Sizeof(g)), "shim_sge.addr": int64(unsafe.Offsetof(g.addr)),
		"shim_sge.length": int64(unsafe.Offsetof(g.length)), "shim_sge.lkey": int64(unsafe.Offsetof(g.lkey)),
		"sizeof shim_send_wr": int64(unsafe.Sizeof(s)), "shim_send_wr.wr_id": int64(unsafe.Offsetof(s.wr_id)),
		"shim_send_wr.remote_addr": int64(unsafe.Offsetof(s.remote_addr)), "shim_send_wr.compare_add": int64(unsafe.Offsetof(s.compare_add)),
		"shim_send_wr.swap": int64(unsafe.Offsetof(s.swap)), "shim_send_wr.rkey": int64(unsafe.Offsetof(s.rkey)),
		"shim_send_wr.opcode": int64(unsafe.Offsetof(s.opcode)), "shim_send_wr.send_flags": int64(unsafe.Offsetof(s.send_flags)),
		"shim_send_wr.imm_be": int64(unsafe.Offsetof(s.imm_be)), "shim_send_wr.first_sge": int64(unsafe.Offsetof(s.first_sge)),
		"shim_send_wr.num_sge": int64(unsafe.Offsetof(s.num_sge)), "shim_send_wr.atomic": int64(unsafe.Offsetof(s.atomic)),
		"sizeof shim_recv_wr": int64(unsafe.Sizeof(r)), "shim_recv_wr.wr_id": int64(unsafe.Offsetof(r.wr_id)),
		"shim_recv_wr.first_sge": int64(unsafe.Offsetof(r.first_sge)), "shim_recv_wr.num_sge": int64(unsafe.Offsetof(r.num_sge)),
		"sizeof shim_wc": int64(unsafe.Sizeof(c)), "shim_wc.wr_id": int64(unsafe.Offsetof(c.wr_id)),
		"shim_wc.status": int64(unsafe.Offsetof(c.status)), "shim_wc.opcode": int64(unsafe.Offsetof(c.opcode)),
		"shim_wc.wc_flags": int64(unsafe.Offsetof(c.wc_flags)), "shim_wc.vendor_err": int64(unsafe.Offsetof(c.vendor_err)),
		"shim_wc.byte_len": int64(unsafe.Offsetof(c.byte_len)), "shim_wc.imm_be": int64(unsafe.Offsetof(c.imm_be)),
		"shim_wc.qp_num": int64(unsafe.Offsetof(c.qp_num)),
	})
	// A page of descriptors, and arrays that follow one another without holes.
	compare(t, header, map[string]int64{"sizeof shim_sge": 16, "sizeof shim_send_wr": 64, "sizeof shim_recv_wr": 16, "sizeof shim_wc": 40})
	if ringWRs > header["SHIM_BATCH"] || pollBatch > header["SHIM_BATCH"] {
		t.Errorf("batches of %d and %d are more than the shim takes, %d", ringWRs, pollBatch, header["SHIM_BATCH"])
	}
}

func TestNumbersAreTheHeaders(t *testing.T) {
	header := facts(t)
	compare(t, header, map[string]int64{
		"IBV_SEND_FENCE": ibvSendFence, "IBV_SEND_SIGNALED": ibvSendSignaled, "IBV_SEND_SOLICITED": ibvSendSolicited,
		"IBV_SEND_INLINE": ibvSendInline, "IBV_WC_WITH_IMM": ibvWCWithImm, "IBV_ATOMIC_NONE": ibvAtomicNone,
		"IBV_QP_STATE": ibvQPState, "IBV_QP_ACCESS_FLAGS": ibvQPAccessFlags, "IBV_QP_PKEY_INDEX": ibvQPPKeyIndex,
		"IBV_QP_PORT": ibvQPPort, "IBV_QP_AV": ibvQPAV, "IBV_QP_PATH_MTU": ibvQPPathMTU, "IBV_QP_TIMEOUT": ibvQPTimeout,
		"IBV_QP_RETRY_CNT": ibvQPRetryCnt, "IBV_QP_RNR_RETRY": ibvQPRNRRetry, "IBV_QP_RQ_PSN": ibvQPRQPSN,
		"IBV_QP_MAX_QP_RD_ATOMIC": ibvQPMaxQPRDAtomic, "IBV_QP_MIN_RNR_TIMER": ibvQPMinRNRTimer, "IBV_QP_SQ_PSN": ibvQPSQPSN,
		"IBV_QP_MAX_DEST_RD_ATOMIC": ibvQPMaxDestRDAtomic, "IBV_QP_DEST_QPN": ibvQPDestQPN,
		"IBV_WR_SEND": int64(wrOpcodes[verbs.OpSend]), "IBV_WR_SEND_WITH_IMM": int64(wrOpcodes[verbs.OpSendImm]),
		"IBV_WR_RDMA_WRITE": int64(wrOpcodes[verbs.OpWrite]), "IBV_WR_RDMA_WRITE_WITH_IMM": int64(wrOpcodes[verbs.OpWriteImm]),
		"IBV_WR_RDMA_READ": int64(wrOpcodes[verbs.OpRead]), "IBV_WR_ATOMIC_CMP_AND_SWP": int64(wrOpcodes[verbs.OpCompareSwap]),
		"IBV_WR_ATOMIC_FETCH_AND_ADD": int64(wrOpcodes[verbs.OpFetchAdd]),
		"IBV_ACCESS_LOCAL_WRITE":      int64(accessBits(verbs.AccessLocalWrite)),
		"IBV_ACCESS_REMOTE_WRITE":     int64(accessBits(verbs.AccessRemoteWrite)),
		"IBV_ACCESS_REMOTE_READ":      int64(accessBits(verbs.AccessRemoteRead)),
		"IBV_ACCESS_REMOTE_ATOMIC":    int64(accessBits(verbs.AccessRemoteAtomic)),
		"IBV_ACCESS_MW_BIND":          int64(accessBits(verbs.AccessBindWindow)),
		"IBV_WC_SUCCESS":              int64(verbs.StatusOK), "IBV_WC_LOC_LEN_ERR": int64(verbs.StatusLocalLength),
		"IBV_WC_LOC_QP_OP_ERR": int64(verbs.StatusLocalQPOperation), "IBV_WC_LOC_EEC_OP_ERR": int64(verbs.StatusLocalEEC),
		"IBV_WC_LOC_PROT_ERR": int64(verbs.StatusLocalProtection), "IBV_WC_WR_FLUSH_ERR": int64(verbs.StatusFlushed),
		"IBV_WC_MW_BIND_ERR": int64(verbs.StatusWindowBind), "IBV_WC_BAD_RESP_ERR": int64(verbs.StatusBadResponse),
		"IBV_WC_LOC_ACCESS_ERR": int64(verbs.StatusLocalAccess), "IBV_WC_REM_INV_REQ_ERR": int64(verbs.StatusRemoteInvalidRequest),
		"IBV_WC_REM_ACCESS_ERR": int64(verbs.StatusRemoteAccess), "IBV_WC_REM_OP_ERR": int64(verbs.StatusRemoteOperation),
		"IBV_WC_RETRY_EXC_ERR": int64(verbs.StatusRetryExceeded), "IBV_WC_RNR_RETRY_EXC_ERR": int64(verbs.StatusRNRRetryExceeded),
		"IBV_WC_LOC_RDD_VIOL_ERR": int64(verbs.StatusLocalRDDViolation), "IBV_WC_REM_INV_RD_REQ_ERR": int64(verbs.StatusRemoteInvalidRD),
		"IBV_WC_REM_ABORT_ERR": int64(verbs.StatusRemoteAborted), "IBV_WC_INV_EECN_ERR": int64(verbs.StatusInvalidEEC),
		"IBV_WC_INV_EEC_STATE_ERR": int64(verbs.StatusInvalidEECState), "IBV_WC_FATAL_ERR": int64(verbs.StatusFatal),
		"IBV_WC_RESP_TIMEOUT_ERR": int64(verbs.StatusResponseTimeout), "IBV_WC_GENERAL_ERR": int64(verbs.StatusGeneral),
		"IBV_QPS_RESET": int64(verbs.StateReset), "IBV_QPS_INIT": int64(verbs.StateInit), "IBV_QPS_RTR": int64(verbs.StateRTR),
		"IBV_QPS_RTS": int64(verbs.StateRTS), "IBV_QPS_SQD": int64(verbs.StateSQD), "IBV_QPS_SQE": int64(verbs.StateSQE),
		"IBV_QPS_ERR":  int64(verbs.StateErr),
		"IBV_PORT_NOP": int64(verbs.PortNop), "IBV_PORT_DOWN": int64(verbs.PortDown), "IBV_PORT_INIT": int64(verbs.PortInit),
		"IBV_PORT_ARMED": int64(verbs.PortArmed), "IBV_PORT_ACTIVE": int64(verbs.PortActive), "IBV_PORT_ACTIVE_DEFER": int64(verbs.PortActiveDefer),
		"IBV_LINK_LAYER_UNSPECIFIED": int64(verbs.LinkUnspecified), "IBV_LINK_LAYER_INFINIBAND": int64(verbs.LinkInfiniBand),
		"IBV_LINK_LAYER_ETHERNET": int64(verbs.LinkEthernet),
		"IBV_MTU_256":             int64(mtuNumber(verbs.MTU256)), "IBV_MTU_512": int64(mtuNumber(verbs.MTU512)), "IBV_MTU_1024": int64(mtuNumber(verbs.MTU1024)),
		"IBV_MTU_2048": int64(mtuNumber(verbs.MTU2048)), "IBV_MTU_4096": int64(mtuNumber(verbs.MTU4096)),
	})
	if relaxed, ok := header["IBV_ACCESS_RELAXED_ORDERING"]; ok && relaxed != ibvAccessRelaxedOrdering {
		t.Errorf("IBV_ACCESS_RELAXED_ORDERING is %#x", relaxed)
	}
	for name, want := range map[string]verbs.WCOp{
		"IBV_WC_SEND": verbs.WCSend, "IBV_WC_RDMA_WRITE": verbs.WCWrite, "IBV_WC_RDMA_READ": verbs.WCRead, "IBV_WC_COMP_SWAP": verbs.WCAtomic,
		"IBV_WC_FETCH_ADD": verbs.WCAtomic, "IBV_WC_RECV": verbs.WCRecv, "IBV_WC_RECV_RDMA_WITH_IMM": verbs.WCRecvWrite,
	} {
		if got := wcOp(uint32(header[name])); got != want {
			t.Errorf("%s is taken as %v", name, got)
		}
	}
	for name, want := range map[string]verbs.EventKind{
		"IBV_EVENT_CQ_ERR": verbs.EventCQError, "IBV_EVENT_QP_FATAL": verbs.EventQPFatal, "IBV_EVENT_QP_REQ_ERR": verbs.EventQPRequest,
		"IBV_EVENT_QP_ACCESS_ERR": verbs.EventQPAccess, "IBV_EVENT_COMM_EST": verbs.EventCommEstablished,
		"IBV_EVENT_QP_LAST_WQE_REACHED": verbs.EventLastWQEReached, "IBV_EVENT_DEVICE_FATAL": verbs.EventDeviceFatal,
		"IBV_EVENT_PORT_ACTIVE": verbs.EventPortActive, "IBV_EVENT_PORT_ERR": verbs.EventPortDown, "IBV_EVENT_GID_CHANGE": verbs.EventGIDChange,
		"IBV_EVENT_LID_CHANGE": verbs.EventLIDChange, "IBV_EVENT_PKEY_CHANGE": verbs.EventPKeyChange, "IBV_EVENT_SM_CHANGE": verbs.EventSMChange,
		"IBV_EVENT_CLIENT_REREGISTER": verbs.EventClientReregister,
	} {
		if got := eventKinds[uint32(header[name])]; got != want {
			t.Errorf("%s is taken as %v", name, got)
		}
	}
	for _, m := range []verbs.MTU{verbs.MTU256, verbs.MTU512, verbs.MTU1024, verbs.MTU2048, verbs.MTU4096} {
		if got := mtuOf(mtuNumber(m)); got != m {
			t.Errorf("MTU %d comes back as %d", m, got)
		}
	}
	if mtuOf(0) != 0 || mtuOf(6) != 0 {
		t.Error("a number that is no MTU is one")
	}
}
