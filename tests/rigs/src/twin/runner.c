/* Runs scripts of verbs' calls, and prints one line for each: `@ SCRIPT` begins a script; other
 * lines are `NUMBER [NAME =] CALL ARGUMENT...`. An argument is the name of an object, a number, `null`, constants of the headers
 * without IBV_ joined by `|`, or KEY=VALUE. What may differ between two computers (addresses, keys, numbers of queues) is
 * printed as whether it is there, or is another's. */

#define _GNU_SOURCE
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LIMIT_SECONDS 60
/* Milliseconds to wait for an event or a completion that has to come, and for one that must not. */
#define COMES 10000
#define STAYS_AWAY 100
#define BUFFER (64 << 10)
#define MOST 4096

struct constant {
    const char *name;
    uint64_t value;
};
#define N(name) {#name, name}
static const struct constant constants[] = {
    N(IBV_QPT_RC), N(IBV_QPT_UC), N(IBV_QPT_UD), N(IBV_QPT_RAW_PACKET), N(IBV_QPT_XRC_SEND), N(IBV_QPT_XRC_RECV),
    N(IBV_QPT_DRIVER), N(IBV_QPS_RESET), N(IBV_QPS_INIT), N(IBV_QPS_RTR), N(IBV_QPS_RTS), N(IBV_QPS_SQD), N(IBV_QPS_SQE),
    N(IBV_QPS_ERR), N(IBV_QPS_UNKNOWN), N(IBV_MTU_256), N(IBV_MTU_512), N(IBV_MTU_1024), N(IBV_MTU_2048), N(IBV_MTU_4096),
    N(IBV_ACCESS_LOCAL_WRITE), N(IBV_ACCESS_REMOTE_WRITE), N(IBV_ACCESS_REMOTE_READ), N(IBV_ACCESS_REMOTE_ATOMIC),
    N(IBV_ACCESS_MW_BIND), N(IBV_ACCESS_ZERO_BASED), N(IBV_ACCESS_ON_DEMAND), N(IBV_ACCESS_HUGETLB),
    N(IBV_ACCESS_RELAXED_ORDERING), N(IBV_REREG_MR_CHANGE_TRANSLATION), N(IBV_REREG_MR_CHANGE_PD),
    N(IBV_REREG_MR_CHANGE_ACCESS), N(IBV_SRQ_MAX_WR), N(IBV_SRQ_LIMIT), N(IBV_SRQT_BASIC), N(IBV_SRQT_XRC), N(IBV_SRQT_TM),
    N(IBV_MW_TYPE_1), N(IBV_MW_TYPE_2), N(IBV_WR_SEND), N(IBV_WR_SEND_WITH_IMM), N(IBV_WR_RDMA_WRITE),
    N(IBV_WR_RDMA_WRITE_WITH_IMM), N(IBV_WR_RDMA_READ), N(IBV_WR_ATOMIC_CMP_AND_SWP), N(IBV_WR_ATOMIC_FETCH_AND_ADD),
    N(IBV_WR_LOCAL_INV), N(IBV_WR_BIND_MW), N(IBV_WR_SEND_WITH_INV), N(IBV_WR_TSO), N(IBV_SEND_FENCE), N(IBV_SEND_SIGNALED),
    N(IBV_SEND_SOLICITED), N(IBV_SEND_INLINE), N(IBV_SEND_IP_CSUM), N(IBV_QP_STATE), N(IBV_QP_CUR_STATE),
    N(IBV_QP_EN_SQD_ASYNC_NOTIFY), N(IBV_QP_ACCESS_FLAGS), N(IBV_QP_PKEY_INDEX), N(IBV_QP_PORT), N(IBV_QP_QKEY), N(IBV_QP_AV),
    N(IBV_QP_PATH_MTU), N(IBV_QP_TIMEOUT), N(IBV_QP_RETRY_CNT), N(IBV_QP_RNR_RETRY), N(IBV_QP_RQ_PSN),
    N(IBV_QP_MAX_QP_RD_ATOMIC), N(IBV_QP_ALT_PATH), N(IBV_QP_MIN_RNR_TIMER), N(IBV_QP_SQ_PSN),
    N(IBV_QP_MAX_DEST_RD_ATOMIC), N(IBV_QP_PATH_MIG_STATE), N(IBV_QP_CAP), N(IBV_QP_DEST_QPN), N(IBV_QP_RATE_LIMIT),
    N(IBV_CREATE_CQ_ATTR_SINGLE_THREADED), N(IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN), N(IBV_WC_EX_WITH_BYTE_LEN),
    N(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP), N(IBV_WC_EX_WITH_FLOW_TAG), N(IBV_WC_EX_WITH_TM_INFO), N(IBV_WC_STANDARD_FLAGS),
    N(IBV_QP_EX_WITH_SEND), N(IBV_QP_EX_WITH_RDMA_WRITE), N(IBV_QP_EX_WITH_RDMA_READ), N(IBV_QP_EX_WITH_ATOMIC_WRITE),
    N(IBV_QP_EX_WITH_FLUSH), N(IBV_QP_EX_WITH_TSO), N(IBV_QP_EX_WITH_BIND_MW), N(IBV_MIG_MIGRATED), N(IBV_MIG_REARM),
    N(IBV_MIG_ARMED), N(PROT_NONE), N(PROT_READ), N(PROT_WRITE), N(O_CREAT), N(O_EXCL), N(O_RDONLY), N(O_RDWR),
    N(RDMA_PS_IPOIB), N(RDMA_PS_TCP), N(RDMA_PS_UDP), N(RDMA_PS_IB), N(RAI_PASSIVE), N(RAI_NUMERICHOST), N(RAI_NOROUTE),
    N(RAI_FAMILY), N(AF_INET), N(AF_INET6), N(AF_IB), N(RDMA_OPTION_ID), N(RDMA_OPTION_ID_TOS), N(RDMA_OPTION_ID_REUSEADDR),
    N(RDMA_OPTION_ID_AFONLY), N(RDMA_OPTION_ID_ACK_TIMEOUT), N(RDMA_OPTION_IB), N(RDMA_OPTION_IB_PATH),
    N(IBV_EVENT_COMM_EST), N(IBV_EVENT_QP_FATAL), N(IBV_EVENT_SQ_DRAINED),
    N(IBV_QP_CREATE_BLOCK_SELF_MCAST_LB), N(IBV_QP_CREATE_SCATTER_FCS), N(IBV_QP_CREATE_SOURCE_QPN),
};

