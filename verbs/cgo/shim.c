// The shim where <infiniband/verbs.h> is there; shim_absent.c is the other case.
// SHIM_NO_HEADERS builds as if it were not; with SHIM_HEADERS it must be, so that
// Go's cache cannot give out what was built before it came.

#define _GNU_SOURCE // dlvsym

#if !defined(SHIM_NO_HEADERS) && __has_include(<infiniband/verbs.h>)

#include "shim.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include <infiniband/verbs.h>

_Static_assert(sizeof(shim_sge) == sizeof(struct ibv_sge) &&
		       offsetof(shim_sge, addr) == offsetof(struct ibv_sge, addr) &&
		       offsetof(shim_sge, length) == offsetof(struct ibv_sge, length) &&
		       offsetof(shim_sge, lkey) == offsetof(struct ibv_sge, lkey),
	       "the library reads the elements of a work request where Go wrote them");
_Static_assert(sizeof(((struct ibv_device_attr *)0)->fw_ver) == sizeof(((shim_device_attr *)0)->fw_ver), "fw_ver");
_Static_assert(sizeof(union ibv_gid) == 16, "a GID is 16 bytes");

// The functions that every libibverbs.so.1 has, with the version at which they
// are what the header declares: those that the library's second ABI (2006)
// changed exist at IBVERBS_1.0 too, for other structures. post_send, post_recv,
// poll_cq and req_notify_cq are no symbols: the header calls them through
// context->ops.
#define REQUIRED(f)                             \
	f(get_device_list, "IBVERBS_1.1")       \
	f(free_device_list, "IBVERBS_1.1")      \
	f(get_device_name, "IBVERBS_1.1")       \
	f(get_device_guid, "IBVERBS_1.1")       \
	f(open_device, "IBVERBS_1.1")           \
	f(close_device, "IBVERBS_1.1")          \
	f(query_device, "IBVERBS_1.1")          \
	f(query_port, "IBVERBS_1.1")            \
	f(query_gid, "IBVERBS_1.1")             \
	f(get_async_event, "IBVERBS_1.1")       \
	f(ack_async_event, "IBVERBS_1.1")       \
	f(alloc_pd, "IBVERBS_1.1")              \
	f(dealloc_pd, "IBVERBS_1.1")            \
	f(reg_mr, "IBVERBS_1.1")                \
	f(dereg_mr, "IBVERBS_1.1")              \
	f(create_comp_channel, "IBVERBS_1.0")   \
	f(destroy_comp_channel, "IBVERBS_1.0")  \
	f(create_cq, "IBVERBS_1.1")             \
	f(destroy_cq, "IBVERBS_1.1")            \
	f(get_cq_event, "IBVERBS_1.1")          \
	f(ack_cq_events, "IBVERBS_1.1")         \
	f(create_qp, "IBVERBS_1.1")             \
	f(destroy_qp, "IBVERBS_1.1")            \
	f(modify_qp, "IBVERBS_1.1")             \
	f(query_qp, "IBVERBS_1.1")

struct shim_library {
#define MEMBER(name, version) __typeof__(&ibv_##name) name;
	REQUIRED(MEMBER)
#undef MEMBER
	// Optional, and declared here since older headers have them not.
	struct ibv_mr *(*reg_mr_iova2)(struct ibv_pd *, void *, size_t, uint64_t, unsigned); // IBVERBS_1.8
	ssize_t (*query_gid_table)(struct ibv_context *, shim_gid_entry *, size_t, uint32_t, size_t); // IBVERBS_1.11
};

static void *find(void *handle, const char *name, const char *version)
{
#ifdef __GLIBC__
	return dlvsym(handle, name, version);
#else
	(void)version; // Other C libraries have no versions, and one function of a name.
	return dlsym(handle, name);
#endif
}

shim_library *shim_open_library(const char *path, enum shim_open_error *error, char *why, size_t len)
{
	void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!handle) {
		const char *words = dlerror();
		*error = SHIM_OPEN_NO_LIBRARY;
		snprintf(why, len, "%s", words ? words : path);
		return NULL;
	}
	shim_library *lib = calloc(1, sizeof *lib);
	if (!lib) {
		*error = SHIM_OPEN_NO_MEMORY;
		dlclose(handle);
		return NULL;
	}
