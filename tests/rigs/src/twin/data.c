/* Requests, completions and events, for runner.c: compiled as one text with it. */

/* The data of a script's requests, by the lowest bits of their ids: of sends, and of receives. */
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
    struct ibv_srq *remote_srq = key("srqn") && find(key("srqn")) ? KP("srqn") : NULL;
    bool to_srq = key("srq") != NULL;
    struct ibv_sge sge[128] = {0};
    int count = k("sges", 1);
    if (count < 0 || count > 128)
        fail("too many entries", "");
    if (left_out)
        return;
    uint64_t at = (mr ? (uintptr_t)mr->addr : 0) + k("at", receive ? BUFFER / 2 : 0);
    for (int i = 0; i < count; i++)
        sge[i] = (struct ibv_sge){.addr = at + i * k("len", 8), .length = k("len", 8), .lkey = (mr ? mr->lkey : 0) + k("lkey", 0)};
    /* The sum of much data would take the emulated processor long. */
    const uint8_t *summed = k("sum", 1) ? (const uint8_t *)(uintptr_t)at : NULL;
    data_of[receive][k("id", 1) & 255] = (struct data){summed, count * k("len", 8)};
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
    if (key("srqn")) {
        wr.qp_type.xrc.remote_srqn = remote_srq ? 0 : k("srqn", 0);
        if (remote_srq)
            ibv_get_srq_num(remote_srq, &wr.qp_type.xrc.remote_srqn);
    }
    uint64_t remote = k("iova", to ? (uintptr_t)to->addr : 0) + k("remote", BUFFER / 2);
    uint32_t rkey = (to ? to->rkey : 0) + k("rkey", 0);
    if (ah) {
        wr.wr.ud.ah = ah;
        wr.wr.ud.remote_qpn = dest ? dest->qp_num : k("qpn", 0);
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

static void async_event(int milliseconds) {
    struct ibv_async_event event;
    struct ibv_context *on = opened();
    if (left_out)
        return;
    if (!readable(on->async_fd, milliseconds)) {
        tell("none");
        return;
    }
    if (ibv_get_async_event(on, &event)) {
        tell("%s", error_name(errno));
        return;
    }
    tell("%s", ibv_event_type_str(event.event_type));
    if (event.event_type <= IBV_EVENT_PATH_MIG_ERR || event.event_type >= IBV_EVENT_SRQ_ERR)
        tell(" %s", named(event.element.qp));
    ibv_ack_async_event(&event);
}

/* Takes so many events, and tells them in the order of their words: those of different objects come in any order. */
static void async_events(int count) {
    char all[8][64];
    int got = 0;
    if (count > 8)
        fail("too many events", "");
    for (; got < count && readable(context->async_fd, k("wait", COMES)); got++) {
        told[0] = 0;
        async_event(0);
        snprintf(all[got], sizeof all[got], "%s", told);
    }
    told[0] = 0;
    qsort(all, got, sizeof *all, (int (*)(const void *, const void *))strcmp);
    for (int i = 0; i < got; i++)
        tell("%s%s", i ? "; " : "", all[i]);
    if (got < count)
        tell("%s%d of %d came", got ? "; " : "", got, count);
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

/* Makes the call of a name. */
static bool data_call(const char *name) {
    DO("cq_event", cq_event())
    DO("poll", poll_cq())
    DO("sum", P0; size_t from = a(1); size_t length = a(2); if (!left_out) tell("%u", sum((uint8_t *)x + from, length)))
    DO("post_send", post(false))
    DO("post_recv", post(true))
    DO("async", async_event(k("wait", COMES)))
    DO("asyncs", async_events(a(0)))
    DO("no_async", async_event(STAYS_AWAY))
    return false;
}