/* The objects of a script. An object that was destroyed keeps its name, and calls with it are left out: what they would do is
 * undefined. */
struct object {
    char name[24];
    void *pointer;
    int (*destroy)(void *);
    const char *made_by;
    bool gone;
};
static struct object objects[128];
static int object_count;

static struct ibv_context *context;
static struct ibv_device_attr limits;
static int gid_index;
static union ibv_gid own_gid;
static char *words[48];
static int word_count, line_number;
static const char *script = "";
/* The call before has failed. */
static bool failed;
static bool left_out, names;
static void *made;
static char told[MOST];
/* A call that accesses memory which is not there is left here. */
static sigjmp_buf before_call;
static volatile int signal_number;

static void tell(const char *format, ...) {
    size_t length = strlen(told);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(told + length, sizeof told - length, format, arguments);
    va_end(arguments);
}

static struct object *find(const char *name) {
    for (int i = object_count; i-- > 0;)
        if (!strcmp(objects[i].name, name))
            return &objects[i];
    return NULL;
}

/* More calls are in cm.c and extended.c. */
static bool cm_call(const char *name);
static bool extended_call(const char *name);
static void join_apart(void);

static void fail(const char *what, const char *word) {
    printf("FAILED: %s:%d: %s %s\n", script, line_number, what, word);
    exit(2);
}

static uint64_t term(const char *word) {
    static const struct {
        const char *name;
        size_t offset, size;
    } known[] = {
#define L(field) {"max." #field, offsetof(struct ibv_device_attr, field), sizeof limits.field}
        L(max_qp_wr), L(max_sge), L(max_sge_rd), L(max_cqe), L(max_srq_wr), L(max_srq_sge), L(max_qp_rd_atom), L(max_pkeys),
    };
    char name[48];
    if (*word >= '0' && *word <= '9')
        return strtoull(word, NULL, 0);
    if (!strcmp(word, "null"))
        return 0;
    if (!strcmp(word, "vectors"))
        return context->num_comp_vectors;
    struct object *object = find(word);
    if (object) {
        left_out |= object->gone || !object->pointer;
        return (uintptr_t)object->pointer;
    }
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(word, known[i].name))
            return *(int *)((char *)&limits + known[i].offset);
    snprintf(name, sizeof name, "IBV_%s", word);
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
        if (!strcmp(name, constants[i].name) || !strcmp(word, constants[i].name))
            return constants[i].value;
    fail("no such thing:", word);
    return 0;
}

/* Terms joined by `|` or `+`. */
static uint64_t value(const char *word) {
    char copy[256], *rest = copy, *one;
    uint64_t sum = 0;
    if (*word == '-')
        return -value(word + 1);
    snprintf(copy, sizeof copy, "%s", word);
    while ((one = strsep(&rest, "|+")))
        sum += term(one);
    return sum;
}

static const char *key(const char *name) {
    size_t length = strlen(name);
    for (int i = 0; i < word_count; i++)
        if (!strncmp(words[i], name, length) && words[i][length] == '=')
            return words[i] + length + 1;
    return NULL;
}

/* The value of a key, or what it is without. */
static uint64_t k(const char *name, uint64_t otherwise) {
    const char *word = key(name);
    return word ? value(word) : otherwise;
}
#define KP(name) ((void *)(uintptr_t)k(name, 0))

/* The argument at a place, of those without a key. */
static uint64_t a(int place) {
    for (int i = 0; i < word_count; i++)
        if (!strchr(words[i], '=') && place-- == 0)
            return value(words[i]);
    fail("too few arguments", "");
    return 0;
}
#define AP(place) ((void *)(uintptr_t)a(place))

/* The device as the runner opened it, or as an id has it. */
static struct ibv_context *opened(void) {
    struct rdma_cm_id *id = KP("of");
    if (id && !left_out && !id->verbs)
        left_out = true;
    return id && !left_out ? id->verbs : context;
}

static const char *named(const void *pointer) {
    if (!pointer)
        return "none";
    for (int i = object_count; i-- > 0;)
        if (objects[i].pointer == pointer && !objects[i].gone)
            return objects[i].name;
    return "another";
}

/* Says if an object is there, and was made by a call with this in its name. */
static bool is(const struct object *object, const char *made_by) {
    return object->pointer && !object->gone && object->made_by && strstr(object->made_by, made_by);
}

static const char *qp_named(uint32_t number) {
    for (int i = 0; i < object_count; i++)
        if (is(&objects[i], "create_qp") && ((struct ibv_qp *)objects[i].pointer)->qp_num == number)
            return objects[i].name;
    return number ? "another" : "0";
}

static const char *error_name(int number) {
    const char *name = strerrorname_np(number);
    return name ? name : "unknown";
}

static void tell_int(int64_t result) {
    if (result == 0)
        tell("0");
    else if (result < 0)
        tell("%lld errno %s", (long long)result, error_name(errno));
    else
        tell("%s", error_name(result));
}

static void tell_new(const char *by, void *pointer, int (*destroy)(void *)) {
    made = pointer;
    if (!pointer) {
        tell("null %s", error_name(errno));
        return;
    }
    tell("made");
    if (names) {
        objects[object_count - 1].destroy = destroy;
        objects[object_count - 1].made_by = by;
    }
}