#define FIND(name, version)                                                \
	lib->name = (__typeof__(lib->name))find(handle, "ibv_" #name, version); \
	if (!lib->name) {                                                  \
		*error = SHIM_OPEN_NO_SYMBOL;                              \
		snprintf(why, len, "ibv_" #name "@" version);              \
		goto fail;                                                 \
	}
	REQUIRED(FIND)
#undef FIND
	lib->reg_mr_iova2 = (__typeof__(lib->reg_mr_iova2))find(handle, "ibv_reg_mr_iova2", "IBVERBS_1.8");
	lib->query_gid_table = (__typeof__(lib->query_gid_table))find(handle, "_ibv_query_gid_table", "IBVERBS_1.11");
	*error = SHIM_OPEN_OK;
	return lib; // The handle is kept: the library does not like to be unloaded.
fail:
	free(lib);
	dlclose(handle);
	return NULL;
}

void shim_forget_optional(shim_library *lib)
{
	lib->reg_mr_iova2 = NULL;
	lib->query_gid_table = NULL;
}

// Implements: struct ibv_device **ibv_get_device_list(int *num_devices)
struct ibv_device **shim_get_device_list(shim_library *lib, int *num_devices)
{
	return lib->get_device_list(num_devices);
}

// Implements: void ibv_free_device_list(struct ibv_device **list)
void shim_free_device_list(shim_library *lib, struct ibv_device **list)
{
	lib->free_device_list(list);
}

struct ibv_device *shim_device_at(struct ibv_device **list, int i)
{
	return list[i];
}

// Implements: const char *ibv_get_device_name(struct ibv_device *device)
const char *shim_get_device_name(shim_library *lib, struct ibv_device *device)
{
	return lib->get_device_name(device);
}

const char *shim_device_dev_name(struct ibv_device *device)
{
	return device->dev_name;
}

// Implements: __be64 ibv_get_device_guid(struct ibv_device *device)
uint64_t shim_get_device_guid(shim_library *lib, struct ibv_device *device)
{
	return lib->get_device_guid(device);
}

// Implements: struct ibv_context *ibv_open_device(struct ibv_device *device)
struct ibv_context *shim_open_device(shim_library *lib, struct ibv_device *device)
{
	return lib->open_device(device);
}

// Implements: int ibv_close_device(struct ibv_context *context)
int shim_close_device(shim_library *lib, struct ibv_context *context)
{
	return lib->close_device(context);
}

int shim_async_fd(struct ibv_context *context)
{
	return context->async_fd;
}

// Implements: int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *device_attr)
int shim_query_device(shim_library *lib, struct ibv_context *context, shim_device_attr *attr)
{
	struct ibv_device_attr a;
	memset(&a, 0, sizeof a);
	int rc = lib->query_device(context, &a);
	memcpy(attr->fw_ver, a.fw_ver, sizeof attr->fw_ver);
	attr->max_mr_size = a.max_mr_size;
	attr->vendor_id = a.vendor_id;
	attr->max_qp = a.max_qp;
	attr->max_qp_wr = a.max_qp_wr;
	attr->max_sge = a.max_sge;
	attr->max_cq = a.max_cq;
	attr->max_cqe = a.max_cqe;
	attr->max_mr = a.max_mr;
	attr->max_pd = a.max_pd;
	attr->max_qp_rd_atom = a.max_qp_rd_atom;
	attr->atomic_cap = a.atomic_cap;
	attr->phys_port_cnt = a.phys_port_cnt;
	return rc;
}

// Implements: int ibv_query_port(struct ibv_context *context, uint8_t port_num, struct ibv_port_attr *port_attr)
//
// By the symbol, as the header's own function would need it linked: it fills
// the structure up to link_layer and flags, which is all that is used.
int shim_query_port(shim_library *lib, struct ibv_context *context, uint8_t port, shim_port_attr *attr)
{
	struct ibv_port_attr a;
	memset(&a, 0, sizeof a);
	int rc = lib->query_port(context, port, (void *)&a);
	attr->max_msg_sz = a.max_msg_sz;
	attr->gid_tbl_len = a.gid_tbl_len;
	attr->state = a.state;
	attr->max_mtu = a.max_mtu;
	attr->active_mtu = a.active_mtu;
	attr->lid = a.lid;
	attr->pkey_tbl_len = a.pkey_tbl_len;
	attr->link_layer = a.link_layer;
	return rc;
}

// Implements: int ibv_query_gid(struct ibv_context *context, uint8_t port_num, int index, union ibv_gid *gid)
int shim_query_gid(shim_library *lib, struct ibv_context *context, uint8_t port, int index, uint8_t *gid)
{
	return lib->query_gid(context, port, index, (union ibv_gid *)gid);
}

int shim_has_gid_table(shim_library *lib)
{
	return lib->query_gid_table != NULL;
}

// Implements: ssize_t ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t max_entries, uint32_t flags)
int64_t shim_query_gid_table(shim_library *lib, struct ibv_context *context, shim_gid_entry *entries, size_t max_entries)
{
	return lib->query_gid_table(context, entries, max_entries, 0, sizeof *entries);
}

// Implements: int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
// and:        void ibv_ack_async_event(struct ibv_async_event *event)
//
// Both at once: destroying a queue pair waits until its events are acknowledged.
int shim_get_async_event(shim_library *lib, struct ibv_context *context, shim_async_event *event)
{
	struct ibv_async_event e;
	memset(&e, 0, sizeof e);
	int rc = lib->get_async_event(context, &e);
	if (rc)
		return rc;
	event->event_type = e.event_type;
	event->port_num = 0;
	event->qp_num = 0;
	switch (e.event_type) {
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		event->qp_num = e.element.qp->qp_num;
		break;
	case IBV_EVENT_PORT_ACTIVE:
	case IBV_EVENT_PORT_ERR:
	case IBV_EVENT_LID_CHANGE:
	case IBV_EVENT_PKEY_CHANGE:
	case IBV_EVENT_SM_CHANGE:
	case IBV_EVENT_CLIENT_REREGISTER:
	case IBV_EVENT_GID_CHANGE:
		event->port_num = e.element.port_num;
		break;
	default:
		break;
	}
	lib->ack_async_event(&e);
	return 0;
}

// Implements: struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
struct ibv_pd *shim_alloc_pd(shim_library *lib, struct ibv_context *context)
{
	return lib->alloc_pd(context);
}

// Implements: int ibv_dealloc_pd(struct ibv_pd *pd)
int shim_dealloc_pd(shim_library *lib, struct ibv_pd *pd)
{
	return lib->dealloc_pd(pd);
}

int shim_has_reg_mr_iova2(shim_library *lib)
{
	return lib->reg_mr_iova2 != NULL;
}

// Implements: struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
struct ibv_mr *shim_reg_mr(shim_library *lib, struct ibv_pd *pd, void *addr, size_t length, unsigned access)
{
	return lib->reg_mr(pd, addr, length, (int)access);
}

// Implements: struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access)
struct ibv_mr *shim_reg_mr_iova2(shim_library *lib, struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned access)
{
	return lib->reg_mr_iova2(pd, addr, length, iova, access);
}

// Implements: int ibv_dereg_mr(struct ibv_mr *mr)
int shim_dereg_mr(shim_library *lib, struct ibv_mr *mr)
{
	return lib->dereg_mr(mr);
}

uint32_t shim_mr_lkey(struct ibv_mr *mr)
{
	return mr->lkey;
}

uint32_t shim_mr_rkey(struct ibv_mr *mr)
{
	return mr->rkey;
}

// Implements: struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
struct ibv_comp_channel *shim_create_comp_channel(shim_library *lib, struct ibv_context *context)
{
	return lib->create_comp_channel(context);
}

// Implements: int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
int shim_destroy_comp_channel(shim_library *lib, struct ibv_comp_channel *channel)
{
	return lib->destroy_comp_channel(channel);
}

int shim_channel_fd(struct ibv_comp_channel *channel)
{
	return channel->fd;
}

// Implements: struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context, struct ibv_comp_channel *channel, int comp_vector)
struct ibv_cq *shim_create_cq(shim_library *lib, struct ibv_context *context, int cqe, struct ibv_comp_channel *channel)
{
	return lib->create_cq(context, cqe, NULL, channel, 0);
}

// Implements: int ibv_destroy_cq(struct ibv_cq *cq)
int shim_destroy_cq(shim_library *lib, struct ibv_cq *cq)
{
	return lib->destroy_cq(cq);
}

int shim_cq_cqe(struct ibv_cq *cq)
{
	return cq->cqe;
}

// Implements: int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
//
// A channel has one queue here, so which one it was is known.
int shim_get_cq_event(shim_library *lib, struct ibv_comp_channel *channel)
{
	struct ibv_cq *cq;
	void *cq_context;
	return lib->get_cq_event(channel, &cq, &cq_context);
}

// Implements: void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int nevents)
void shim_ack_cq_events(shim_library *lib, struct ibv_cq *cq, unsigned nevents)
{
	lib->ack_cq_events(cq, nevents);
}

// Implements: int ibv_req_notify_cq(struct ibv_cq *cq, int solicited_only)
int shim_req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	return ibv_req_notify_cq(cq, solicited_only);
}

