/* The calls of librdmacm, for runner.c: compiled as one text with it. An address is a name with a
 * port (`own:7000`), or `null`. Events are taken in their order, each by a call that waits for it, and are acknowledged at
 * once, unless they are kept under a name. */

#include <ctype.h>
#include <netdb.h>
#include <rdma/rdma_verbs.h>

/* The ports that the lines of the script have named; others are chosen. */
static bool ports_given[1 << 16] = {true};

static struct sockaddr *address(const char *word, struct sockaddr_storage *space) {
    char name[64];
    struct sockaddr_in *four = (void *)space;
    struct sockaddr_in6 *six = (void *)space;
    memset(space, 0, sizeof *space);
    if (!strcmp(word, "null"))
        return NULL;
    snprintf(name, sizeof name, "%s", word);
    char *colon = strchr(name, ':');
    uint16_t port = htons(colon ? atoi(colon + 1) : 0);
    ports_given[ntohs(port)] = true;
    if (colon)
        *colon = 0;
    if (!strcmp(name, "family")) {
        space->ss_family = port ? ntohs(port) : AF_UNSPEC;
        return (void *)space;
    }
    const char *known = host(name);
    if (inet_pton(AF_INET, known, &four->sin_addr) == 1) {
        four->sin_family = AF_INET;
        four->sin_port = port;
    } else if (inet_pton(AF_INET6, known, &six->sin6_addr) == 1) {
        six->sin6_family = AF_INET6;
        six->sin6_port = port;
    } else {
        fail("no such address:", word);
    }
    return (void *)space;
}

static void tell_port(uint16_t port) {
    port = ntohs(port);
    if (ports_given[port])
        tell(":%u", port);
    else
        tell(":chosen");
}

static void tell_address(const char *what, const struct sockaddr *address) {
    const struct sockaddr_in *four = (const void *)address;
    const struct sockaddr_in6 *six = (const void *)address;
    char known[INET6_ADDRSTRLEN] = "";
    tell(" %s=", what);
    bool nothing = address && address->sa_family == AF_INET    ? !four->sin_addr.s_addr && !four->sin_port
                   : address && address->sa_family == AF_INET6 ? IN6_IS_ADDR_UNSPECIFIED(&six->sin6_addr) && !six->sin6_port
                                                               : false;
    if (!address || !address->sa_family || nothing) {
        tell("none");
        return;
    }
    bool is_six = address->sa_family == AF_INET6;
    if (!is_six && address->sa_family != AF_INET) {
        tell("family%d", address->sa_family);
        return;
    }
    inet_ntop(address->sa_family, is_six ? (const void *)&six->sin6_addr : &four->sin_addr, known, sizeof known);
    const char *name = "another";
    for (size_t i = 0; i < sizeof addresses / sizeof *addresses; i++)
        if (!strcmp(known, addresses[i].text))
            name = addresses[i].name;
    tell("%s", name);
    tell_port(is_six ? six->sin6_port : four->sin_port);
}

/* Private data: its length, its text and a sum. */
static void tell_data(const void *data, uint8_t length) {
    const uint8_t *bytes = data;
    uint32_t sum = 0;
    for (int i = 0; data && i < length; i++)
        sum = sum * 31 + bytes[i];
    tell(" data=%s%u", data || !length ? "" : "null", length);
    int letters = 0;
    while (data && letters < length && letters < 12 && isalnum(bytes[letters]))
        letters++;
    if (data && length)
        tell(":%.*s:%u", letters, (const char *)data, sum);
}

static bool is_datagrams(const struct rdma_cm_id *id) {
    return id->ps == RDMA_PS_UDP || id->ps == RDMA_PS_IPOIB;
}

/* An event of the program's own, of newer headers, whose argument is where others have the address of private data. */
#define EVENT_USER 18

/* Tells an event. What the other end asks for is in those that it sent: an accepting end hears that its connection is
 * established without any. */