static int unmap(void *memory) {
    return munmap(memory, BUFFER);
}

static struct ibv_qp_cap cap(void) {
    return (struct ibv_qp_cap){.max_send_wr = k("send_wr", 4),
                               .max_recv_wr = k("recv_wr", 4),
                               .max_send_sge = k("send_sge", 1),
                               .max_recv_sge = k("recv_sge", 1),
                               .max_inline_data = k("inline", 0)};
}

static struct ibv_ah_attr ah_attr(void) {
    struct ibv_ah_attr attr = {.is_global = k("global", 1),
                               .port_num = k("ah_port", 1),
                               .sl = k("sl", 0),
                               .dlid = k("dlid", 0),
                               .static_rate = k("rate", 0),
                               .src_path_bits = k("bits", 0)};
    attr.grh.sgid_index = k("sgid", gid_index);
    attr.grh.hop_limit = k("hops", 64);
    attr.grh.traffic_class = k("class", 0);
    attr.grh.flow_label = k("label", 0);
    attr.grh.dgid = own_gid;
    if (k("no_gid", 0))
        memset(&attr.grh.dgid, 0, sizeof attr.grh.dgid);
    return attr;
}

/* A queue that was asked for may hold more, and never less. */
static struct ibv_qp *holds(struct ibv_qp *qp, struct ibv_qp_cap has) {
    struct ibv_qp_cap asked = cap();
    uint64_t type = k("type", IBV_QPT_RC);
    bool sends = asked.max_send_wr && type != IBV_QPT_XRC_RECV;
    bool receives = asked.max_recv_wr && !key("srq") && type != IBV_QPT_XRC_SEND && type != IBV_QPT_XRC_RECV;
    if (qp && sends && (has.max_send_wr < asked.max_send_wr || has.max_send_sge < asked.max_send_sge ||
                        has.max_inline_data < asked.max_inline_data))
        tell("sends less: ");
    if (qp && receives && (has.max_recv_wr < asked.max_recv_wr || has.max_recv_sge < asked.max_recv_sge))
        tell("receives less: ");
    return qp;
}

static struct ibv_srq *create_srq_ex(void) {
    struct ibv_srq_init_attr_ex attr = {.attr = {.max_wr = k("wr", 4), .max_sge = k("sge", 1), .srq_limit = k("limit", 0)},
                                        .comp_mask = k("mask", 0),
                                        .srq_type = k("type", IBV_SRQT_BASIC),
                                        .pd = KP("pd"),
                                        .xrcd = KP("xrcd"),
                                        .cq = KP("cq")};
    if (!key("mask"))
        attr.comp_mask = (key("type") ? IBV_SRQ_INIT_ATTR_TYPE : 0) | (key("pd") ? IBV_SRQ_INIT_ATTR_PD : 0) |
                         (key("xrcd") ? IBV_SRQ_INIT_ATTR_XRCD : 0) | (key("cq") ? IBV_SRQ_INIT_ATTR_CQ : 0);
    return left_out ? NULL : ibv_create_srq_ex(context, &attr);
}

static struct ibv_qp *create_qp(void) {
    struct ibv_qp_init_attr attr = {.qp_context = NULL,
                                    .send_cq = KP("send_cq"),
                                    .recv_cq = KP("recv_cq"),
                                    .srq = KP("srq"),
                                    .cap = cap(),
                                    .qp_type = k("type", IBV_QPT_RC),
                                    .sq_sig_all = k("sig_all", 1)};
    struct ibv_pd *pd = AP(0);
    return left_out ? NULL : holds(ibv_create_qp(pd, &attr), attr.cap);
}

static struct ibv_qp *create_qp_ex(void) {
    struct ibv_qp_init_attr_ex attr = {.send_cq = KP("send_cq"),
                                       .recv_cq = KP("recv_cq"),
                                       .srq = KP("srq"),
                                       .cap = cap(),
                                       .qp_type = k("type", IBV_QPT_RC),
                                       .sq_sig_all = k("sig_all", 1),
                                       .pd = KP("pd"),
                                       .xrcd = KP("xrcd"),
                                       .create_flags = k("flags", 0),
                                       .max_tso_header = k("tso", 0),
                                       .source_qpn = k("source", 0),
                                       .send_ops_flags = k("ops", 0)};
    attr.comp_mask = (key("pd") ? IBV_QP_INIT_ATTR_PD : 0) | (key("xrcd") ? IBV_QP_INIT_ATTR_XRCD : 0) |
                     (key("flags") ? IBV_QP_INIT_ATTR_CREATE_FLAGS : 0) | (key("tso") ? IBV_QP_INIT_ATTR_MAX_TSO_HEADER : 0) |
                     (key("ops") ? IBV_QP_INIT_ATTR_SEND_OPS_FLAGS : 0) | k("mask", 0);
    return left_out ? NULL : holds(ibv_create_qp_ex(context, &attr), attr.cap);
}

static struct ibv_cq *create_cq_ex(void) {
    struct ibv_cq_init_attr_ex attr = {.cqe = k("cqe", 4),
                                       .channel = KP("channel"),
                                       .comp_vector = k("vector", 0),
                                       .wc_flags = k("wc", 0),
                                       .comp_mask = k("mask", key("flags") ? IBV_CQ_INIT_ATTR_MASK_FLAGS : 0),
                                       .flags = k("flags", 0)};
    struct ibv_cq_ex *cq = left_out ? NULL : ibv_create_cq_ex(context, &attr);
    return cq ? ibv_cq_ex_to_cq(cq) : NULL;
}

