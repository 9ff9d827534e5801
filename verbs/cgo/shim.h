// The shim between Go and libibverbs. It knows the library's structures, Go
// does not: what crosses is declared here, field by field, and builds whether
// <infiniband/verbs.h> is there or not.
//
// Each function implements one of the library's, named in its comment with the
// prototype of the manual page. It converts structures and does nothing else:
// return values and errno come through as they are, and what they mean is known
// to returns.go alone. Nothing here calls back into Go, and no pointer into Go
// memory is kept.

#ifndef TRYST_LIBIBVERBS_SHIM_H
#define TRYST_LIBIBVERBS_SHIM_H

#include <stddef.h>
#include <stdint.h>

struct ibv_device;
struct ibv_context;
struct ibv_pd;
struct ibv_mr;
struct ibv_comp_channel;
struct ibv_cq;
struct ibv_qp;

// The work requests, or completions, of one crossing at most. 128 times the
// largest structure of the library is 16 KiB of stack.
#define SHIM_BATCH 128

// The library, opened, with the functions that were found in it.
typedef struct shim_library shim_library;

// Why shim_open_library has none.
enum shim_open_error {
	SHIM_OPEN_OK,
	SHIM_OPEN_NO_HEADERS, // built without <infiniband/verbs.h>
	SHIM_OPEN_NO_LIBRARY, // why has the loader's words
	SHIM_OPEN_NO_SYMBOL,  // why has the name
	SHIM_OPEN_NO_MEMORY,
};

// ibv_device_attr(3), as far as it is used.
typedef struct {
	char fw_ver[64];
	uint64_t max_mr_size;
	uint32_t vendor_id;
	int32_t max_qp, max_qp_wr, max_sge, max_cq, max_cqe, max_mr, max_pd, max_qp_rd_atom;
	int32_t atomic_cap; // enum ibv_atomic_cap
	uint8_t phys_port_cnt;
} shim_device_attr;

// ibv_port_attr(3), as far as it is used.
typedef struct {
	uint32_t max_msg_sz;
	int32_t gid_tbl_len;
	uint32_t state;      // enum ibv_port_state
	uint32_t max_mtu;    // enum ibv_mtu
	uint32_t active_mtu; // enum ibv_mtu
	uint16_t lid, pkey_tbl_len;
	uint8_t link_layer;
} shim_port_attr;

// An entry of the GID table: struct ibv_gid_entry, which older headers lack.
typedef struct {
	uint8_t gid[16];
	uint32_t gid_index, port_num;
	uint32_t gid_type; // enum ibv_gid_type
	uint32_t ndev_ifindex;
} shim_gid_entry;

// ibv_qp_init_attr(3) of a reliable-connected queue pair. max_inline_data comes
// back as the device rounded it.
typedef struct {
	uint32_t max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data;
} shim_qp_cap;

// ibv_qp_attr(3), as far as it is used; a mask says which fields count.
typedef struct {
	uint32_t qp_state;        // enum ibv_qp_state
	uint32_t path_mtu;        // enum ibv_mtu
	uint32_t qp_access_flags; // enum ibv_access_flags
	uint32_t rq_psn, sq_psn, dest_qp_num;
	uint32_t grh_flow_label;
	uint16_t pkey_index, ah_dlid;
	uint8_t grh_dgid[16];
	uint8_t grh_sgid_index, grh_hop_limit, grh_traffic_class;
	uint8_t ah_sl, ah_is_global, ah_port_num;
	uint8_t max_rd_atomic, max_dest_rd_atomic, min_rnr_timer, port_num;
	uint8_t timeout, retry_cnt, rnr_retry;
} shim_qp_attr;

// ibv_async_event: what happened, and the port or queue pair that it happened to.
typedef struct {
	uint32_t event_type; // enum ibv_event_type
	uint32_t port_num;
	uint32_t qp_num;
} shim_async_event;

// What follows is shared memory: Go writes work requests there, C writes
// completions, and layout_test.go knows the offsets.

// struct ibv_sge, byte for byte.
typedef struct {
	uint64_t addr;
	uint32_t length, lkey;
} shim_sge;

// A send work request: its elements are sges[first_sge] to
// sges[first_sge+num_sge-1] of the same area.
typedef struct {
	uint64_t wr_id;
	uint64_t remote_addr; // of writes, reads and atomics
	uint64_t compare_add; // of atomics
	uint64_t swap;        // of compare-and-swap
	uint32_t rkey;
	uint32_t opcode;     // enum ibv_wr_opcode
	uint32_t send_flags; // enum ibv_send_flags
	uint32_t imm_be;     // big-endian, as it goes on the wire
	uint32_t first_sge, num_sge;
	uint32_t atomic; // not 0 for atomics
	uint32_t reserved;
} shim_send_wr;

// A receive work request.
typedef struct {
	uint64_t wr_id;
	uint32_t first_sge, num_sge;
} shim_recv_wr;

// A completion. After a failure only wr_id, status, vendor_err and qp_num are
// set, as in the library.
typedef struct {
	uint64_t wr_id;
	uint32_t status;   // enum ibv_wc_status
	uint32_t opcode;   // enum ibv_wc_opcode
	uint32_t wc_flags; // enum ibv_wc_flags
	uint32_t vendor_err;
	uint32_t byte_len;
	uint32_t imm_be;
	uint32_t qp_num;
	uint32_t reserved;
} shim_wc;