static void tell_event(struct rdma_cm_event *event, struct rdma_cm_id *subject) {
    const struct rdma_conn_param *conn = &event->param.conn;
    const struct rdma_ud_param *ud = &event->param.ud;
    const char *word = event->event == EVENT_USER ? "RDMA_CM_EVENT_USER" : rdma_event_str(event->event);
    tell("%s", word + strlen("RDMA_CM_EVENT_"));
    if (event->status < 0)
        tell(" status=-%s", error_name(-event->status));
    else
        tell(" status=%d", event->status);
    bool request = event->event == RDMA_CM_EVENT_CONNECT_REQUEST;
    tell(" id=%s listen=%s", request ? (event->id == event->listen_id ? "same" : "new") : named(event->id), named(event->listen_id));
    switch ((int)event->event) {
    case RDMA_CM_EVENT_CONNECT_REQUEST:
    case RDMA_CM_EVENT_CONNECT_RESPONSE:
    case RDMA_CM_EVENT_ESTABLISHED:
    case RDMA_CM_EVENT_REJECTED:
    case RDMA_CM_EVENT_UNREACHABLE:
    case RDMA_CM_EVENT_DISCONNECTED:
    case RDMA_CM_EVENT_MULTICAST_JOIN:
    case RDMA_CM_EVENT_MULTICAST_ERROR:
        if (is_datagrams(subject)) {
            tell_data(ud->private_data, ud->private_data_len);
            tell(" qp=%s qkey=%#x", ud->qp_num == 0xffffff ? "all" : qp_named(ud->qp_num), ud->qkey);
            tell_ah(&ud->ah_attr);
        } else {
            tell_data(conn->private_data, conn->private_data_len);
            if (event->event == RDMA_CM_EVENT_ESTABLISHED && !conn->private_data_len)
                break;
            tell(" responder=%d initiator=%d flow=%d rnr=%d srq=%d qp=%s", conn->responder_resources, conn->initiator_depth,
                 conn->flow_control, conn->rnr_retry_count, conn->srq, qp_named(conn->qp_num));
            if (request)
                tell(" retry=%d", conn->retry_count);
        }
        break;
    case EVENT_USER:
        tell(" argument=%llu", (unsigned long long)(uintptr_t)conn->private_data);
        break;
    default:
        break;
    }
}

/* Takes the next event. A new id gets the name, or the event itself if it is kept. One that is `of_call` is not waited for if the
 * call before has failed. */
static void cm_event(bool keep) {
    struct rdma_event_channel *channel = AP(0);
    struct rdma_cm_event *event = NULL;
    if (left_out)
        return;
    if (!readable(channel->fd, key("of_call") && failed ? 0 : k("wait", COMES))) {
        tell("none");
        return;
    }
    if (rdma_get_cm_event(channel, &event)) {
        tell("%s", error_name(errno));
        return;
    }
    tell_event(event, event->id);
    if (keep && names) {
        made = event;
        objects[object_count - 1].destroy = (int (*)(void *))rdma_ack_cm_event;
        return;
    }
    if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST && names) {
        made = event->id;
        objects[object_count - 1].destroy = (int (*)(void *))rdma_destroy_id;
        objects[object_count - 1].made_by = "create_id";
    }
    int result = rdma_ack_cm_event(event);
    if (result)
        tell_int(result);
}

static int by_text(const void *one, const void *other) {
    return strcmp(*(char *const *)one, *(char *const *)other);
}

/* Takes the events that are there after `wait` milliseconds, and tells them in the order of their names. That a connection has left
 * TIMEWAIT is left out: how long it takes is up to each end. */
static void events_left(struct rdma_event_channel *channel) {
    const char *kinds[64];
    int count = 0;
    struct rdma_cm_event *event;
    usleep(k("wait", 0) * 1000);
    while (count < 64 && readable(channel->fd, 0) && !rdma_get_cm_event(channel, &event)) {
        bool asks = event->event == RDMA_CM_EVENT_CONNECT_REQUEST;
        struct rdma_cm_id *id = event->id;
        const char *word = event->event == EVENT_USER ? "RDMA_CM_EVENT_USER" : rdma_event_str(event->event);
        if (event->event != RDMA_CM_EVENT_TIMEWAIT_EXIT)
            kinds[count++] = word + strlen("RDMA_CM_EVENT_");
        rdma_ack_cm_event(event);
        if (asks)
            rdma_destroy_id(id);
    }
    qsort(kinds, count, sizeof *kinds, by_text);
    for (int i = 0; i < count; i++)
        tell("%s%s", i ? " " : "", kinds[i]);
    if (!count)
        tell("none");
}

/* Private data of `data`, or as many bytes as `bytes` says. */
static const void *private_data(uint8_t *length) {
    static uint8_t data[256];
    const char *given = key("data");
    memset(data, 0, sizeof data);
    if (given)
        memcpy(data, given, strlen(given));
    else
        for (size_t i = 0; i < sizeof data; i++)
            data[i] = i + 1;
    *length = k("bytes", given ? strlen(given) : 0);
    return *length && !key("no_data") ? data : NULL;
}

