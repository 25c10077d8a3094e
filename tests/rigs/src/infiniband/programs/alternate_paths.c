/*
 * Alternate paths by rdma-core: an RC connection between two ports, each of which has several identifiers, keeps data moving
 * while the path in use is cut.
 *
 *     alternate_paths DEVICE DEVICE BITS BITS BITS BITS COMMAND...
 *
 * The bits are the low ones of the identifiers: of the first and the second port on the path, then of both on the alternate
 * path. Each command is executed under the data flow; what comes next is that the connection migrates. Commands are in pairs:
 * the second of each pair makes the path that was left usable again, and it is loaded as the alternate one.
 */

#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    LEN = 40000,
    /* 4.096 us times 2 to the 12th: 17 ms. */
    TIMEOUT = 12,
    RETRIES = 2,
    LIMIT = 60,
};

struct end {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_mr *mr;
    struct ibv_qp *qp;
    uint8_t *memory;
    uint16_t lid;
    int migrations;
};

static struct end ends[2];

__attribute__((noreturn, format(printf, 1, 2))) static void fail(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    printf("FAIL ");
    vprintf(format, arguments);
    printf("\n");
    exit(1);
}

static void check(int wrong, const char *what)
{
    if (wrong)
        fail("%s: %s", what, strerror(wrong > 0 ? wrong : errno));
}

static void open_end(struct end *end, const char *name)
{
    int count;
    struct ibv_device **list = ibv_get_device_list(&count);
    struct ibv_port_attr port;
    struct ibv_device_attr device;

    for (int at = 0; at < count; at++)
        if (strcmp(ibv_get_device_name(list[at]), name) == 0)
            end->context = ibv_open_device(list[at]);
    check(!end->context, name);
    ibv_free_device_list(list);
    check(ibv_query_device(end->context, &device), "ibv_query_device");
    if (!(device.device_cap_flags & IBV_DEVICE_AUTO_PATH_MIG))
        fail("%s has no alternate paths", name);
    check(ibv_query_port(end->context, 1, &port), "ibv_query_port");
    end->lid = port.lid;
    end->memory = calloc(2, LEN);
    end->pd = ibv_alloc_pd(end->context);
    check(!end->pd, "ibv_alloc_pd");
    end->mr = ibv_reg_mr(end->pd, end->memory, 2 * LEN, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    check(!end->mr, "ibv_reg_mr");
    end->cq = ibv_create_cq(end->context, 16, NULL, NULL, 0);
    check(!end->cq, "ibv_create_cq");
    struct ibv_qp_init_attr init = {
        .send_cq = end->cq,
        .recv_cq = end->cq,
        .cap = { .max_send_wr = 4, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
        .qp_type = IBV_QPT_RC,
    };
    end->qp = ibv_create_qp(end->pd, &init);
    check(!end->qp, "ibv_create_qp");
    check(fcntl(end->context->async_fd, F_SETFL, O_NONBLOCK), "fcntl");
}

static struct ibv_ah_attr path(int from, const int bits[2])
{
    return (struct ibv_ah_attr){
        .dlid = ends[!from].lid | bits[!from],
        .src_path_bits = bits[from],
        .port_num = 1,
    };
}

static void connect_end(int number, const int bits[2])
{
    struct ibv_qp *qp = ends[number].qp;
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT,
        .port_num = 1,
        .qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
    };

    check(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTR,
        .path_mtu = IBV_MTU_1024,
        .dest_qp_num = ends[!number].qp->qp_num,
        .ah_attr = path(number, bits),
        .max_dest_rd_atomic = 1,
        .min_rnr_timer = 12,
    };
    check(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
          "RTR");
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTS,
        .timeout = TIMEOUT,
        .retry_cnt = RETRIES,
        .rnr_retry = 7,
        .max_rd_atomic = 1,
    };
    check(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                       IBV_QP_MAX_QP_RD_ATOMIC),
          "RTS");
}

static void load(int number, const int bits[2])
{
    struct ibv_qp_attr attr = {
        .alt_ah_attr = path(number, bits),
        .alt_port_num = 1,
        .alt_timeout = TIMEOUT,
        .path_mig_state = IBV_MIG_REARM,
    };

    check(ibv_modify_qp(ends[number].qp, &attr, IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE), "REARM");
}