// Implements: struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *qp_init_attr)
struct ibv_qp *shim_create_qp(shim_library *lib, struct ibv_pd *pd, struct ibv_cq *send_cq, struct ibv_cq *recv_cq, shim_qp_cap *cap)
{
	struct ibv_qp_init_attr a;
	memset(&a, 0, sizeof a);
	a.send_cq = send_cq;
	a.recv_cq = recv_cq;
	a.qp_type = IBV_QPT_RC;
	a.cap.max_send_wr = cap->max_send_wr;
	a.cap.max_recv_wr = cap->max_recv_wr;
	a.cap.max_send_sge = cap->max_send_sge;
	a.cap.max_recv_sge = cap->max_recv_sge;
	a.cap.max_inline_data = cap->max_inline_data;
	struct ibv_qp *qp = lib->create_qp(pd, &a);
	cap->max_send_wr = a.cap.max_send_wr;
	cap->max_recv_wr = a.cap.max_recv_wr;
	cap->max_send_sge = a.cap.max_send_sge;
	cap->max_recv_sge = a.cap.max_recv_sge;
	cap->max_inline_data = a.cap.max_inline_data;
	return qp;
}

// Implements: int ibv_destroy_qp(struct ibv_qp *qp)
int shim_destroy_qp(shim_library *lib, struct ibv_qp *qp)
{
	return lib->destroy_qp(qp);
}