static struct rdma_conn_param *conn_param(void) {
    static struct rdma_conn_param param;
    struct ibv_qp *qp = key("qp") && find(key("qp")) ? KP("qp") : NULL;
    if (key("none"))
        return NULL;
    param = (struct rdma_conn_param){.responder_resources = k("responder", 1),
                                     .initiator_depth = k("initiator", 1),
                                     .flow_control = k("flow", 0),
                                     .retry_count = k("retry", 7),
                                     .rnr_retry_count = k("rnr", 7),
                                     .srq = k("srq", 0),
                                     .qp_num = qp ? qp->qp_num : k("qp", 0)};
    param.private_data = private_data(&param.private_data_len);
    return &param;
}

/* A call that waits for the other end, in a thread of its own. */
static struct {
    pthread_t thread;
    struct rdma_cm_id *id;
    bool disconnects;
    struct rdma_conn_param param;
    uint8_t data[256];
    int result, error;
    bool runs;
} apart;

static void *call_apart(void *nothing) {
    errno = 0;
    apart.result = apart.disconnects ? rdma_disconnect(apart.id) : rdma_connect(apart.id, &apart.param);
    apart.error = errno;
    return nothing;
}

static void start(struct rdma_cm_id *id, bool disconnects) {
    if (apart.runs)
        fail("one call runs already", "");
    apart.id = id;
    apart.disconnects = disconnects;
    apart.param = *conn_param();
    if (apart.param.private_data)
        apart.param.private_data = memcpy(apart.data, apart.param.private_data, sizeof apart.data);
    apart.runs = !pthread_create(&apart.thread, NULL, call_apart, NULL);
    tell(apart.runs ? "started" : "no thread");
}

static void join_apart(void) {
    if (!apart.runs)
        return;
    pthread_join(apart.thread, NULL);
    apart.runs = false;
    errno = apart.error;
    tell_int(apart.result);
}

static struct rdma_cm_id *create_id(struct rdma_event_channel *channel) {
    struct rdma_cm_id *id = NULL;
    return rdma_create_id(channel, &id, (void *)k("context", 0), k("ps", RDMA_PS_TCP)) ? NULL : id;
}

static int destroy_channel(void *channel) {
    rdma_destroy_event_channel(channel);
    return 0;
}

static int destroy_ep(void *id) {
    rdma_destroy_ep(id);
    return 0;
}

static int free_addrinfo(void *info) {
    rdma_freeaddrinfo(info);
    return 0;
}

static int destroy_qp_of_id(void *qp) {
    for (int i = 0; i < object_count; i++)
        if (is_id(&objects[i]) && ((struct rdma_cm_id *)objects[i].pointer)->qp == qp) {
            rdma_destroy_qp(objects[i].pointer);
            return 0;
        }
    return ibv_destroy_qp(qp);
}

static void destroy_qp_by_id(struct rdma_cm_id *id) {
    if (!id->qp) {
        tell("no qp");
        return;
    }
    for (int i = 0; i < object_count; i++)
        objects[i].gone |= objects[i].pointer == id->qp;
    rdma_destroy_qp(id);
    tell("done qp=%s", named(id->qp));
}

static struct ibv_qp_init_attr qp_init_attr(void) {
    return (struct ibv_qp_init_attr){.qp_context = NULL,
                                     .send_cq = KP("send_cq"),
                                     .recv_cq = KP("recv_cq"),
                                     .srq = KP("srq"),
                                     .cap = cap(),
                                     .qp_type = k("type", IBV_QPT_RC),
                                     .sq_sig_all = k("sig_all", 1)};
}

static struct ibv_qp *create_qp_of_id(struct rdma_cm_id *id, bool ex) {
    struct ibv_qp_init_attr attr = qp_init_attr();
    struct ibv_qp_init_attr_ex more = {.send_cq = attr.send_cq,
                                       .recv_cq = attr.recv_cq,
                                       .srq = attr.srq,
                                       .cap = attr.cap,
                                       .qp_type = attr.qp_type,
                                       .sq_sig_all = attr.sq_sig_all,
                                       .comp_mask = (key("pd") ? IBV_QP_INIT_ATTR_PD : 0) | k("mask", 0),
                                       .pd = KP("pd")};
    return (ex ? rdma_create_qp_ex(id, &more) : rdma_create_qp(id, KP("pd"), &attr)) ? NULL : id->qp;
}