static void query(int number, enum ibv_mig_state state, const int bits[2], const char *what)
{
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    struct ibv_ah_attr wanted = path(number, bits);

    check(ibv_query_qp(ends[number].qp, &attr, IBV_QP_PATH_MIG_STATE | IBV_QP_AV, &init), "ibv_query_qp");
    if (attr.path_mig_state != state)
        fail("end %d is in migration state %d, %s", number, attr.path_mig_state, what);
    if (attr.ah_attr.dlid != wanted.dlid || attr.ah_attr.src_path_bits != wanted.src_path_bits)
        fail("end %d is on the path to %d, %s", number, attr.ah_attr.dlid, what);
}

/* One write each way, whose bytes are those that were written. */
static void exchange(unsigned seed)
{
    time_t end = time(NULL) + LIMIT;

    for (int number = 0; number < 2; number++) {
        struct end *from = &ends[number], *to = &ends[!number];
        for (int at = 0; at < LEN; at++)
            from->memory[at] = (at * 2654435761u + seed * 40503u + number) >> 11;
        struct ibv_sge sge = { (uintptr_t)from->memory, LEN, from->mr->lkey };
        struct ibv_send_wr *bad, wr = {
            .wr_id = seed,
            .sg_list = &sge,
            .num_sge = 1,
            .opcode = IBV_WR_RDMA_WRITE,
            .send_flags = IBV_SEND_SIGNALED,
            .wr.rdma = { (uintptr_t)to->memory + LEN, to->mr->rkey },
        };
        check(ibv_post_send(from->qp, &wr, &bad), "ibv_post_send");
    }
    for (int number = 0; number < 2; number++) {
        struct ibv_wc wc;
        int count;
        while ((count = ibv_poll_cq(ends[number].cq, 1, &wc)) == 0)
            if (time(NULL) > end)
                fail("no completion at end %d", number);
        if (count < 0 || wc.status != IBV_WC_SUCCESS || wc.wr_id != seed)
            fail("end %d: %s", number, count < 0 ? "ibv_poll_cq" : ibv_wc_status_str(wc.status));
    }
    for (int number = 0; number < 2; number++)
        if (memcmp(ends[number].memory, ends[!number].memory + LEN, LEN) != 0)
            fail("bytes of end %d differ", number);
}

static void events(void)
{
    for (int number = 0; number < 2; number++) {
        struct ibv_async_event event;
        while (ibv_get_async_event(ends[number].context, &event) == 0) {
            if (event.event_type == IBV_EVENT_PATH_MIG && event.element.qp == ends[number].qp)
                ends[number].migrations++;
            else if (event.event_type == IBV_EVENT_PATH_MIG_ERR || event.event_type == IBV_EVENT_QP_FATAL)
                fail("end %d: %s", number, ibv_event_type_str(event.event_type));
            ibv_ack_async_event(&event);
        }
    }
}

static void run(const char *command)
{
    int status = system(command);

    if (status != 0)
        fail("%s: %d", command, status);
}

int main(int count, char **words)
{
    int bits[2][2], used = 0, wanted = 0;
    unsigned seed = 0;

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (count < 9 || count % 2 == 0)
        fail("alternate_paths DEVICE DEVICE BITS BITS BITS BITS COMMAND...");
    for (int at = 0; at < 4; at++)
        bits[at / 2][at % 2] = atoi(words[3 + at]);
    for (int number = 0; number < 2; number++)
        open_end(&ends[number], words[1 + number]);
    for (int number = 0; number < 2; number++)
        connect_end(number, bits[used]);
    exchange(++seed);
    for (int at = 7; at < count; at += 2) {
        time_t end = time(NULL) + LIMIT;
        unsigned rounds = 0;

        for (int number = 0; number < 2; number++)
            load(number, bits[!used]);
        exchange(++seed);
        for (int number = 0; number < 2; number++)
            query(number, IBV_MIG_ARMED, bits[used], "before the cut");
        run(words[at]);
        wanted++;
        while (ends[0].migrations < wanted || ends[1].migrations < wanted) {
            exchange(++seed);
            rounds++;
            events();
            if (time(NULL) > end)
                fail("cut %d: %d and %d migrations", wanted, ends[0].migrations, ends[1].migrations);
        }
        exchange(++seed);
        used = !used;
        for (int number = 0; number < 2; number++)
            query(number, IBV_MIG_MIGRATED, bits[used], "after the cut");
        printf("PASS cut %d: both ends have migrated in %u rounds\n", wanted, rounds);
        run(words[at + 1]);
        exchange(++seed);
    }
    events();
    if (ends[0].migrations != wanted || ends[1].migrations != wanted)
        fail("%d and %d migrations", ends[0].migrations, ends[1].migrations);
    printf("PASS %d cuts, %u exchanges\n", wanted, seed);
    return 0;
}