uint32_t shim_qp_num(struct ibv_qp *qp)
{
	return qp->qp_num;
}

// Implements: int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int attr_mask)
int shim_modify_qp(shim_library *lib, struct ibv_qp *qp, const shim_qp_attr *attr, int mask)
{
	struct ibv_qp_attr a;
	memset(&a, 0, sizeof a);
	a.qp_state = attr->qp_state;
	a.path_mtu = attr->path_mtu;
	a.qp_access_flags = attr->qp_access_flags;
	a.rq_psn = attr->rq_psn;
	a.sq_psn = attr->sq_psn;
	a.dest_qp_num = attr->dest_qp_num;
	a.pkey_index = attr->pkey_index;
	memcpy(a.ah_attr.grh.dgid.raw, attr->grh_dgid, sizeof attr->grh_dgid);
	a.ah_attr.grh.flow_label = attr->grh_flow_label;
	a.ah_attr.grh.sgid_index = attr->grh_sgid_index;
	a.ah_attr.grh.hop_limit = attr->grh_hop_limit;
	a.ah_attr.grh.traffic_class = attr->grh_traffic_class;
	a.ah_attr.dlid = attr->ah_dlid;
	a.ah_attr.sl = attr->ah_sl;
	a.ah_attr.is_global = attr->ah_is_global;
	a.ah_attr.port_num = attr->ah_port_num;
	a.max_rd_atomic = attr->max_rd_atomic;
	a.max_dest_rd_atomic = attr->max_dest_rd_atomic;
	a.min_rnr_timer = attr->min_rnr_timer;
	a.port_num = attr->port_num;
	a.timeout = attr->timeout;
	a.retry_cnt = attr->retry_cnt;
	a.rnr_retry = attr->rnr_retry;
	return lib->modify_qp(qp, &a, mask);
}

