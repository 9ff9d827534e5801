// A libibverbs without devices, for tests of what a real one does rarely. It has
// fake0 with two ports. Work requests complete at once and move nothing; which
// call fails, and how, the tests say by the environment:
//
//   FAKE_FAIL=name=errno   ibv_NAME fails with that number, in its own convention
//   FAKE_DEVICES=0         there are none
//   FAKE_STATE=n           ibv_query_qp says so, from the first modify on
//
// A work request whose wr_id has bits above 32 fails with what they say: the
// error number, negative with FAKE_NEGATIVE, and without bad_wr with FAKE_NO_BAD.
// A receive with wr_id FAKE_EVENT+n makes the asynchronous event n.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <infiniband/verbs.h>
#undef ibv_query_port
#undef ibv_reg_mr

#define FAKE_NEGATIVE (1ull << 62)
#define FAKE_NO_BAD (1ull << 61)
#define FAKE_EVENT (1ull << 60)
#define ROOM 4096

struct fake_cq {
	struct ibv_cq cq;
	struct ibv_wc wcs[ROOM];
	unsigned head, tail, armed, reported, acked;
	int wake; // the channel's writing end
};

struct fake_channel {
	struct ibv_comp_channel channel;
	struct fake_cq *cq;
	int wake;
};

struct fake_context {
	struct ibv_context context;
	int wake;
	struct ibv_qp *last_qp;
};

struct fake_qp {
	struct ibv_qp qp;
	int modified;
};

static struct ibv_device device = {.name = "fake0", .dev_name = "uverbs7"};
static struct ibv_device *devices[] = {&device, NULL};

// The error number with which the function is to fail, 0 for none.
static int failing(const char *name)
{
	const char *f = getenv("FAKE_FAIL");
	size_t n = strlen(name);
	return f && !strncmp(f, name, n) && f[n] == '=' ? atoi(f + n + 1) : 0;
}

#define FAIL_POINTER(name) if ((errno = failing(name))) return NULL
#define FAIL_NUMBER(name) { int e = failing(name); if (e) return e; }
#define FAIL_MINUS_ONE(name) if ((errno = failing(name))) return -1

static int complete(struct fake_cq *q, struct ibv_wc wc)
{
	if (q->tail - q->head == ROOM)
		return -1;
	q->wcs[q->tail++ % ROOM] = wc;
	if (q->armed) {
		q->armed = 0;
		return write(q->wake, "e", 1) == 1 ? 0 : -1;
	}
	return 0;
}

#define FAILURE(wr, bad)                                                             \
	if (((wr)->wr_id & ~FAKE_EVENT) >> 32) {                                    \
		if (!((wr)->wr_id & FAKE_NO_BAD))                                    \
			*(bad) = (wr);                                               \
		int e = (int)((wr)->wr_id >> 32 & 0xffff);                           \
		return (wr)->wr_id & FAKE_NEGATIVE ? -e : e;                         \
	}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	for (; wr; wr = wr->next) {
		FAILURE(wr, bad)
		struct ibv_wc wc = {.wr_id = wr->wr_id, .qp_num = qp->qp_num, .imm_data = wr->imm_data, .wc_flags = IBV_WC_WITH_IMM};
		for (int i = 0; i < wr->num_sge; i++)
			wc.byte_len += wr->sg_list[i].length;
		if (wr->opcode != IBV_WR_SEND)
			wc.opcode = IBV_WC_RDMA_WRITE;
		if (wr->send_flags & IBV_SEND_FENCE)
			wc.status = IBV_WC_RETRY_EXC_ERR, wc.vendor_err = 129; // a way to ask for a failure
		if (wr->send_flags & IBV_SEND_SIGNALED)
			complete((struct fake_cq *)qp->send_cq, wc);
	}
	return 0;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	for (; wr; wr = wr->next) {
		if (wr->wr_id & FAKE_EVENT) {
			struct fake_context *c = (struct fake_context *)qp->context;
			unsigned char event = (unsigned char)wr->wr_id;
			c->last_qp = qp;
			if (write(c->wake, &event, 1) != 1)
				return errno;
			continue;
		}
		FAILURE(wr, bad)
	}
	return 0;
}

static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	struct fake_cq *q = (struct fake_cq *)cq;
	int i, e = failing("poll_cq");
	if (e)
		return -e;
	for (i = 0; i < n && q->head != q->tail; i++)
		wc[i] = q->wcs[q->head++ % ROOM];
	return i;
}