/* The keys that are there say the mask; `mask` has more. */
static int modify_qp(void) {
    struct ibv_qp *qp = AP(0), *dest;
    struct ibv_qp_attr attr = {0};
    int mask = k("mask", 0);
#define M(name, flag, field)                                                                                                   \
    if (key(name)) {                                                                                                           \
        mask |= flag;                                                                                                          \
        attr.field = k(name, 0);                                                                                               \
    }
    M("state", IBV_QP_STATE, qp_state)
    M("cur", IBV_QP_CUR_STATE, cur_qp_state)
    M("pkey", IBV_QP_PKEY_INDEX, pkey_index)
    M("port", IBV_QP_PORT, port_num)
    M("access", IBV_QP_ACCESS_FLAGS, qp_access_flags)
    M("qkey", IBV_QP_QKEY, qkey)
    M("mtu", IBV_QP_PATH_MTU, path_mtu)
    M("rq_psn", IBV_QP_RQ_PSN, rq_psn)
    M("sq_psn", IBV_QP_SQ_PSN, sq_psn)
    M("dest_rd", IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic)
    M("rd", IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic)
    M("rnr_timer", IBV_QP_MIN_RNR_TIMER, min_rnr_timer)
    M("timeout", IBV_QP_TIMEOUT, timeout)
    M("retry", IBV_QP_RETRY_CNT, retry_cnt)
    M("rnr_retry", IBV_QP_RNR_RETRY, rnr_retry)
    M("mig", IBV_QP_PATH_MIG_STATE, path_mig_state)
    M("notify", IBV_QP_EN_SQD_ASYNC_NOTIFY, en_sqd_async_notify)
    M("limit", IBV_QP_RATE_LIMIT, rate_limit)
    if (key("dest")) {
        mask |= IBV_QP_DEST_QPN;
        dest = find(key("dest")) ? KP("dest") : NULL;
        attr.dest_qp_num = dest ? dest->qp_num : k("dest", 0);
    }
    if (key("av")) {
        mask |= IBV_QP_AV;
        attr.ah_attr = ah_attr();
        attr.ah_attr.port_num = k("ah_port", 1);
    }
    return left_out ? 0 : ibv_modify_qp(qp, &attr, mask);
}

static const char *gid_named(const union ibv_gid *gid) {
    static const union ibv_gid none, no_ip = {.raw = {[10] = 0xff, 0xff}};
    if (!memcmp(gid, &own_gid, sizeof own_gid))
        return "own";
    return memcmp(gid, &none, sizeof none) && memcmp(gid, &no_ip, sizeof no_ip) ? "another" : "none";
}

static void tell_ah(const struct ibv_ah_attr *ah) {
    if (!strcmp(gid_named(&ah->grh.dgid), "none")) {
        tell(" to=none");
        return;
    }
    tell(" global=%d dgid=%s sgid=%s label=%s hops=%d class=%d dlid=%d sl=%d bits=%d rate=%d port=%d", ah->is_global,
         gid_named(&ah->grh.dgid), ah->is_global ? ah->grh.sgid_index == gid_index ? "own" : "another" : "none", ah->grh.flow_label ? "some" : "0",
         ah->grh.hop_limit, ah->grh.traffic_class, ah->dlid, ah->sl, ah->src_path_bits, ah->static_rate, ah->port_num);
}

static void query_qp(void) {
    static const char *const fields[] = {"state", "cur", "mtu", "mig", "access", "pkey", "rd", "dest_rd", "rnr_timer", "port",
                                         "timeout", "retry", "rnr_retry", "draining", "sq_psn", "rq_psn", "qkey", "alt_pkey", "alt_port",
                                         "alt_timeout"};
    struct ibv_qp *qp = AP(0);
    struct ibv_qp_attr q = {0};
    struct ibv_qp_init_attr init = {0};
    if (left_out)
        return;
    int result = ibv_query_qp(qp, &q, a(1), &init);
    tell_int(result);
    if (result)
        return;
    /* The connection manager draws them. */
    if (key("psn"))
        q.sq_psn = q.rq_psn = 0;
    const int64_t values[] = {q.qp_state, q.cur_qp_state, q.path_mtu, q.path_mig_state, q.qp_access_flags, q.pkey_index,
                              q.max_rd_atomic, q.max_dest_rd_atomic, q.min_rnr_timer, q.port_num, q.timeout, q.retry_cnt,
                              q.rnr_retry, q.sq_draining, q.sq_psn, q.rq_psn, q.qkey, q.alt_pkey_index, q.alt_port_num,
                              q.alt_timeout};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        tell(" %s=%lld", fields[i], (long long)values[i]);
    tell(" dest=%s qp->state=%d type=%d sig_all=%d", qp_named(q.dest_qp_num), qp->state, init.qp_type, init.sq_sig_all);
    tell(" cqs=%s,%s srq=%s av", named(init.send_cq), named(init.recv_cq), named(init.srq));
    tell_ah(&q.ah_attr);
    tell(" alt");
    tell_ah(&q.alt_ah_attr);
}

static void query_cap(struct ibv_qp *qp) {
    struct ibv_qp_attr attr = {0};
    struct ibv_qp_init_attr init = {0};
    tell_int(ibv_query_qp(qp, &attr, IBV_QP_CAP, &init));
    tell(" send_wr=%u recv_wr=%u send_sge=%u recv_sge=%u inline=%u", init.cap.max_send_wr, init.cap.max_recv_wr, init.cap.max_send_sge, init.cap.max_recv_sge,
         init.cap.max_inline_data);
}

/* The data of requests, by the lowest bits of their ids: of sends, and of receives. */
static struct data {
    const uint8_t *at;
    size_t length;
} data_of[2][256];

static uint32_t sum(const uint8_t *bytes, size_t length) {
    uint32_t sum = length;
    for (size_t i = 0; i < length; i++)
        sum = sum * 31 + bytes[i];
    return sum;
}