// Implements: int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int attr_mask, struct ibv_qp_init_attr *init_attr)
int shim_query_qp_state(shim_library *lib, struct ibv_qp *qp, uint32_t *state)
{
	struct ibv_qp_attr a;
	struct ibv_qp_init_attr init;
	memset(&a, 0, sizeof a);
	memset(&init, 0, sizeof init);
	int rc = lib->query_qp(qp, &a, IBV_QP_STATE, &init);
	*state = a.qp_state;
	return rc;
}

// Of the list that begins at first and has n elements of the given size, those
// before bad were taken. A driver that fails without naming one (rxe does so
// when its doorbell fails) has put all of them into its queue.
#define TAKEN(rc, first, bad, n) ((rc) == 0 || !(bad) ? (n) : (uint32_t)((bad) - (first)))

// Implements: int ibv_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
shim_posted shim_post_send(struct ibv_qp *qp, const shim_send_wr *wrs, const shim_sge *sges, uint32_t n)
{
	struct ibv_send_wr list[SHIM_BATCH], *bad = NULL;
	for (uint32_t i = 0; i < n; i++) {
		struct ibv_send_wr *w = &list[i];
		memset(w, 0, sizeof *w);
		w->wr_id = wrs[i].wr_id;
		w->next = i + 1 < n ? w + 1 : NULL;
		w->sg_list = (struct ibv_sge *)&sges[wrs[i].first_sge];
		w->num_sge = (int)wrs[i].num_sge;
		w->opcode = wrs[i].opcode;
		w->send_flags = wrs[i].send_flags;
		w->imm_data = wrs[i].imm_be;
		if (wrs[i].atomic) {
			w->wr.atomic.remote_addr = wrs[i].remote_addr;
			w->wr.atomic.compare_add = wrs[i].compare_add;
			w->wr.atomic.swap = wrs[i].swap;
			w->wr.atomic.rkey = wrs[i].rkey;
		} else {
			w->wr.rdma.remote_addr = wrs[i].remote_addr;
			w->wr.rdma.rkey = wrs[i].rkey;
		}
	}
	int rc = ibv_post_send(qp, list, &bad);
	return (shim_posted){rc, TAKEN(rc, list, bad, n)};
}

// Implements: int ibv_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
shim_posted shim_post_recv(struct ibv_qp *qp, const shim_recv_wr *wrs, const shim_sge *sges, uint32_t n)
{
	struct ibv_recv_wr list[SHIM_BATCH], *bad = NULL;
	for (uint32_t i = 0; i < n; i++) {
		struct ibv_recv_wr *w = &list[i];
		w->wr_id = wrs[i].wr_id;
		w->next = i + 1 < n ? w + 1 : NULL;
		w->sg_list = (struct ibv_sge *)&sges[wrs[i].first_sge];
		w->num_sge = (int)wrs[i].num_sge;
	}
	int rc = ibv_post_recv(qp, list, &bad);
	return (shim_posted){rc, TAKEN(rc, list, bad, n)};
}

// Implements: int ibv_poll_cq(struct ibv_cq *cq, int num_entries, struct ibv_wc *wc)
int32_t shim_poll_cq(struct ibv_cq *cq, shim_wc *wcs, uint32_t n)
{
	struct ibv_wc list[SHIM_BATCH];
	int got = ibv_poll_cq(cq, (int)n, list);
	for (int i = 0; i < got; i++) {
		const struct ibv_wc *w = &list[i];
		wcs[i].wr_id = w->wr_id;
		wcs[i].status = w->status;
		wcs[i].vendor_err = w->vendor_err;
		wcs[i].qp_num = w->qp_num;
		if (w->status == IBV_WC_SUCCESS) {
			wcs[i].opcode = w->opcode;
			wcs[i].wc_flags = (uint32_t)w->wc_flags;
			wcs[i].byte_len = w->byte_len;
			wcs[i].imm_be = w->imm_data;
		} else {
			wcs[i].opcode = wcs[i].wc_flags = wcs[i].byte_len = wcs[i].imm_be = 0;
		}
	}
	return got;
}

