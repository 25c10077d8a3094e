/* The extended ways to post and to poll, and further calls of libibverbs, for runner.c: compiled as one text with it. */

#include <sys/wait.h>

/* Exported for drivers, whose header is not installed. */
int ibv_dofork_range(void *base, size_t size);
int ibv_dontfork_range(void *base, size_t size);
const char *ibv_get_sysfs_path(void);
int ibv_read_sysfs_file(const char *folder, const char *file, char *bytes, size_t size);

/* Posts `count` requests through ibv_wr_*, all with the same arguments, and rings once; or aborts them. */
static void wr_post(struct ibv_qp *qp) {
    struct ibv_qp_ex *qpx = ibv_qp_to_qp_ex(qp);
    struct ibv_mr *mr = KP("mr"), *to = key("to") ? KP("to") : mr;
    struct ibv_mw *mw = KP("mw");
    struct ibv_ah *ah = KP("ah");
    struct ibv_qp *dest = KP("dest");
    uint64_t op = k("op", IBV_WR_SEND), remote = (to ? (uintptr_t)to->addr : 0) + k("remote", BUFFER / 2);
    uint32_t rkey = mw ? mw->rkey : to ? to->rkey + k("rkey", 0) : 0, length = k("len", 8), sges = k("sges", 1);
    char *at = mr ? (char *)mr->addr + k("at", 0) : NULL;
    struct ibv_sge list[128];
    struct ibv_data_buf buffers[128];
    if (left_out)
        return;
    if (sges > 128)
        fail("too many entries", "");
    if (!qpx) {
        tell("no extended queue pair");
        return;
    }
    for (uint32_t i = 0; i < sges; i++) {
        list[i] = (struct ibv_sge){.addr = (uintptr_t)at + i * length, .length = length, .lkey = (mr ? mr->lkey : 0) + k("lkey", 0)};
        buffers[i] = (struct ibv_data_buf){.addr = at + i * length, .length = length};
    }
    data_of[0][k("id", 1) & 255] = (struct data){(const uint8_t *)at, sges * length};
    ibv_wr_start(qpx);
    for (uint64_t i = k("count", 1); i > 0; i--) {
        qpx->wr_id = k("id", 1);
        qpx->wr_flags = k("flags", 0);
        bool data = true;
        if (op == IBV_WR_SEND)
            ibv_wr_send(qpx);
        else if (op == IBV_WR_SEND_WITH_IMM)
            ibv_wr_send_imm(qpx, htobe32(k("imm", 0)));
        else if (op == IBV_WR_SEND_WITH_INV)
            ibv_wr_send_inv(qpx, rkey);
        else if (op == IBV_WR_RDMA_WRITE)
            ibv_wr_rdma_write(qpx, rkey, remote);
        else if (op == IBV_WR_RDMA_WRITE_WITH_IMM)
            ibv_wr_rdma_write_imm(qpx, rkey, remote, htobe32(k("imm", 0)));
        else if (op == IBV_WR_RDMA_READ)
            ibv_wr_rdma_read(qpx, rkey, remote);
        else if (op == IBV_WR_ATOMIC_CMP_AND_SWP)
            ibv_wr_atomic_cmp_swp(qpx, rkey, remote, k("compare", 0), k("swap", 1));
        else if (op == IBV_WR_ATOMIC_FETCH_AND_ADD)
            ibv_wr_atomic_fetch_add(qpx, rkey, remote, k("compare", 0));
        else if (op == IBV_WR_LOCAL_INV)
            data = (ibv_wr_local_inv(qpx, rkey), false);
        else if (op == IBV_WR_BIND_MW) {
            struct ibv_mw_bind_info info = {to, to ? (uintptr_t)to->addr : 0, k("size", BUFFER), k("access", 0)};
            mw->rkey = ibv_inc_rkey(mw->rkey);
            ibv_wr_bind_mw(qpx, mw, mw->rkey, &info);
            data = false;
        } else {
            fail("no such operation:", key("op"));
        }
        if (ah)
            ibv_wr_set_ud_addr(qpx, ah, dest ? dest->qp_num : k("qpn", 0), k("qkey", 0x11111111));
        if (!data || key("no_data"))
            continue;
        if (key("inline"))
            sges == 1 ? ibv_wr_set_inline_data(qpx, at, length) : ibv_wr_set_inline_data_list(qpx, sges, buffers);
        else
            sges == 1 ? ibv_wr_set_sge(qpx, list->lkey, list->addr, length) : ibv_wr_set_sge_list(qpx, sges, list);
    }
    if (key("abort")) {
        ibv_wr_abort(qpx);
        tell("aborted");
        return;
    }
    tell_int(ibv_wr_complete(qpx));
}

