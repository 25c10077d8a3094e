/* Objects of libibverbs, and what is asked of them, for runner.c: compiled as one text with it. */

/* Behind a script's memory nothing is mapped that it may register. */
#define GUARD 65536

static int unmap(void *memory) {
    return munmap(memory, BUFFER + GUARD);
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
    attr.grh.dgid = key("dgid") ? gid_of(key("dgid")) : own_gid;
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
    return left_out ? NULL : ibv_create_srq_ex(opened(), &attr);
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
    return left_out ? NULL : holds(ibv_create_qp_ex(opened(), &attr), attr.cap);
}

static int kept_events(const struct ibv_cq *cq);

/* Destroys a queue, unless the script keeps events of it: that would wait for ever. */
static int destroy_cq(struct ibv_cq *cq) {
    return kept_events(cq) ? EBUSY : ibv_destroy_cq(cq);
}

static struct ibv_cq *create_cq_ex(void) {
    struct ibv_cq_init_attr_ex attr = {.cqe = k("cqe", 4),
                                       .channel = KP("channel"),
                                       .comp_vector = k("vector", 0),
                                       .wc_flags = k("wc", 0),
                                       .comp_mask = k("mask", key("flags") ? IBV_CQ_INIT_ATTR_MASK_FLAGS : 0),
                                       .flags = k("flags", 0)};
    struct ibv_cq_ex *cq = left_out ? NULL : ibv_create_cq_ex(opened(), &attr);
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

static void query_device(void) {
    struct ibv_device_attr x = {0}, *d = &x;
    tell_int(ibv_query_device(opened(), d));
#define F(field) tell(" " #field "=%llu", (unsigned long long)d->field);
    F(max_mr_size) F(page_size_cap) F(max_qp) F(max_qp_wr) F(device_cap_flags) F(max_sge) F(max_sge_rd) F(max_cq) F(max_cqe)
    F(max_mr) F(max_pd) F(max_qp_rd_atom) F(max_ee_rd_atom) F(max_res_rd_atom) F(max_qp_init_rd_atom) F(atomic_cap) F(max_mw)
    F(max_raw_ipv6_qp) F(max_mcast_grp) F(max_mcast_qp_attach) F(max_total_mcast_qp_attach) F(max_ah) F(max_srq) F(max_srq_wr)
    F(max_srq_sge) F(max_pkeys) F(local_ca_ack_delay) F(phys_port_cnt) F(vendor_id) F(vendor_part_id)
}

static void query_device_ex(void) {
    struct ibv_device_attr_ex x = {0}, *d = &x;
    tell_int(ibv_query_device_ex(opened(), key("null") ? NULL : &(struct ibv_query_device_ex_input){.comp_mask = k("mask", 0)}, d));
    F(comp_mask) F(odp_caps.general_caps) F(completion_timestamp_mask) F(hca_core_clock) F(device_cap_flags_ex)
    F(tso_caps.max_tso) F(tso_caps.supported_qpts) F(rss_caps.supported_qpts) F(rss_caps.max_rwq_indirection_tables)
    F(rss_caps.max_rwq_indirection_table_size) F(rss_caps.rx_hash_fields_mask) F(rss_caps.rx_hash_function) F(max_wq_type_rq)
    F(packet_pacing_caps.qp_rate_limit_min) F(packet_pacing_caps.qp_rate_limit_max) F(raw_packet_caps) F(tm_caps.max_num_tags)
    F(cq_mod_caps.max_cq_count) F(cq_mod_caps.max_cq_period) F(max_dm_size) F(pci_atomic_caps.fetch_add) F(xrc_odp_caps)
    F(phys_port_cnt_ex)
}

static void query_port(int port) {
    struct ibv_port_attr x = {0}, *d = &x;
    int result = ibv_query_port(opened(), port, d);
    tell_int(result);
    if (result)
        return;
    F(state) F(max_mtu) F(active_mtu) F(port_cap_flags) F(max_msg_sz) F(bad_pkey_cntr) F(qkey_viol_cntr) F(pkey_tbl_len)
    F(lid) F(sm_lid) F(lmc) F(max_vl_num) F(sm_sl) F(subnet_timeout) F(init_type_reply) F(active_width) F(active_speed)
    F(phys_state) F(link_layer) F(flags) F(port_cap_flags2)
}

/* The function for programs whose headers had a shorter structure. */
static void query_port_before(int port) {
    struct ibv_port_attr x = {.port_cap_flags2 = 9}, *d = &x;
    int result = (ibv_query_port)(opened(), port, (struct _compat_ibv_port_attr *)d);
    tell_int(result);
    if (result)
        return;
    F(state) F(max_mtu) F(active_mtu) F(port_cap_flags) F(max_msg_sz) F(bad_pkey_cntr) F(qkey_viol_cntr) F(pkey_tbl_len)
    F(lid) F(sm_lid) F(lmc) F(max_vl_num) F(sm_sl) F(subnet_timeout) F(init_type_reply) F(active_width) F(active_speed)
    F(phys_state) F(link_layer) F(port_cap_flags2)
}

static void query_gid_ex(int port, int index) {
    struct ibv_gid_entry entry = {0};
    int result = ibv_query_gid_ex(opened(), port, index, &entry, k("flags", 0));
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

static union ibv_gid group(void) {
    if (key("dgid"))
        return gid_of(key("dgid"));
    return (union ibv_gid){.raw = {k("prefix", 0xff), 0x0e, [15] = k("group", 1)}};
}

static int modify_cq(struct ibv_cq *cq) {
    struct ibv_modify_cq_attr attr = {.attr_mask = k("mask", IBV_CQ_ATTR_MODERATE)};
    attr.moderate.cq_count = k("count", 0);
    attr.moderate.cq_period = k("period", 0);
    return ibv_modify_cq(cq, &attr);
}

static void *memory(int protection) {
    char *pages = mmap(NULL, BUFFER + GUARD, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED || mmap(pages, BUFFER, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE | MAP_FIXED, -1, 0) == MAP_FAILED)
        fail("no memory", "");
    for (size_t i = 0; i < BUFFER; i++)
        pages[i] = i * 7 + i / 256 * 5;
    if (mprotect(pages, BUFFER, protection))
        fail("no memory", "");
    return pages;
}

/* Memory in which the same few pages are mapped again and again; there is one at a time. */
static size_t repeated_size;

static void *repeated_memory(size_t size) {
    const size_t pages = 2 << 20;
    int file = memfd_create("pages", 0);
    if (repeated_size)
        fail("a second one", "");
    repeated_size = (size + pages - 1) / pages * pages;
    char *at = mmap(NULL, repeated_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (file < 0 || at == MAP_FAILED || ftruncate(file, pages))
        fail("no memory", "");
    for (size_t from = 0; from < repeated_size; from += pages)
        if (mmap(at + from, pages, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED)
            fail("no memory", "");
    close(file);
    return at;
}

static int unmap_repeated(void *memory) {
    size_t size = repeated_size;
    repeated_size = 0;
    return munmap(memory, size);
}

static struct ibv_mr *reg(const char *how) {
    char *at = AP(1);
    struct ibv_pd *pd = AP(0);
    uint64_t size = a(2), access = a(3), from = k("iova", (uintptr_t)at);
    at += k("at", 0);
    if (left_out)
        return NULL;
    if (!strcmp(how, "reg_mr"))
        return (ibv_reg_mr)(pd, at, size, access);
    if (!strcmp(how, "reg_mr_iova"))
        return (ibv_reg_mr_iova)(pd, at, size, from, access);
    return ibv_reg_mr_iova2(pd, at, size, from, access);
}

/* Makes the call of a name. */
static bool verbs_call(const char *name) {
    struct ibv_ah_attr ah = ah_attr();
    NEW("memory", int how = a(0), memory(how), unmap)
    NEW("repeated_memory", size_t size = a(0), repeated_memory(size), unmap_repeated)
    NEW("alloc_pd", void *on = opened(), ibv_alloc_pd(on), ibv_dealloc_pd)
    END("dealloc_pd", ibv_dealloc_pd)
    NEW("reg_mr", , reg(name), ibv_dereg_mr)
    NEW("reg_mr_iova", , reg(name), ibv_dereg_mr)
    NEW("reg_mr_iova2", , reg(name), ibv_dereg_mr)
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
    END("destroy_cq", destroy_cq)
    INT("resize_cq", P0; int size = a(1), ibv_resize_cq(x, size))
    INT("modify_cq", P0, modify_cq(x))
    DO("cq", P0; struct ibv_cq *cq = x; if (!left_out) tell("cqe=%d channel=%s", cq->cqe, named(cq->channel)))
    INT("req_notify_cq", P0; int solicited = a(1), ibv_req_notify_cq(x, solicited))
    NEW("create_srq", void *x = AP(0), ibv_create_srq(x, &(struct ibv_srq_init_attr){.attr = {.max_wr = k("wr", 4),
        .max_sge = k("sge", 1), .srq_limit = k("limit", 0)}}), ibv_destroy_srq)
    NEW("create_srq_ex", KP("pd"); KP("cq"); KP("xrcd"), create_srq_ex(), ibv_destroy_srq)
    END("destroy_srq", ibv_destroy_srq)
    INT("modify_srq", P0; int mask = a(1), ibv_modify_srq(x, &(struct ibv_srq_attr){.max_wr = k("wr", 0),
        .srq_limit = k("limit", 0)}, mask))
    DO("query_srq", P0; if (!left_out) query_srq(x))
    NEW("open_xrcd", int fd = k("fd", -1); int flags = k("oflags", O_CREAT), ibv_open_xrcd(opened(), &(struct ibv_xrcd_init_attr){
        .comp_mask = k("mask", IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS), .fd = fd, .oflags = flags}), ibv_close_xrcd)
    END("close_xrcd", ibv_close_xrcd)
    NEW("create_qp", AP(0); KP("send_cq"); KP("recv_cq"); KP("srq"), create_qp(), ibv_destroy_qp)
    NEW("create_qp_ex", KP("pd"); KP("send_cq"); KP("recv_cq"); KP("srq"); KP("xrcd"), create_qp_ex(), ibv_destroy_qp)
    END("destroy_qp", ibv_destroy_qp)
    INT("modify_qp", AP(0); if (key("dest")) KP("dest"), modify_qp())
    DO("query_qp", query_qp())
    DO("query_cap", P0; if (!left_out) query_cap(x))
    NEW("create_ah", void *x = AP(0), ibv_create_ah(x, &ah), ibv_destroy_ah)
    END("destroy_ah", ibv_destroy_ah)
    INT("attach_mcast", P0; union ibv_gid g = group(), ibv_attach_mcast(x, &g, k("lid", 0xc001)))
    INT("detach_mcast", P0; union ibv_gid g = group(), ibv_detach_mcast(x, &g, k("lid", 0xc001)))
    DO("query_device", query_device())
    DO("query_device_ex", query_device_ex())
    DO("query_port", query_port(a(0)))
    DO("query_port_before", query_port_before(a(0)))
    INT("query_gid", union ibv_gid gid, ibv_query_gid(opened(), a(0), a(1), &gid))
    DO("query_gid_ex", query_gid_ex(a(0), a(1)))
    DO("query_pkey", uint16_t pkey = 0; int result = ibv_query_pkey(opened(), a(0), a(1), &pkey); tell_int(result);
        if (!result) tell(" %#x", be16toh(pkey)))
    DO("get_pkey_index", tell("%d", ibv_get_pkey_index(opened(), a(0), htobe16(a(1)))))
    INT("query_rt_values", struct ibv_values_ex v = {.comp_mask = k("mask", IBV_VALUES_MASK_RAW_CLOCK)},
        ibv_query_rt_values_ex(opened(), &v))
    DO("rate_to_mult", tell("%d", ibv_rate_to_mult(a(0))))
    DO("mult_to_rate", tell("%d", mult_to_ibv_rate(a(0))))
    DO("rate_to_mbps", tell("%d", ibv_rate_to_mbps(a(0))))
    DO("mbps_to_rate", tell("%d", mbps_to_ibv_rate(a(0))))
    DO("wc_status_str", tell("%s", ibv_wc_status_str(a(0))))
    DO("event_type_str", tell("%s", ibv_event_type_str(a(0))))
    DO("node_type_str", tell("%s", ibv_node_type_str(a(0))))
    DO("port_state_str", tell("%s", ibv_port_state_str(a(0))))
    DO("wr_opcode_str", const char *(*string)(int) = dlsym(RTLD_DEFAULT, "ibv_wr_opcode_str");
        const char *text = string ? string(a(0)) : "no function"; count_call("ibv_wr_opcode_str"); tell("%s", text ? text : "null"))
    DO("rdma_event_str", tell("%s", rdma_event_str(a(0))))
    return false;
}