static int destroy_srq_of_id(void *srq) {
    for (int i = 0; i < object_count; i++)
        if (is_id(&objects[i]) && ((struct rdma_cm_id *)objects[i].pointer)->srq == srq) {
            rdma_destroy_srq(objects[i].pointer);
            return 0;
        }
    return ibv_destroy_srq(srq);
}

static struct ibv_srq *create_srq_of_id(struct rdma_cm_id *id, bool ex) {
    struct ibv_srq_init_attr attr = {.attr = {.max_wr = k("wr", 4), .max_sge = k("sge", 1), .srq_limit = k("limit", 0)}};
    struct ibv_srq_init_attr_ex more = {.attr = attr.attr,
                                        .comp_mask = key("type") ? IBV_SRQ_INIT_ATTR_TYPE : 0,
                                        .srq_type = k("type", IBV_SRQT_BASIC),
                                        .pd = KP("pd")};
    return (ex ? rdma_create_srq_ex(id, &more) : rdma_create_srq(id, KP("pd"), &attr)) ? NULL : id->srq;
}

static void tell_id(struct rdma_cm_id *id) {
    tell("ps=%#x port=%d qp=%s type=%d context=%lld channel=%s verbs=%s pd=%s cqs=%s,%s srq=%s", id->ps, id->port_num, named(id->qp),
         id->qp_type, (long long)(uintptr_t)id->context, id->channel ? named(id->channel) : "none", id->verbs ? "some" : "none",
         id->pd ? "some" : "none", id->send_cq ? "some" : "none", id->recv_cq ? "some" : "none", named(id->srq));
    tell_address("src", rdma_get_local_addr(id));
    tell_address("dst", rdma_get_peer_addr(id));
    tell(" ports=");
    tell_port(rdma_get_src_port(id));
    tell_port(rdma_get_dst_port(id));
    tell(" sgid=%s dgid=%s event=%s", gid_named(&id->route.addr.addr.ibaddr.sgid), gid_named(&id->route.addr.addr.ibaddr.dgid),
         id->event ? "some" : "none");
    tell(" paths=%d", id->route.num_paths);
    for (int i = 0; i < id->route.num_paths; i++) {
        const struct ibv_sa_path_rec *path = &id->route.path_rec[i];
        /* On RoCE, Linux leaves parts of a MAC address in the LIDs and in what a path is preferred by. */
        tell(" sgid=%s dgid=%s raw=%d label=%s hops=%d class=%d both=%d numb=%d pkey=%#x sl=%d mtu=%d,%d rate=%d,%d life=%d,%d",
             gid_named(&path->sgid), gid_named(&path->dgid), path->raw_traffic, path->flow_label ? "some" : "0", path->hop_limit,
             path->traffic_class, path->reversible, path->numb_path, be16toh(path->pkey), path->sl, path->mtu_selector, path->mtu,
             path->rate_selector, path->rate, path->packet_life_time_selector, path->packet_life_time);
    }
}

static void init_qp_attr(struct rdma_cm_id *id) {
    struct ibv_qp_attr q = {.qp_state = k("state", IBV_QPS_INIT)};
    int mask = 0, result = rdma_init_qp_attr(id, &q, &mask);
    tell_int(result);
    if (result)
        return;
    tell(" mask=%#x", mask);
#define SHOW(flag, name, field)                                                                                                \
    if (mask & flag)                                                                                                           \
        tell(" " name "=%lld", (long long)q.field);
    SHOW(IBV_QP_STATE, "state", qp_state)
    SHOW(IBV_QP_ACCESS_FLAGS, "access", qp_access_flags)
    SHOW(IBV_QP_PKEY_INDEX, "pkey", pkey_index)
    SHOW(IBV_QP_PORT, "port", port_num)
    SHOW(IBV_QP_QKEY, "qkey", qkey)
    SHOW(IBV_QP_PATH_MTU, "mtu", path_mtu)
    SHOW(IBV_QP_TIMEOUT, "timeout", timeout)
    SHOW(IBV_QP_RETRY_CNT, "retry", retry_cnt)
    SHOW(IBV_QP_RNR_RETRY, "rnr_retry", rnr_retry)
    SHOW(IBV_QP_MAX_QP_RD_ATOMIC, "rd", max_rd_atomic)
    SHOW(IBV_QP_MIN_RNR_TIMER, "rnr_timer", min_rnr_timer)
    SHOW(IBV_QP_MAX_DEST_RD_ATOMIC, "dest_rd", max_dest_rd_atomic)
    SHOW(IBV_QP_PATH_MIG_STATE, "mig", path_mig_state)
    if (mask & IBV_QP_DEST_QPN)
        tell(" dest=%s", qp_named(q.dest_qp_num));
    if (mask & IBV_QP_AV)
        tell_ah(&q.ah_attr);
}