static void post(bool receive) {
    void *queue = AP(0);
    struct ibv_mr *mr = key("mr") ? KP("mr") : NULL, *to = key("to") ? KP("to") : mr;
    struct ibv_ah *ah = KP("ah");
    struct ibv_qp *dest = key("dest") ? KP("dest") : NULL;
    struct ibv_mw *mw = KP("mw");
    bool to_srq = key("srq") != NULL;
    struct ibv_sge sge[32] = {0};
    int count = k("sges", 1);
    if (left_out)
        return;
    uint64_t at = (mr ? (uintptr_t)mr->addr : 0) + k("at", receive ? BUFFER / 2 : 0);
    for (int i = 0; i < count && i < 32; i++)
        sge[i] = (struct ibv_sge){.addr = at + i * k("len", 8), .length = k("len", 8), .lkey = (mr ? mr->lkey : 0) + k("lkey", 0)};
    data_of[receive][k("id", 1) & 255] = (struct data){(const uint8_t *)(uintptr_t)at, count * k("len", 8)};
    if (receive) {
        struct ibv_recv_wr wr = {.wr_id = k("id", 1), .sg_list = sge, .num_sge = count}, *bad = NULL;
        int times = k("times", 1), result = 0;
        while (!result && times-- > 0)
            result = to_srq ? ibv_post_srq_recv(queue, &wr, &bad) : ibv_post_recv(queue, &wr, &bad);
        tell_int(result);
        tell(result && bad == &wr ? " bad" : "");
        return;
    }
    struct ibv_send_wr wr = {.wr_id = k("id", 1), .sg_list = sge, .num_sge = count, .opcode = k("op", IBV_WR_SEND),
                             .send_flags = k("flags", 0), .imm_data = htobe32(k("imm", 0))},
                       *bad = NULL;
    uint64_t remote = (to ? (uintptr_t)to->addr : 0) + k("remote", BUFFER / 2);
    uint32_t rkey = (to ? to->rkey : 0) + k("rkey", 0);
    if (ah) {
        wr.wr.ud.ah = ah;
        wr.wr.ud.remote_qpn = dest ? dest->qp_num : 0;
        wr.wr.ud.remote_qkey = k("qkey", 0x11111111);
    } else if (wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        wr.wr.atomic.remote_addr = remote;
        wr.wr.atomic.rkey = rkey;
        wr.wr.atomic.compare_add = k("compare", 0);
        wr.wr.atomic.swap = k("swap", 1);
    } else if (wr.opcode == IBV_WR_SEND_WITH_INV || wr.opcode == IBV_WR_LOCAL_INV) {
        wr.invalidate_rkey = mw ? mw->rkey : rkey;
    } else {
        wr.wr.rdma.remote_addr = remote;
        wr.wr.rdma.rkey = mw ? mw->rkey : rkey;
    }
    if (wr.opcode == IBV_WR_BIND_MW) {
        wr.bind_mw.mw = mw;
        wr.bind_mw.rkey = mw ? ibv_inc_rkey(mw->rkey) : 0;
        wr.bind_mw.bind_info = (struct ibv_mw_bind_info){to, to ? (uintptr_t)to->addr : 0, k("size", BUFFER), k("access", 0)};
        wr.num_sge = 0;
    }
    int times = k("times", 1), result = 0;
    while (!result && times-- > 0)
        result = ibv_post_send(queue, &wr, &bad);
    tell_int(result);
    tell(result && bad == &wr ? " bad" : "");
    if (!result && wr.opcode == IBV_WR_BIND_MW && mw)
        mw->rkey = wr.bind_mw.rkey;
}

static uint64_t milliseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000ull + now.tv_nsec / 1000000;
}

/* Polls until so many completions have come, for some time at most. */
static void poll_cq(void) {
    struct ibv_cq *cq = AP(0);
    int wanted = a(1), got = 0;
    if (left_out)
        return;
    for (uint64_t end = milliseconds() + k("wait", COMES); got < wanted && milliseconds() < end;) {
        struct ibv_wc wc;
        int result = ibv_poll_cq(cq, 1, &wc);
        if (result < 0) {
            tell("%d", result);
            return;
        }
        if (!result) {
            usleep(1000);
            continue;
        }
        got++;
        tell("%s%llu %s %s", got > 1 ? "; " : "", (unsigned long long)wc.wr_id, qp_named(wc.qp_num),
             ibv_wc_status_str(wc.status));
        if (wc.status != IBV_WC_SUCCESS)
            continue;
        tell(" op=%d flags=%d", wc.opcode, wc.wc_flags);
        if (wc.opcode & IBV_WC_RECV || wc.opcode == IBV_WC_RDMA_READ)
            tell(" bytes=%u", wc.byte_len);
        if (wc.opcode == IBV_WC_RECV || wc.opcode == IBV_WC_RDMA_READ) {
            const struct data *data = &data_of[wc.opcode == IBV_WC_RECV][wc.wr_id & 255];
            size_t headers = wc.wc_flags & IBV_WC_GRH ? 40 : 0, end = wc.byte_len < data->length ? wc.byte_len : data->length;
            if (data->at && end >= headers)
                tell(" sum=%u", sum(data->at + headers, end - headers));
        }
        if (wc.opcode & IBV_WC_RECV && wc.wc_flags & IBV_WC_WITH_IMM)
            tell(" imm=%u", be32toh(wc.imm_data));
        if (wc.opcode & IBV_WC_RECV && wc.wc_flags & IBV_WC_GRH)
            tell(" from=%s sl=%d", qp_named(wc.src_qp), wc.sl);
    }
    if (got < wanted)
        tell("%s%d of %d came", got ? "; " : "", got, wanted);
}

static bool readable(int file, int milliseconds) {
    struct pollfd wait = {.fd = file, .events = POLLIN};
    return poll(&wait, 1, milliseconds) == 1;
}

