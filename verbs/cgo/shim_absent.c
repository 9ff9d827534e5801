// The shim where <infiniband/verbs.h> is absent: the library cannot be opened,
// so that nothing else is ever called.

#if defined(SHIM_NO_HEADERS) || !__has_include(<infiniband/verbs.h>)

#ifdef SHIM_HEADERS
#error "there is no infiniband/verbs.h: install libibverbs-dev (Debian, Ubuntu) or rdma-core-devel (Fedora, RHEL)"
#endif

#include "shim.h"

shim_library *shim_open_library(const char *path, enum shim_open_error *error, char *why, size_t len)
{
	*error = SHIM_OPEN_NO_HEADERS;
	if (len)
		why[0] = 0;
	return NULL;
}

#define ABSENT(type, name, parameters, value) \
	type name parameters                  \
	{                                     \
		return value;                 \
	}

ABSENT(shim_fact, shim_fact_at, (int i), ((shim_fact){NULL, 0}))
ABSENT(struct ibv_device **, shim_get_device_list, (shim_library *l, int *n), NULL)
ABSENT(struct ibv_device *, shim_device_at, (struct ibv_device **d, int i), NULL)
ABSENT(const char *, shim_get_device_name, (shim_library *l, struct ibv_device *d), NULL)
ABSENT(const char *, shim_device_dev_name, (struct ibv_device *d), NULL)
ABSENT(uint64_t, shim_get_device_guid, (shim_library *l, struct ibv_device *d), 0)
ABSENT(struct ibv_context *, shim_open_device, (shim_library *l, struct ibv_device *d), NULL)
ABSENT(int, shim_close_device, (shim_library *l, struct ibv_context *c), -1)
ABSENT(int, shim_async_fd, (struct ibv_context *c), -1)
ABSENT(int, shim_query_device, (shim_library *l, struct ibv_context *c, shim_device_attr *a), -1)
ABSENT(int, shim_query_port, (shim_library *l, struct ibv_context *c, uint8_t p, shim_port_attr *a), -1)
ABSENT(int, shim_query_gid, (shim_library *l, struct ibv_context *c, uint8_t p, int i, uint8_t *g), -1)
ABSENT(int, shim_has_gid_table, (shim_library *l), 0)
ABSENT(int64_t, shim_query_gid_table, (shim_library *l, struct ibv_context *c, shim_gid_entry *e, size_t m), -1)
ABSENT(int, shim_get_async_event, (shim_library *l, struct ibv_context *c, shim_async_event *e), -1)
ABSENT(struct ibv_pd *, shim_alloc_pd, (shim_library *l, struct ibv_context *c), NULL)
ABSENT(int, shim_dealloc_pd, (shim_library *l, struct ibv_pd *p), -1)
ABSENT(int, shim_has_reg_mr_iova2, (shim_library *l), 0)
ABSENT(struct ibv_mr *, shim_reg_mr, (shim_library *l, struct ibv_pd *p, void *a, size_t n, unsigned f), NULL)
ABSENT(struct ibv_mr *, shim_reg_mr_iova2, (shim_library *l, struct ibv_pd *p, void *a, size_t n, uint64_t i, unsigned f), NULL)
ABSENT(int, shim_dereg_mr, (shim_library *l, struct ibv_mr *m), -1)
ABSENT(uint32_t, shim_mr_lkey, (struct ibv_mr *m), 0)
ABSENT(uint32_t, shim_mr_rkey, (struct ibv_mr *m), 0)
ABSENT(struct ibv_comp_channel *, shim_create_comp_channel, (shim_library *l, struct ibv_context *c), NULL)
ABSENT(int, shim_destroy_comp_channel, (shim_library *l, struct ibv_comp_channel *c), -1)
ABSENT(int, shim_channel_fd, (struct ibv_comp_channel *c), -1)
ABSENT(struct ibv_cq *, shim_create_cq, (shim_library *l, struct ibv_context *c, int n, struct ibv_comp_channel *h), NULL)
ABSENT(int, shim_destroy_cq, (shim_library *l, struct ibv_cq *c), -1)
ABSENT(int, shim_cq_cqe, (struct ibv_cq *c), 0)
ABSENT(int, shim_get_cq_event, (shim_library *l, struct ibv_comp_channel *c), -1)
ABSENT(int, shim_req_notify_cq, (struct ibv_cq *c, int s), -1)
ABSENT(struct ibv_qp *, shim_create_qp, (shim_library *l, struct ibv_pd *p, struct ibv_cq *s, struct ibv_cq *r, shim_qp_cap *c), NULL)
ABSENT(int, shim_destroy_qp, (shim_library *l, struct ibv_qp *q), -1)
ABSENT(uint32_t, shim_qp_num, (struct ibv_qp *q), 0)
ABSENT(int, shim_modify_qp, (shim_library *l, struct ibv_qp *q, const shim_qp_attr *a, int m), -1)
ABSENT(int, shim_query_qp_state, (shim_library *l, struct ibv_qp *q, uint32_t *s), -1)
ABSENT(shim_posted, shim_post_send, (struct ibv_qp *q, const shim_send_wr *w, const shim_sge *s, uint32_t n), ((shim_posted){-1, 0}))
ABSENT(shim_posted, shim_post_recv, (struct ibv_qp *q, const shim_recv_wr *w, const shim_sge *s, uint32_t n), ((shim_posted){-1, 0}))
ABSENT(int32_t, shim_poll_cq, (struct ibv_cq *c, shim_wc *w, uint32_t n), -1)
ABSENT(shim_posted_and_polled, shim_post_send_and_poll,
       (struct ibv_qp *q, const shim_send_wr *w, const shim_sge *s, uint32_t n, struct ibv_cq *c, shim_wc *v, uint32_t m),
       ((shim_posted_and_polled){{-1, 0}, -1}))

void shim_forget_optional(shim_library *l) {}
void shim_free_device_list(shim_library *l, struct ibv_device **d) {}
void shim_ack_cq_events(shim_library *l, struct ibv_cq *c, unsigned n) {}

#endif