static struct rdma_addrinfo addrinfo_hints(struct sockaddr_storage *source, struct sockaddr_storage *dest) {
    struct rdma_addrinfo hints = {.ai_flags = k("flags", 0),
                                  .ai_family = k("family", 0),
                                  .ai_qp_type = k("type", 0),
                                  .ai_port_space = k("ps", 0)};
    if (key("src")) {
        hints.ai_src_addr = address(key("src"), source);
        hints.ai_src_len = source->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    }
    if (key("dst")) {
        hints.ai_dst_addr = address(key("dst"), dest);
        hints.ai_dst_len = dest->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    }
    return hints;
}

static void tell_addrinfo(const struct rdma_addrinfo *found) {
    for (const struct rdma_addrinfo *info = found; info; info = info->ai_next) {
        tell("flags=%#x family=%d type=%d ps=%#x lengths=%d,%d", info->ai_flags, info->ai_family, info->ai_qp_type, info->ai_port_space,
             info->ai_src_len, info->ai_dst_len);
        tell_address("src", info->ai_src_addr);
        tell_address("dst", info->ai_dst_addr);
        tell(" names=%s,%s route=%zu connect=%zu ", info->ai_src_canonname ? "some" : "none", info->ai_dst_canonname ? "some" : "none",
             info->ai_route_len, info->ai_connect_len);
    }
}

static struct rdma_addrinfo *get_addrinfo(void) {
    struct sockaddr_storage source, dest;
    struct rdma_addrinfo hints = addrinfo_hints(&source, &dest), *found = NULL;
    const char *node = host(text(0)), *service = text(1);
    ports_given[atoi(service) & 0xffff] = true;
    int result = rdma_getaddrinfo(node, strcmp(service, "null") ? service : NULL, key("no_hints") ? NULL : &hints, &found);
    if (result) {
        tell("%d ", result);
        errno = result == -1 ? errno : 0;
        return NULL;
    }
    tell_addrinfo(found);
    return found;
}

static struct rdma_cm_id *create_ep(struct rdma_addrinfo *info) {
    struct ibv_qp_init_attr attr = qp_init_attr();
    attr.qp_type = k("type", info->ai_qp_type);
    struct rdma_cm_id *id = NULL;
    return rdma_create_ep(&id, info, KP("pd"), k("with_qp", 0) ? &attr : NULL) ? NULL : id;
}

static struct rdma_cm_id *get_request(struct rdma_cm_id *listener) {
    struct rdma_cm_id *id = NULL;
    /* A synchronous listener's channel is no object of the script. */
    bool waits = listener->channel && !strcmp(named(listener->channel), "another");
    if (waits && !readable(listener->channel->fd, k("wait", COMES))) {
        tell("none ");
        errno = 0;
        return NULL;
    }
    int result = rdma_get_request(listener, &id);
    if (result) {
        tell("%d ", result);
        return NULL;
    }
    if (id->event) {
        tell_event(id->event, id);
        tell(" ");
    }
    return id;
}

static int set_option(struct rdma_cm_id *id, int level, int name) {
    static uint8_t space[256];
    memset(space, 0, sizeof space);
    uint64_t value = k("value", 0);
    memcpy(space, &value, sizeof value);
    return rdma_set_option(id, level, name, key("null") ? NULL : space, k("size", 4));
}

/* Tells about the list of devices, and if that of an id is in it. */
static void get_devices(bool counted) {
    struct rdma_cm_id *id = KP("of");
    if (left_out)
        return;
    int count = -1;
    struct ibv_context **list = rdma_get_devices(counted ? &count : NULL);
    tell("%s count=%d first=%s end=%s", list ? "list" : "null", count, list && *list ? "some" : "none",
         list && count >= 0 && !list[count] ? "null" : "unknown");
    if (id)
        tell(" of=%s", !id->verbs ? "none" : list && *list == id->verbs ? "first" : "another");
    rdma_free_devices(list);
}