static int req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	(void)solicited_only;
	FAIL_NUMBER("req_notify_cq")
	((struct fake_cq *)cq)->armed = 1;
	return 0;
}

struct ibv_device **ibv_get_device_list(int *n)
{
	FAIL_POINTER("get_device_list");
	errno = EAGAIN; // left behind, as the real one may
	int none = getenv("FAKE_DEVICES") != NULL;
	*n = !none;
	return devices + none;
}

void ibv_free_device_list(struct ibv_device **list) { (void)list; }
const char *ibv_get_device_name(struct ibv_device *d) { return d->name; }
__be64 ibv_get_device_guid(struct ibv_device *d) { (void)d; return 0x0807060504030201; }

struct ibv_context *ibv_open_device(struct ibv_device *d)
{
	FAIL_POINTER("open_device");
	struct fake_context *c = calloc(1, sizeof *c);
	int fds[2];
	if (!c || pipe2(fds, O_CLOEXEC))
		abort();
	c->context.device = d;
	c->context.async_fd = fds[0];
	c->wake = fds[1];
	c->context.ops.post_send = post_send;
	c->context.ops.post_recv = post_recv;
	c->context.ops.poll_cq = poll_cq;
	c->context.ops.req_notify_cq = req_notify_cq;
	return &c->context;
}

int ibv_close_device(struct ibv_context *c)
{
	FAIL_MINUS_ONE("close_device");
	close(c->async_fd);
	close(((struct fake_context *)c)->wake);
	free(c);
	return 0;
}

int ibv_query_device(struct ibv_context *c, struct ibv_device_attr *a)
{
	(void)c;
	FAIL_NUMBER("query_device")
	*a = (struct ibv_device_attr){
		.fw_ver = "1.2.3", .vendor_id = 0x2c9, .max_mr_size = 1 << 30, .max_qp = 10, .max_qp_wr = 1024, .max_sge = 8, .max_cq = 11,
		.max_cqe = 2048, .max_mr = 12, .max_pd = 13, .max_qp_rd_atom = 16, .atomic_cap = IBV_ATOMIC_HCA, .phys_port_cnt = 2,
	};
	return 0;
}

int ibv_query_port(struct ibv_context *c, uint8_t port, struct _compat_ibv_port_attr *out)
{
	(void)c;
	FAIL_NUMBER("query_port")
	struct ibv_port_attr *a = (void *)out;
	a->state = port == 1 ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
	a->max_mtu = IBV_MTU_4096;
	a->active_mtu = IBV_MTU_1024;
	a->gid_tbl_len = 4;
	a->max_msg_sz = 1u << 31;
	a->lid = port == 1 ? 0 : 7;
	a->pkey_tbl_len = 3;
	a->link_layer = IBV_LINK_LAYER_ETHERNET;
	return 0;
}

// Entries 0 and 2 of port 1, and 1 of port 2.
static int has_gid(unsigned port, int index) { return port == 1 ? index == 0 || index == 2 : index == 1; }

int ibv_query_gid(struct ibv_context *c, uint8_t port, int index, union ibv_gid *gid)
{
	(void)c;
	FAIL_MINUS_ONE("query_gid");
	memset(gid, 0, sizeof *gid);
	if (has_gid(port, index))
		gid->raw[0] = 0xfe, gid->raw[14] = port, gid->raw[15] = (uint8_t)index;
	return 0;
}

ssize_t _ibv_query_gid_table(struct ibv_context *c, struct ibv_gid_entry *e, size_t max, uint32_t flags, size_t size)
{
	size_t n = 0;
	int fail = failing("query_gid_table");
	if (flags || size != sizeof *e)
		return -EINVAL;
	if (fail)
		return -fail;
	for (unsigned port = 1; port <= 2; port++)
		for (int i = 0; i < 4; i++)
			if (has_gid(port, i) && n < max) {
				ibv_query_gid(c, (uint8_t)port, i, &e[n].gid);
				e[n].port_num = port;
				e[n].gid_index = (uint32_t)i;
				e[n++].gid_type = i == 0 ? IBV_GID_TYPE_ROCE_V1 : IBV_GID_TYPE_ROCE_V2;
			}
	return (ssize_t)n;
}