static void async_event(int milliseconds) {
    struct ibv_async_event event;
    if (!readable(context->async_fd, milliseconds)) {
        tell("none");
        return;
    }
    if (ibv_get_async_event(context, &event)) {
        tell("%s", error_name(errno));
        return;
    }
    tell("%s", ibv_event_type_str(event.event_type));
    if (event.event_type <= IBV_EVENT_PATH_MIG_ERR || event.event_type >= IBV_EVENT_SRQ_ERR)
        tell(" %s", named(event.element.qp));
    ibv_ack_async_event(&event);
}

static void cq_event(void) {
    struct ibv_comp_channel *channel = AP(0);
    struct ibv_cq *cq = NULL;
    void *given;
    if (left_out)
        return;
    if (!readable(channel->fd, k("wait", COMES))) {
        tell("none");
        return;
    }
    tell_int(ibv_get_cq_event(channel, &cq, &given));
    tell(" %s", named(cq));
    if (cq)
        ibv_ack_cq_events(cq, 1);
}

static void query_device(void) {
    struct ibv_device_attr *d = &limits;
    tell_int(ibv_query_device(context, d));
#define F(field) tell(" " #field "=%llu", (unsigned long long)d->field);
    F(max_mr_size) F(page_size_cap) F(max_qp) F(max_qp_wr) F(device_cap_flags) F(max_sge) F(max_sge_rd) F(max_cq) F(max_cqe)
    F(max_mr) F(max_pd) F(max_qp_rd_atom) F(max_ee_rd_atom) F(max_res_rd_atom) F(max_qp_init_rd_atom) F(atomic_cap) F(max_mw)
    F(max_raw_ipv6_qp) F(max_mcast_grp) F(max_mcast_qp_attach) F(max_total_mcast_qp_attach) F(max_ah) F(max_srq) F(max_srq_wr)
    F(max_srq_sge) F(max_pkeys) F(local_ca_ack_delay) F(phys_port_cnt) F(vendor_id) F(vendor_part_id)
}

static void query_device_ex(void) {
    struct ibv_device_attr_ex x = {0}, *d = &x;
    tell_int(ibv_query_device_ex(context, key("null") ? NULL : &(struct ibv_query_device_ex_input){.comp_mask = k("mask", 0)}, d));
    F(comp_mask) F(odp_caps.general_caps) F(completion_timestamp_mask) F(hca_core_clock) F(device_cap_flags_ex)
    F(tso_caps.max_tso) F(tso_caps.supported_qpts) F(rss_caps.supported_qpts) F(rss_caps.max_rwq_indirection_tables)
    F(rss_caps.max_rwq_indirection_table_size) F(rss_caps.rx_hash_fields_mask) F(rss_caps.rx_hash_function) F(max_wq_type_rq)
    F(packet_pacing_caps.qp_rate_limit_min) F(packet_pacing_caps.qp_rate_limit_max) F(raw_packet_caps) F(tm_caps.max_num_tags)
    F(cq_mod_caps.max_cq_count) F(cq_mod_caps.max_cq_period) F(max_dm_size) F(pci_atomic_caps.fetch_add) F(xrc_odp_caps)
    F(phys_port_cnt_ex)
}

static void query_port(int port) {
    struct ibv_port_attr x = {0}, *d = &x;
    int result = ibv_query_port(context, port, d);
    tell_int(result);
    if (result)
        return;
    F(state) F(max_mtu) F(active_mtu) F(port_cap_flags) F(max_msg_sz) F(bad_pkey_cntr) F(qkey_viol_cntr) F(pkey_tbl_len)
    F(lid) F(sm_lid) F(lmc) F(max_vl_num) F(sm_sl) F(subnet_timeout) F(init_type_reply) F(active_width) F(active_speed)
    F(phys_state) F(link_layer) F(flags) F(port_cap_flags2)
}

static void query_gid_ex(int port, int index) {
    struct ibv_gid_entry entry = {0};
    int result = ibv_query_gid_ex(context, port, index, &entry, k("flags", 0));
    tell_int(result);
    if (!result)
        tell(" type=%d port=%d index=%d", entry.gid_type, entry.port_num, entry.gid_index - index);
}

static void query_srq(struct ibv_srq *srq) {
    struct ibv_srq_attr attr = {0};
    int result = ibv_query_srq(srq, &attr);
    tell_int(result);
    tell(" wr=%u sge=%u limit=%u", attr.max_wr, attr.max_sge, attr.srq_limit);
}

static int modify_cq(struct ibv_cq *cq) {
    struct ibv_modify_cq_attr attr = {.attr_mask = k("mask", IBV_CQ_ATTR_MODERATE)};
    attr.moderate.cq_count = k("count", 0);
    attr.moderate.cq_period = k("period", 0);
    return ibv_modify_cq(cq, &attr);
}

static union ibv_gid group(void) {
    return (union ibv_gid){.raw = {k("prefix", 0xff), 0x0e, [15] = k("group", 1)}};
}