// What posting and polling say. taken is how many work requests are the
// device's now.
typedef struct {
	int32_t rc;
	uint32_t taken;
} shim_posted;

typedef struct {
	shim_posted posted;
	int32_t polled; // as ibv_poll_cq(3)
} shim_posted_and_polled;

// A name and a number that Go knows too, from the header: see layout_test.go.
typedef struct {
	const char *name;
	int64_t value;
} shim_fact;

// The i-th fact; its name is NULL behind the last. Without headers there is none.
shim_fact shim_fact_at(int i);

// Opens the library and finds its functions. Where it fails it returns NULL,
// sets *error, and writes a reason of len bytes at most to why.
shim_library *shim_open_library(const char *path, enum shim_open_error *error, char *why, size_t len);

// Leaves the optional functions out, as a library of that age would.
void shim_forget_optional(shim_library *lib);

struct ibv_device **shim_get_device_list(shim_library *lib, int *num_devices);
void shim_free_device_list(shim_library *lib, struct ibv_device **list);
struct ibv_device *shim_device_at(struct ibv_device **list, int i);
const char *shim_get_device_name(shim_library *lib, struct ibv_device *device);
const char *shim_device_dev_name(struct ibv_device *device); // "uverbs0"
uint64_t shim_get_device_guid(shim_library *lib, struct ibv_device *device);
struct ibv_context *shim_open_device(shim_library *lib, struct ibv_device *device);
int shim_close_device(shim_library *lib, struct ibv_context *context);
int shim_async_fd(struct ibv_context *context);

int shim_query_device(shim_library *lib, struct ibv_context *context, shim_device_attr *attr);
int shim_query_port(shim_library *lib, struct ibv_context *context, uint8_t port, shim_port_attr *attr);
int shim_query_gid(shim_library *lib, struct ibv_context *context, uint8_t port, int index, uint8_t *gid);
int shim_has_gid_table(shim_library *lib);
int64_t shim_query_gid_table(shim_library *lib, struct ibv_context *context, shim_gid_entry *entries, size_t max_entries);
int shim_get_async_event(shim_library *lib, struct ibv_context *context, shim_async_event *event);

struct ibv_pd *shim_alloc_pd(shim_library *lib, struct ibv_context *context);
int shim_dealloc_pd(shim_library *lib, struct ibv_pd *pd);

int shim_has_reg_mr_iova2(shim_library *lib);
struct ibv_mr *shim_reg_mr(shim_library *lib, struct ibv_pd *pd, void *addr, size_t length, unsigned access);
struct ibv_mr *shim_reg_mr_iova2(shim_library *lib, struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned access);
int shim_dereg_mr(shim_library *lib, struct ibv_mr *mr);
uint32_t shim_mr_lkey(struct ibv_mr *mr);
uint32_t shim_mr_rkey(struct ibv_mr *mr);

struct ibv_comp_channel *shim_create_comp_channel(shim_library *lib, struct ibv_context *context);
int shim_destroy_comp_channel(shim_library *lib, struct ibv_comp_channel *channel);
int shim_channel_fd(struct ibv_comp_channel *channel);
struct ibv_cq *shim_create_cq(shim_library *lib, struct ibv_context *context, int cqe, struct ibv_comp_channel *channel);
int shim_destroy_cq(shim_library *lib, struct ibv_cq *cq);
int shim_cq_cqe(struct ibv_cq *cq);
int shim_get_cq_event(shim_library *lib, struct ibv_comp_channel *channel);
void shim_ack_cq_events(shim_library *lib, struct ibv_cq *cq, unsigned nevents);
int shim_req_notify_cq(struct ibv_cq *cq, int solicited_only);

struct ibv_qp *shim_create_qp(shim_library *lib, struct ibv_pd *pd, struct ibv_cq *send_cq, struct ibv_cq *recv_cq, shim_qp_cap *cap);
int shim_destroy_qp(shim_library *lib, struct ibv_qp *qp);
uint32_t shim_qp_num(struct ibv_qp *qp);
int shim_modify_qp(shim_library *lib, struct ibv_qp *qp, const shim_qp_attr *attr, int mask);
int shim_query_qp_state(shim_library *lib, struct ibv_qp *qp, uint32_t *state);

// The data path. n is 1 to SHIM_BATCH.
shim_posted shim_post_send(struct ibv_qp *qp, const shim_send_wr *wrs, const shim_sge *sges, uint32_t n);
shim_posted shim_post_recv(struct ibv_qp *qp, const shim_recv_wr *wrs, const shim_sge *sges, uint32_t n);
int32_t shim_poll_cq(struct ibv_cq *cq, shim_wc *wcs, uint32_t n);
shim_posted_and_polled shim_post_send_and_poll(struct ibv_qp *qp, const shim_send_wr *wrs, const shim_sge *sges, uint32_t n,
					       struct ibv_cq *cq, shim_wc *wcs, uint32_t n_wcs);

#endif