int ibv_get_async_event(struct ibv_context *c, struct ibv_async_event *e)
{
	unsigned char event;
	FAIL_MINUS_ONE("get_async_event");
	if (read(c->async_fd, &event, 1) != 1)
		return -1;
	e->event_type = event;
	if (event >= IBV_EVENT_PORT_ACTIVE)
		e->element.port_num = 2;
	else
		e->element.qp = ((struct fake_context *)c)->last_qp;
	return 0;
}

void ibv_ack_async_event(struct ibv_async_event *e) { (void)e; }

struct ibv_pd *ibv_alloc_pd(struct ibv_context *c)
{
	FAIL_POINTER("alloc_pd");
	struct ibv_pd *pd = calloc(1, sizeof *pd);
	pd->context = c;
	return pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	FAIL_NUMBER("dealloc_pd")
	free(pd);
	return 0;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t n, int access)
{
	FAIL_POINTER("reg_mr");
	struct ibv_mr *mr = calloc(1, sizeof *mr);
	mr->pd = pd;
	mr->addr = addr;
	mr->length = n;
	mr->lkey = (uint32_t)access; // what the tests look at
	mr->rkey = 1;
	return mr;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t n, uint64_t iova, unsigned access)
{
	struct ibv_mr *mr = iova == (uintptr_t)addr ? ibv_reg_mr(pd, addr, n, (int)access) : NULL;
	if (mr)
		mr->rkey = 2;
	return mr;
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	FAIL_NUMBER("dereg_mr")
	free(mr);
	return 0;
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *c)
{
	FAIL_POINTER("create_comp_channel");
	struct fake_channel *h = calloc(1, sizeof *h);
	int fds[2];
	if (pipe2(fds, O_CLOEXEC))
		abort();
	h->channel.context = c;
	h->channel.fd = fds[0];
	h->wake = fds[1];
	return &h->channel;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *h)
{
	FAIL_NUMBER("destroy_comp_channel")
	if (h->refcnt)
		return EBUSY; // as rdma-core
	close(h->fd);
	close(((struct fake_channel *)h)->wake);
	free(h);
	return 0;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *c, int cqe, void *cq_context, struct ibv_comp_channel *h, int vector)
{
	(void)cq_context, (void)vector;
	FAIL_POINTER("create_cq");
	struct fake_cq *q = calloc(1, sizeof *q);
	q->cq.context = c;
	q->cq.cqe = cqe + 1;
	q->wake = ((struct fake_channel *)h)->wake;
	q->cq.channel = h;
	h->refcnt++;
	((struct fake_channel *)h)->cq = q;
	return &q->cq;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
	struct fake_cq *q = (struct fake_cq *)cq;
	FAIL_NUMBER("destroy_cq")
	if (q->reported != q->acked)
		return ESTALE; // the real one waits for ever
	cq->channel->refcnt--;
	free(q);
	return 0;
}

int ibv_get_cq_event(struct ibv_comp_channel *h, struct ibv_cq **cq, void **cq_context)
{
	char event;
	(void)cq_context;
	FAIL_MINUS_ONE("get_cq_event");
	if (read(h->fd, &event, 1) != 1)
		return -1;
	((struct fake_channel *)h)->cq->reported++;
	*cq = &((struct fake_channel *)h)->cq->cq;
	return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned n) { ((struct fake_cq *)cq)->acked += n; }

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *a)
{
	FAIL_POINTER("create_qp");
	struct fake_qp *q = calloc(1, sizeof *q);
	q->qp.context = pd->context;
	q->qp.send_cq = a->send_cq;
	q->qp.recv_cq = a->recv_cq;
	q->qp.qp_num = 0x123456;
	a->cap.max_inline_data = (a->cap.max_inline_data + 63) / 64 * 64;
	return &q->qp;
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
	FAIL_NUMBER("destroy_qp")
	free(qp);
	return 0;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask)
{
	(void)mask;
	((struct fake_qp *)qp)->modified = 1;
	FAIL_NUMBER("modify_qp")
	qp->state = a->qp_state;
	return 0;
}

int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask, struct ibv_qp_init_attr *init)
{
	(void)mask, (void)init;
	FAIL_NUMBER("query_qp")
	const char *state = getenv("FAKE_STATE");
	a->qp_state = state && ((struct fake_qp *)qp)->modified ? (enum ibv_qp_state)atoi(state) : qp->state;
	return 0;
}