static void *memory(int protection) {
    char *pages = mmap(NULL, BUFFER, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    for (size_t i = 0; pages != MAP_FAILED && i < BUFFER; i++)
        pages[i] = i * 7 + i / 256 * 5;
    if (pages == MAP_FAILED || mprotect(pages, BUFFER, protection))
        fail("no memory", "");
    return pages;
}

static struct ibv_mr *reg(bool iova) {
    char *at = AP(1);
    struct ibv_pd *pd = AP(0);
    uint64_t size = a(2), access = a(3), from = k("iova", (uintptr_t)at);
    at += k("at", 0);
    if (left_out)
        return NULL;
    return iova ? ibv_reg_mr_iova2(pd, at, size, from, access) : (ibv_reg_mr)(pd, at, size, access);
}

/* Makes the call of a name. */
static bool call(const char *name) {
    struct ibv_ah_attr ah = ah_attr();
#define ARE(known) if (!strcmp(name, known))
/* What returns a number of an error, or -1. The arguments are looked at first, and the call is left out if one is not there. */
#define INT(known, one, expression)                                                                                            \
    ARE(known) {                                                                                                               \
        one;                                                                                                                   \
        if (!left_out)                                                                                                         \
            tell_int(expression);                                                                                              \
        return true;                                                                                                           \
    }
#define NEW(known, one, expression, destroy)                                                                                   \
    ARE(known) {                                                                                                               \
        one;                                                                                                                   \
        void *pointer = left_out ? NULL : (void *)(expression);                                                                \
        if (!left_out)                                                                                                         \
            tell_new(known, pointer, (int (*)(void *))destroy);                                                                       \
        return true;                                                                                                           \
    }
#define DO(known, statement)                                                                                                   \
    ARE(known) {                                                                                                               \
        statement;                                                                                                             \
        return true;                                                                                                           \
    }
#define END(known, destroy)                                                                                                    \
    ARE(known) {                                                                                                               \
        void *pointer = AP(0);                                                                                                 \
        if (left_out)                                                                                                          \
            return true;                                                                                                       \
        int result = destroy(pointer);                                                                                         \
        tell_int(result);                                                                                                      \
        for (int i = 0; i < object_count; i++)                                                                                 \
            objects[i].gone |= !result && objects[i].pointer == pointer;                                                       \
        return true;                                                                                                           \
    }
#define P0 void *x = AP(0)
#define P1 void *x = AP(0), *y = AP(1)
    NEW("memory", int how = a(0), memory(how), unmap)
    NEW("alloc_pd", void *on = opened(), ibv_alloc_pd(on), ibv_dealloc_pd)
    END("dealloc_pd", ibv_dealloc_pd)
    NEW("reg_mr", , reg(false), ibv_dereg_mr)
    NEW("reg_mr_iova", , reg(true), ibv_dereg_mr)
    END("dereg_mr", ibv_dereg_mr)
    INT("rereg_mr", P0; uint64_t f = a(1); void *pd = AP(2); void *at = AP(3); size_t size = a(4); int access = a(5),
        ibv_rereg_mr(x, f, pd, at, size, access))
    DO("mr", P0; struct ibv_mr *mr = x; if (!left_out) tell("length=%zu pd=%s lkey=%s", mr->length, named(mr->pd),
        mr->lkey == mr->rkey ? "rkey" : "another"))
    NEW("alloc_mw", void *x = AP(0); int type = a(1), ibv_alloc_mw(x, type), ibv_dealloc_mw)
    END("dealloc_mw", ibv_dealloc_mw)
    INT("bind_mw", P1; struct ibv_mr *mr = AP(2); uint64_t size = k("size", BUFFER); int access = k("access", 0),
        ibv_bind_mw(x, y, &(struct ibv_mw_bind){.wr_id = k("id", 1), .send_flags = k("flags", 0),
                    .bind_info = {mr, mr ? (uintptr_t)mr->addr : 0, size, access}}))
    NEW("create_comp_channel", void *on = opened(), ibv_create_comp_channel(on), ibv_destroy_comp_channel)
    END("destroy_comp_channel", ibv_destroy_comp_channel)
    NEW("create_cq", int cqe = a(0); void *channel = AP(1); int vector = a(2); void *on = opened(),
        ibv_create_cq(on, cqe, NULL, channel, vector), ibv_destroy_cq)
    NEW("create_cq_ex", KP("channel"), create_cq_ex(), ibv_destroy_cq)
    END("destroy_cq", ibv_destroy_cq)
    INT("resize_cq", P0; int size = a(1), ibv_resize_cq(x, size))
    INT("modify_cq", P0, modify_cq(x))
    DO("cq", P0; struct ibv_cq *cq = x; if (!left_out) tell("cqe=%d channel=%s", cq->cqe, named(cq->channel)))
    INT("req_notify_cq", P0; int solicited = a(1), ibv_req_notify_cq(x, solicited))
    DO("cq_event", cq_event())
    DO("poll", poll_cq())
    NEW("create_srq", void *x = AP(0), ibv_create_srq(x, &(struct ibv_srq_init_attr){.attr = {.max_wr = k("wr", 4),
        .max_sge = k("sge", 1), .srq_limit = k("limit", 0)}}), ibv_destroy_srq)
    NEW("create_srq_ex", KP("pd"); KP("cq"); KP("xrcd"), create_srq_ex(), ibv_destroy_srq)
    END("destroy_srq", ibv_destroy_srq)
    INT("modify_srq", P0; int mask = a(1), ibv_modify_srq(x, &(struct ibv_srq_attr){.max_wr = k("wr", 0),
        .srq_limit = k("limit", 0)}, mask))
    DO("query_srq", P0; if (!left_out) query_srq(x))
    NEW("open_xrcd", int fd = k("fd", -1); int flags = k("oflags", O_CREAT), ibv_open_xrcd(context, &(struct ibv_xrcd_init_attr){
        .comp_mask = k("mask", IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS), .fd = fd, .oflags = flags}), ibv_close_xrcd)
    END("close_xrcd", ibv_close_xrcd)
    NEW("create_qp", AP(0); KP("send_cq"); KP("recv_cq"); KP("srq"), create_qp(), ibv_destroy_qp)
    NEW("create_qp_ex", KP("pd"); KP("send_cq"); KP("recv_cq"); KP("srq"); KP("xrcd"), create_qp_ex(), ibv_destroy_qp)
    END("destroy_qp", ibv_destroy_qp)
    INT("modify_qp", AP(0); if (key("dest")) KP("dest"), modify_qp())
    DO("query_qp", query_qp())
    DO("query_cap", P0; if (!left_out) query_cap(x))
    DO("sum", P0; size_t from = a(1); size_t length = a(2); if (!left_out) tell("%u", sum((uint8_t *)x + from, length)))
    DO("post_send", post(false))
    DO("post_recv", post(true))
    NEW("create_ah", void *x = AP(0), ibv_create_ah(x, &ah), ibv_destroy_ah)
    END("destroy_ah", ibv_destroy_ah)
    INT("attach_mcast", P0; union ibv_gid g = group(), ibv_attach_mcast(x, &g, k("lid", 0xc001)))
    INT("detach_mcast", P0; union ibv_gid g = group(), ibv_detach_mcast(x, &g, k("lid", 0xc001)))
    DO("async", async_event(COMES))
    DO("no_async", async_event(STAYS_AWAY))
    DO("query_device", query_device())
    DO("query_device_ex", query_device_ex())
    DO("query_port", query_port(a(0)))
    INT("query_gid", union ibv_gid gid, ibv_query_gid(context, a(0), a(1), &gid))
    DO("query_gid_ex", query_gid_ex(a(0), a(1)))
    DO("query_pkey", uint16_t pkey = 0; int result = ibv_query_pkey(context, a(0), a(1), &pkey); tell_int(result);
        if (!result) tell(" %#x", be16toh(pkey)))
    DO("get_pkey_index", tell("%d", ibv_get_pkey_index(context, a(0), htobe16(a(1)))))
    INT("query_rt_values", struct ibv_values_ex v = {.comp_mask = k("mask", IBV_VALUES_MASK_RAW_CLOCK)},
        ibv_query_rt_values_ex(context, &v))
    DO("rate_to_mult", tell("%d", ibv_rate_to_mult(a(0))))
    DO("mult_to_rate", tell("%d", mult_to_ibv_rate(a(0))))
    DO("rate_to_mbps", tell("%d", ibv_rate_to_mbps(a(0))))
    DO("mbps_to_rate", tell("%d", mbps_to_ibv_rate(a(0))))
    DO("wc_status_str", tell("%s", ibv_wc_status_str(a(0))))
    DO("event_type_str", tell("%s", ibv_event_type_str(a(0))))
    DO("node_type_str", tell("%s", ibv_node_type_str(a(0))))
    DO("port_state_str", tell("%s", ibv_port_state_str(a(0))))
    DO("wr_opcode_str", const char *text = ibv_wr_opcode_str(a(0)); tell("%s", text ? text : "null"))
    DO("rdma_event_str", tell("%s", rdma_event_str(a(0))))
    return cm_call(name) || extended_call(name);
}

static void died(int number) {
    if (number == SIGSEGV) {
        signal_number = number;
        siglongjmp(before_call, 1);
    }
    char text[160];
    int length = snprintf(text, sizeof text, "%d died of signal %d\n", line_number, number);
    fflush(stdout);
    if (write(1, text, length) < 0 || number)
        _exit(3);
}

/* Ends a script: its last objects go first, and again those that were busy. Events of theirs that were not taken go too. */
static void destroy_objects(void) {
    join_apart();
    for (int round = 0; round < 3; round++)
        for (int i = object_count; i-- > 0;)
            if (objects[i].pointer && !objects[i].gone && objects[i].destroy)
                objects[i].gone = !objects[i].destroy(objects[i].pointer);
    object_count = 0;
    while (readable(context->async_fd, 0))
        async_event(0);
}

static void open_device(void) {
    struct ibv_device **list = ibv_get_device_list(NULL);
    context = list && *list ? ibv_open_device(*list) : NULL;
    if (!context || ibv_query_device(context, &limits))
        fail("no device", "");
    ibv_free_device_list(list);
    struct ibv_gid_entry entry;
    for (gid_index = 0; !ibv_query_gid_ex(context, 1, gid_index, &entry, 0) || errno == ENODATA; gid_index++) {
        own_gid = entry.gid;
        if (entry.gid_type == IBV_GID_TYPE_ROCE_V2 && own_gid.raw[10] == 0xff && !own_gid.raw[0])
            return;
    }
    fail("no GID", "");
}

int main(void) {
    static char line[1024], name[1024];
    signal(SIGSEGV, died);
    signal(SIGABRT, died);
    signal(SIGALRM, died);
    open_device();
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        alarm(LIMIT_SECONDS);
        if (*line == '@') {
            destroy_objects();
            snprintf(name, sizeof name, "%s", line + 2);
            script = name;
            printf("%s\n", line);
            continue;
        }
        char *rest = line, *word;
        for (word_count = 0; (word = strsep(&rest, " "));)
            if (*word && word_count < 48)
                words[word_count++] = word;
        line_number = atoi(words[0]);
        names = word_count > 3 && !strcmp(words[2], "=");
        static char *called;
        char *object = words[1];
        called = words[names ? 3 : 1];
        int first = names ? 4 : 2;
        word_count -= first;
        memmove(words, words + first, word_count * sizeof *words);
        left_out = false;
        made = NULL;
        told[0] = 0;
        if (names) {
            if (object_count == sizeof objects / sizeof *objects)
                fail("too many objects", "");
            objects[object_count] = (struct object){.pointer = NULL};
            snprintf(objects[object_count++].name, sizeof objects->name, "%s", object);
        }
        errno = 0;
        if (sigsetjmp(before_call, 1)) {
            told[0] = 0;
            tell("died of signal %d", signal_number);
        } else if (!call(called)) {
            fail("no such call:", called);
        }
        failed = left_out || !strncmp(told, "-1", 2) || !strncmp(told, "null", 4);
        if (names)
            objects[object_count - 1].pointer = made;
        printf("%d %s\n", line_number, left_out ? "left out" : told);
    }
    destroy_objects();
    ibv_close_device(context);
    printf("@ end\n");
    return 0;
}