static int join_ex(struct rdma_cm_id *id, struct sockaddr *group) {
    struct rdma_cm_join_mc_attr_ex attr = {
        .comp_mask = k("mask", RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS),
        .join_flags = k("flags", RDMA_MC_JOIN_FLAG_FULLMEMBER),
        .addr = group};
    return rdma_join_multicast_ex(id, &attr, NULL);
}

static void remote_ece(struct rdma_cm_id *id) {
    struct ibv_ece ece = {0};
    int result = rdma_get_remote_ece(id, &ece);
    tell_int(result);
    if (!result)
        tell(" vendor=%u options=%u mask=%u", ece.vendor_id, ece.options, ece.comp_mask);
}

/* The wrappers of rdma_verbs.h, by what they post. */
static int post_of_id(struct rdma_cm_id *id, const char *what) {
    struct ibv_mr *mr = KP("mr"), *to = key("to") ? KP("to") : mr;
    char *at = (char *)mr->addr + k("at", !strcmp(what, "recv") ? BUFFER / 2 : 0);
    size_t length = k("len", 8);
    int flags = k("flags", 0);
    void *given = (void *)k("id", 1);
    uint64_t remote = (uintptr_t)to->addr + k("remote", BUFFER / 2);
    struct ibv_qp *dest = key("dest") ? KP("dest") : NULL;
    struct ibv_sge sge = {.addr = (uintptr_t)at, .length = length, .lkey = mr->lkey};
    bool vector = k("vector", 0);
    if (!strcmp(what, "recv"))
        return vector ? rdma_post_recvv(id, given, &sge, 1) : rdma_post_recv(id, given, at, length, mr);
    if (!strcmp(what, "send"))
        return vector ? rdma_post_sendv(id, given, &sge, 1, flags) : rdma_post_send(id, given, at, length, mr, flags);
    if (!strcmp(what, "read"))
        return vector ? rdma_post_readv(id, given, &sge, 1, flags, remote, to->rkey)
                      : rdma_post_read(id, given, at, length, mr, flags, remote, to->rkey);
    if (!strcmp(what, "write"))
        return vector ? rdma_post_writev(id, given, &sge, 1, flags, remote, to->rkey)
                      : rdma_post_write(id, given, at, length, mr, flags, remote, to->rkey);
    return rdma_post_ud_send(id, given, at, length, mr, flags, KP("ah"), dest ? dest->qp_num : 0);
}

static void completion_of_id(struct rdma_cm_id *id, bool receive) {
    struct ibv_wc wc = {0};
    int result = receive ? rdma_get_recv_comp(id, &wc) : rdma_get_send_comp(id, &wc);
    if (result < 0)
        tell_int(result);
    else
        tell("%d %llu %s %s", result, (unsigned long long)wc.wr_id, qp_named(wc.qp_num), ibv_wc_status_str(wc.status));
    if (result > 0 && !wc.status)
        tell(" op=%d bytes=%u", wc.opcode, receive ? wc.byte_len : 0);
}

/* An id that is to have a device: librdmacm does not look whether it has one in these calls. */
static void *on_device(void) {
    struct rdma_cm_id *id = AP(0);
    left_out |= id && !left_out && !id->verbs;
    return id;
}

