/* The language of the scripts, for runner.c: compiled as one text with it, and first. An argument of a call is the name of an
 * object, a number, `null`, constants of the headers without IBV_ joined by `|`, or KEY=VALUE. What may differ between two
 * computers (addresses, keys, numbers of queues) is told as whether it is there, or is another's. */

#define _GNU_SOURCE
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LIMIT_SECONDS 30
/* Milliseconds to wait for an event or a completion that has to come, unless PATIENCE in the environment says otherwise, and for
 * one that must not. */
static int patience = 10000;
#define COMES patience
#define STAYS_AWAY 40
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

static void fail(const char *what, const char *word) {
    printf("FAILED: %s:%d: %s %s\n", script, line_number, what, word);
    exit(2);
}

/* The functions of the libraries that a script calls. Their names are in `counted`, which coverage.rs
 * writes with the code through which the linker leads their calls; it marks them in `calls_made`. */
__attribute__((visibility("hidden"))) char calls_made[COUNTED];

static void count_call(const char *function) {
    for (int i = 0; i < COUNTED; i++)
        if (!strcmp(counted[i], function))
            calls_made[i] = 1;
}

/* Prints the functions that the script has called. */
static void print_calls(void) {
    printf("calls");
    for (int i = 0; i < COUNTED; i++)
        if (calls_made[i])
            printf(" %s", counted[i]);
    printf("\n");
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

/* The argument at a place, of those without a key, as it is written. */
static const char *text(int place) {
    for (int i = 0; i < word_count; i++)
        if (!strchr(words[i], '=') && place-- == 0)
            return words[i];
    fail("too few arguments", "");
    return NULL;
}

/* Addresses by their names. */
static const struct {
    const char *name, *text;
} addresses[] = {
    {"own", "10.0.0.1"},     {"silent", "10.0.0.77"}, {"foreign", "192.0.2.1"}, {"any", "0.0.0.0"},
    {"loop", "127.0.0.1"},   {"group", "239.1.2.3"},  {"group2", "239.1.2.4"},  {"own6", "fd00::1"},
    {"silent6", "fd00::77"}, {"foreign6", "2001:db8::1"}, {"any6", "::"},       {"loop6", "::1"},
    {"group6", "ff0e::4"},   {"broadcast", "255.255.255.255"},
};

/* The text of an address by its name; another name stands for itself. */
static const char *host(const char *name) {
    for (size_t i = 0; i < sizeof addresses / sizeof *addresses; i++)
        if (!strcmp(name, addresses[i].name))
            return addresses[i].text;
    return strcmp(name, "null") ? name : NULL;
}

/* The GID of an address by its name. */
static union ibv_gid gid_of(const char *name) {
    union ibv_gid gid = {.raw = {[10] = 0xff, 0xff}};
    if (inet_pton(AF_INET6, host(name), &gid) != 1 && inet_pton(AF_INET, host(name), gid.raw + 12) != 1)
        fail("no such address:", name);
    return gid;
}

/* The device as the runner opened it, as the script did (`on`), or as an id has it (`of`). */
static struct ibv_context *opened(void) {
    struct ibv_context *on = KP("on");
    struct rdma_cm_id *id = KP("of");
    if (id && !left_out && !id->verbs)
        left_out = true;
    return left_out ? context : on ? on : id ? id->verbs : context;
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

static bool is_id(const struct object *object) {
    return is(object, "create_id") || is(object, "create_ep") || is(object, "get_request");
}

/* The name of a queue pair, or of the id that has it. */
static const char *qp_named(uint32_t number) {
    for (int i = 0; i < object_count; i++) {
        struct rdma_cm_id *id = is_id(&objects[i]) ? objects[i].pointer : NULL;
        struct ibv_qp *qp = id ? id->qp : is(&objects[i], "create_qp") ? objects[i].pointer : NULL;
        if (qp && qp->qp_num == number)
            return objects[i].name;
    }
    return number ? "another" : "0";
}

static const char *error_name(int number) {
    const char *name = strerrorname_np(number);
    return name ? name : "no-such-error";
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

static uint64_t milliseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000ull + now.tv_nsec / 1000000;
}

static bool readable(int file, int milliseconds) {
    struct pollfd wait = {.fd = file, .events = POLLIN};
    return poll(&wait, 1, milliseconds) == 1;
}

/* Calls, in functions that look for one by its `name`. */
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