// Implements: ibv_post_send, then ibv_poll_cq, also when that failed
shim_posted_and_polled shim_post_send_and_poll(struct ibv_qp *qp, const shim_send_wr *wrs, const shim_sge *sges, uint32_t n,
					       struct ibv_cq *cq, shim_wc *wcs, uint32_t n_wcs)
{
	shim_posted posted = shim_post_send(qp, wrs, sges, n);
	int posted_errno = errno; // which is what the caller looks at
	int32_t polled = shim_poll_cq(cq, wcs, n_wcs);
	errno = posted_errno;
	return (shim_posted_and_polled){posted, polled};
}

#define FACT(name) {#name, name}
#define SIZE(type) {"sizeof " #type, sizeof(type)}
#define OFFSET(type, field) {#type "." #field, offsetof(type, field)}

static const shim_fact facts[] = {
	FACT(SHIM_BATCH),
	SIZE(shim_sge), OFFSET(shim_sge, addr), OFFSET(shim_sge, length), OFFSET(shim_sge, lkey),
	SIZE(shim_send_wr), OFFSET(shim_send_wr, wr_id), OFFSET(shim_send_wr, remote_addr),
	OFFSET(shim_send_wr, compare_add), OFFSET(shim_send_wr, swap), OFFSET(shim_send_wr, rkey),
	OFFSET(shim_send_wr, opcode), OFFSET(shim_send_wr, send_flags), OFFSET(shim_send_wr, imm_be),
	OFFSET(shim_send_wr, first_sge), OFFSET(shim_send_wr, num_sge), OFFSET(shim_send_wr, atomic),
	SIZE(shim_recv_wr), OFFSET(shim_recv_wr, wr_id), OFFSET(shim_recv_wr, first_sge), OFFSET(shim_recv_wr, num_sge),
	SIZE(shim_wc), OFFSET(shim_wc, wr_id), OFFSET(shim_wc, status), OFFSET(shim_wc, opcode), OFFSET(shim_wc, wc_flags),
	OFFSET(shim_wc, vendor_err), OFFSET(shim_wc, byte_len), OFFSET(shim_wc, imm_be), OFFSET(shim_wc, qp_num),

	FACT(IBV_WR_SEND), FACT(IBV_WR_SEND_WITH_IMM), FACT(IBV_WR_RDMA_WRITE), FACT(IBV_WR_RDMA_WRITE_WITH_IMM),
	FACT(IBV_WR_RDMA_READ), FACT(IBV_WR_ATOMIC_CMP_AND_SWP), FACT(IBV_WR_ATOMIC_FETCH_AND_ADD),
	FACT(IBV_SEND_FENCE), FACT(IBV_SEND_SIGNALED), FACT(IBV_SEND_SOLICITED), FACT(IBV_SEND_INLINE),
	FACT(IBV_WC_SEND), FACT(IBV_WC_RDMA_WRITE), FACT(IBV_WC_RDMA_READ), FACT(IBV_WC_COMP_SWAP), FACT(IBV_WC_FETCH_ADD),
	FACT(IBV_WC_RECV), FACT(IBV_WC_RECV_RDMA_WITH_IMM), FACT(IBV_WC_WITH_IMM),
	FACT(IBV_WC_SUCCESS), FACT(IBV_WC_LOC_LEN_ERR), FACT(IBV_WC_LOC_QP_OP_ERR), FACT(IBV_WC_LOC_EEC_OP_ERR),
	FACT(IBV_WC_LOC_PROT_ERR), FACT(IBV_WC_WR_FLUSH_ERR), FACT(IBV_WC_MW_BIND_ERR), FACT(IBV_WC_BAD_RESP_ERR),
	FACT(IBV_WC_LOC_ACCESS_ERR), FACT(IBV_WC_REM_INV_REQ_ERR), FACT(IBV_WC_REM_ACCESS_ERR), FACT(IBV_WC_REM_OP_ERR),
	FACT(IBV_WC_RETRY_EXC_ERR), FACT(IBV_WC_RNR_RETRY_EXC_ERR), FACT(IBV_WC_LOC_RDD_VIOL_ERR),
	FACT(IBV_WC_REM_INV_RD_REQ_ERR), FACT(IBV_WC_REM_ABORT_ERR), FACT(IBV_WC_INV_EECN_ERR),
	FACT(IBV_WC_INV_EEC_STATE_ERR), FACT(IBV_WC_FATAL_ERR), FACT(IBV_WC_RESP_TIMEOUT_ERR), FACT(IBV_WC_GENERAL_ERR),
	FACT(IBV_QPS_RESET), FACT(IBV_QPS_INIT), FACT(IBV_QPS_RTR), FACT(IBV_QPS_RTS), FACT(IBV_QPS_SQD), FACT(IBV_QPS_SQE),
	FACT(IBV_QPS_ERR),
	FACT(IBV_PORT_NOP), FACT(IBV_PORT_DOWN), FACT(IBV_PORT_INIT), FACT(IBV_PORT_ARMED), FACT(IBV_PORT_ACTIVE),
	FACT(IBV_PORT_ACTIVE_DEFER),
	FACT(IBV_LINK_LAYER_UNSPECIFIED), FACT(IBV_LINK_LAYER_INFINIBAND), FACT(IBV_LINK_LAYER_ETHERNET),
	FACT(IBV_MTU_256), FACT(IBV_MTU_512), FACT(IBV_MTU_1024), FACT(IBV_MTU_2048), FACT(IBV_MTU_4096),
	FACT(IBV_ATOMIC_NONE),
	FACT(IBV_ACCESS_LOCAL_WRITE), FACT(IBV_ACCESS_REMOTE_WRITE), FACT(IBV_ACCESS_REMOTE_READ), FACT(IBV_ACCESS_REMOTE_ATOMIC),
	FACT(IBV_ACCESS_MW_BIND),
#ifdef IBV_ACCESS_OPTIONAL_RANGE
	FACT(IBV_ACCESS_RELAXED_ORDERING),
#endif
	FACT(IBV_QP_STATE), FACT(IBV_QP_ACCESS_FLAGS), FACT(IBV_QP_PKEY_INDEX), FACT(IBV_QP_PORT), FACT(IBV_QP_AV),
	FACT(IBV_QP_PATH_MTU), FACT(IBV_QP_TIMEOUT), FACT(IBV_QP_RETRY_CNT), FACT(IBV_QP_RNR_RETRY), FACT(IBV_QP_RQ_PSN),
	FACT(IBV_QP_MAX_QP_RD_ATOMIC), FACT(IBV_QP_MIN_RNR_TIMER), FACT(IBV_QP_SQ_PSN), FACT(IBV_QP_MAX_DEST_RD_ATOMIC),
	FACT(IBV_QP_DEST_QPN),
	FACT(IBV_EVENT_CQ_ERR), FACT(IBV_EVENT_QP_FATAL), FACT(IBV_EVENT_QP_REQ_ERR), FACT(IBV_EVENT_QP_ACCESS_ERR),
	FACT(IBV_EVENT_COMM_EST), FACT(IBV_EVENT_QP_LAST_WQE_REACHED), FACT(IBV_EVENT_DEVICE_FATAL),
	FACT(IBV_EVENT_PORT_ACTIVE), FACT(IBV_EVENT_PORT_ERR), FACT(IBV_EVENT_GID_CHANGE), FACT(IBV_EVENT_LID_CHANGE),
	FACT(IBV_EVENT_PKEY_CHANGE), FACT(IBV_EVENT_SM_CHANGE), FACT(IBV_EVENT_CLIENT_REREGISTER),
};

shim_fact shim_fact_at(int i)
{
	if (i < 0 || (size_t)i >= sizeof facts / sizeof facts[0])
		return (shim_fact){NULL, 0};
	return facts[i];
}

#endif