/* Polls through ibv_start_poll, until so many completions have come. */
static void poll_ex(struct ibv_cq_ex *cq, int wanted) {
    struct ibv_poll_cq_attr attr = {.comp_mask = k("mask", 0)};
    int result = ENOENT, got = 0;
    uint64_t has = k("wc", IBV_WC_STANDARD_FLAGS);
    const uint64_t end = milliseconds() + COMES;
    while ((result = ibv_start_poll(cq, &attr)) == ENOENT && wanted && milliseconds() < end)
        usleep(1000);
    if (result) {
        tell("%s", error_name(result));
        return;
    }
    for (;;) {
        enum ibv_wc_opcode opcode = cq->status ? 0 : ibv_wc_read_opcode(cq);
        got++;
        tell("%s%llu %s %s", got > 1 ? "; " : "", (unsigned long long)cq->wr_id,
             has & IBV_WC_EX_WITH_QP_NUM ? qp_named(ibv_wc_read_qp_num(cq)) : "?", ibv_wc_status_str(cq->status));
        if (!cq->status) {
            unsigned flags = ibv_wc_read_wc_flags(cq);
            tell(" op=%d flags=%u", opcode, flags);
            if (has & IBV_WC_EX_WITH_BYTE_LEN && (opcode & IBV_WC_RECV || opcode == IBV_WC_RDMA_READ))
                tell(" bytes=%u", ibv_wc_read_byte_len(cq));
            if (opcode & IBV_WC_RECV && flags & IBV_WC_WITH_IMM)
                tell(" imm=%u", be32toh(ibv_wc_read_imm_data(cq)));
            if (opcode & IBV_WC_RECV && flags & IBV_WC_GRH && has & IBV_WC_EX_WITH_SRC_QP)
                tell(" from=%s sl=%d", qp_named(ibv_wc_read_src_qp(cq)), has & IBV_WC_EX_WITH_SL ? ibv_wc_read_sl(cq) : 0);
        }
        if (got >= wanted)
            break;
        for (int idle = 0; (result = ibv_next_poll(cq)) == ENOENT && idle < COMES; idle++) {
            ibv_end_poll(cq);
            while ((result = ibv_start_poll(cq, &attr)) == ENOENT && idle++ < COMES)
                usleep(1000);
            if (result) {
                tell("; %d of %d came", got, wanted);
                return;
            }
            break;
        }
        if (result)
            break;
    }
    ibv_end_poll(cq);
}

/* An address handle of a receive's completion: its queue is polled here, and the headers are where the receive went. */
static struct ibv_ah *ah_of_completion(struct ibv_pd *pd, struct ibv_cq *cq, char *headers, bool made) {
    struct ibv_wc wc = {0};
    struct ibv_ah_attr attr = {0};
    for (int idle = 0; !ibv_poll_cq(cq, 1, &wc) && idle < COMES; idle++)
        usleep(1000);
    if (key("no_grh"))
        wc.wc_flags &= ~IBV_WC_GRH;
    struct ibv_grh *grh = (void *)(headers + BUFFER / 2);
    int port = k("port", 1);
    if (made)
        return ibv_create_ah_from_wc(pd, &wc, grh, port);
    tell_int(ibv_init_ah_from_wc(context, port, &wc, grh, &attr));
    tell_ah(&attr);
    return NULL;
}

static void resolve_eth(void) {
    struct ibv_ah_attr attr = ah_attr();
    uint8_t mac[6] = {0};
    uint16_t vlan = 0;
    attr.port_num = k("ah_port", 1);
    int result = ibv_resolve_eth_l2_from_gid(context, &attr, mac, &vlan);
    tell_int(result);
    if (!result)
        tell(" vlan=%#x mac=%s", vlan, mac[0] | mac[1] | mac[2] | mac[3] | mac[4] | mac[5] ? "some" : "none");
}

/* It is exported, for rdma-core's own libraries: no header has it. */
static void query_gid_type(int port, unsigned index) {
    int (*ibv_query_gid_type)(struct ibv_context *, uint8_t, unsigned, int *) = dlsym(RTLD_DEFAULT, "ibv_query_gid_type");
    count_call("ibv_query_gid_type");
    int type = -1;
    tell_int(ibv_query_gid_type(context, port, index, &type));
    tell(" type=%d", type);
}