/* Makes the call of a name. */
static bool cm_call(const char *name) {
    struct sockaddr_storage one, other;
    NEW("rdma_create_event_channel", , rdma_create_event_channel(), destroy_channel)
    END("rdma_destroy_event_channel", destroy_channel)
    NEW("rdma_create_id", void *x = AP(0), create_id(x), rdma_destroy_id)
    END("rdma_destroy_id", rdma_destroy_id)
    DO("id", P0; if (!left_out) tell_id(x))
    DO("comes", void *x = AP(0); if (!left_out) tell(readable(((struct rdma_event_channel *)x)->fd, COMES) ? "some" : "none"))
    DO("left", P0; if (!left_out) events_left(x))
    DO("event", cm_event(false))
    DO("keep_event", cm_event(true))
    END("rdma_ack_cm_event", rdma_ack_cm_event)
    INT("rdma_bind_addr", P0, rdma_bind_addr(x, address(text(1), &one)))
    INT("rdma_resolve_addr", P0; int limit = a(3), rdma_resolve_addr(x, address(text(1), &one), address(text(2), &other), limit))
    INT("rdma_resolve_route", void *x = on_device(); int limit = a(1), rdma_resolve_route(x, limit))
    INT("rdma_listen", P0; int backlog = a(1), rdma_listen(x, backlog))
    INT("rdma_connect", P0; if (key("qp")) KP("qp"), rdma_connect(x, conn_param()))
    INT("rdma_accept", P0; if (key("qp")) KP("qp"), rdma_accept(x, conn_param()))
    INT("rdma_reject", P0; uint8_t length = 0; const void *data = private_data(&length), rdma_reject(x, data, length))
    INT("rdma_reject_ece", P0; uint8_t length = 0; const void *data = private_data(&length), rdma_reject_ece(x, data, length))
    INT("rdma_disconnect", P0, rdma_disconnect(x))
    INT("rdma_establish", P0, rdma_establish(x))
    INT("rdma_notify", P0; int event = a(1), rdma_notify(x, event))
    INT("rdma_migrate_id", P1, rdma_migrate_id(x, y))
    INT("rdma_set_option", P0; int level = a(1); int option = a(2), set_option(x, level, option))
    INT("rdma_set_local_ece", P0, rdma_set_local_ece(x, &(struct ibv_ece){.vendor_id = k("vendor", 0), .options = k("options", 0),
        .comp_mask = k("mask", 0)}))
    DO("rdma_get_remote_ece", P0; if (!left_out) remote_ece(x))
    DO("rdma_init_qp_attr", P0; if (!left_out) init_qp_attr(x))
    DO("rdma_get_devices", get_devices(!key("null")))
    NEW("rdma_create_qp", void *x = on_device(); KP("pd"); KP("send_cq"); KP("recv_cq"); KP("srq"), create_qp_of_id(x, false), destroy_qp_of_id)
    NEW("rdma_create_qp_ex", void *x = on_device(); KP("pd"); KP("send_cq"); KP("recv_cq"); KP("srq"), create_qp_of_id(x, true), destroy_qp_of_id)
    DO("rdma_destroy_qp", P0; if (!left_out) destroy_qp_by_id(x))
    NEW("rdma_create_srq", void *x = on_device(); KP("pd"), create_srq_of_id(x, false), destroy_srq_of_id)
    NEW("rdma_create_srq_ex", void *x = on_device(); KP("pd"), create_srq_of_id(x, true), destroy_srq_of_id)
    END("rdma_destroy_srq", destroy_srq_of_id)
    NEW("rdma_getaddrinfo", , get_addrinfo(), free_addrinfo)
    NEW("rdma_create_ep", void *x = AP(0); KP("pd"); KP("send_cq"); KP("recv_cq"); KP("srq"), create_ep(x), destroy_ep)
    END("rdma_destroy_ep", destroy_ep)
    NEW("rdma_get_request", P0, get_request(x), destroy_ep)
    INT("rdma_join_multicast", P0, rdma_join_multicast(x, address(text(1), &one), NULL))
    INT("rdma_join_multicast_ex", P0, join_ex(x, address(text(1), &one)))
    INT("rdma_leave_multicast", P0, rdma_leave_multicast(x, address(text(1), &one)))
    NEW("rdma_reg_msgs", P1, rdma_reg_msgs(x, y, BUFFER), ibv_dereg_mr)
    NEW("rdma_reg_read", P1, rdma_reg_read(x, y, BUFFER), ibv_dereg_mr)
    NEW("rdma_reg_write", P1, rdma_reg_write(x, y, BUFFER), ibv_dereg_mr)
    END("rdma_dereg_mr", rdma_dereg_mr)
    INT("rdma_post_recv", P0; KP("mr"), post_of_id(x, "recv"))
    INT("rdma_post_send", P0; KP("mr"); KP("to"), post_of_id(x, "send"))
    INT("rdma_post_read", P0; KP("mr"); KP("to"), post_of_id(x, "read"))
    INT("rdma_post_write", P0; KP("mr"); KP("to"), post_of_id(x, "write"))
    INT("rdma_post_ud_send", P0; KP("mr"); KP("ah"), post_of_id(x, "ud_send"))
    DO("rdma_get_send_comp", P0; if (!left_out) completion_of_id(x, false))
    DO("rdma_get_recv_comp", P0; if (!left_out) completion_of_id(x, true))
    DO("start_connect", P0; if (!left_out) start(x, false))
    DO("start_disconnect", P0; if (!left_out) start(x, true))
    DO("join", join_apart())
    return false;
}