static void device_list(void) {
    int count = -1;
    struct ibv_device **list = ibv_get_device_list(key("null") ? NULL : &count);
    struct ibv_device *first = list ? *list : NULL;
    tell("%s count=%d", list ? "list" : "null", count);
    if (!first) {
        if (list)
            ibv_free_device_list(list);
        return;
    }
    struct ibv_context *other = ibv_open_device(first);
    tell(" name=%s guid=%s index=%s node=%d transport=%d opened=%s", strlen(ibv_get_device_name(first)) ? "some" : "none",
         ibv_get_device_guid(first) ? "some" : "none", ibv_get_device_index(first) >= 0 ? "some" : "none", first->node_type,
         first->transport_type, other ? "yes" : "no");
    ibv_free_device_list(list);
    if (other)
        tell_int(ibv_close_device(other));
}

static struct ibv_context *open_device_again(void) {
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *again = list && *list ? ibv_open_device(*list) : NULL;
    ibv_free_device_list(list);
    return again;
}

/* Reads a file in memory, of the text of a word. */
static void read_file(const char *word) {
    char bytes[80] = "", name[16], read_into[80];
    int size = k("size", 0), length = strcmp(word, "none") ? snprintf(bytes, sizeof bytes, "%s", word) : 0;
    if (k("newline", 0))
        bytes[length++] = '\n';
    int file = memfd_create("script", 0);
    if (file < 0 || pwrite(file, bytes, length, 0) != length)
        fail("no file", "");
    snprintf(name, sizeof name, "%d", file);
    memset(read_into, '#', sizeof read_into);
    int result = ibv_read_sysfs_file("/proc/self/fd", name, read_into, size);
    close(file);
    tell("%d", result);
    for (int i = 0; i < size && i < 8; i++)
        tell(i ? "%c" : " %c", read_into[i] ? read_into[i] : '0');
}

static void read_missing(const char *folder, const char *file) {
    char read_into[8] = "unread";
    tell("%d %s", ibv_read_sysfs_file(folder, file, read_into, sizeof read_into), read_into);
}

static struct ibv_pd *parent_domain(struct ibv_pd *pd) {
    struct ibv_parent_domain_init_attr attr = {.pd = pd, .td = KP("td"), .comp_mask = k("mask", 0)};
    return ibv_alloc_parent_domain(context, &attr);
}

/* Makes the call of a name. */
static bool extended_call(const char *name) {
    DO("wr_post", P0; if (!left_out) wr_post(x))
    DO("poll_ex", P0; int wanted = a(1); if (!left_out) poll_ex(x, wanted))
    NEW("create_ah_from_wc", P1; void *at = AP(2), ah_of_completion(x, y, at, true), ibv_destroy_ah)
    DO("init_ah_from_wc", P1; void *at = AP(2); if (!left_out) ah_of_completion(x, y, at, false))
    DO("resolve_eth", resolve_eth())
    DO("device_list", device_list())
    NEW("open_device", , open_device_again(), ibv_close_device)
    END("close_device", ibv_close_device)
    DO("query_gid_type", query_gid_type(a(0), a(1)))
    NEW("alloc_td", void *on = opened(), ibv_alloc_td(on, &(struct ibv_td_init_attr){.comp_mask = k("mask", 0)}), ibv_dealloc_td)
    END("dealloc_td", ibv_dealloc_td)
    NEW("alloc_parent_domain", P0; KP("td"), parent_domain(x), ibv_dealloc_pd)
    DO("is_fork_initialized", tell("%d", ibv_is_fork_initialized()))
    INT("fork_init", , ibv_fork_init())
    INT("dontfork_range", char *x = AP(0); size_t at = a(1); size_t length = a(2), ibv_dontfork_range(x + at, length))
    INT("dofork_range", char *x = AP(0); size_t at = a(1); size_t length = a(2), ibv_dofork_range(x + at, length))
    DO("sysfs_path", tell("%s", ibv_get_sysfs_path()))
    DO("read_file", read_file(text(0)))
    DO("read_sysfs_file", read_missing(text(0), text(1)))
    DO("qp_data_in_order", P0; int op = a(1); int flags = a(2); if (!left_out) tell("%d", ibv_query_qp_data_in_order(x, op, flags)))
    return false;
}
