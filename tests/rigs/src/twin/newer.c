/* Calls of functions that are newer than the rdma-core of the headers, for runner.c: compiled as one text with it. */

/* The function of a name; the library that the program runs with has to have it. */
static void *newer(const char *function) {
    void *found = dlsym(RTLD_DEFAULT, function);
    if (!found)
        fail("no such function:", function);
    count_call(function);
    return found;
}
/* Calls a function by its name and its type. */
#define NEWER(result, function, types) ((result(*) types)newer(#function))

/* As in the header of rdma-core 65. */
enum { MASK_IOVA = 1, MASK_ADDR = 2, MASK_FD = 4, MASK_FD_OFFSET = 8, MASK_BUF = 32 };
struct mr_init_attr {
    size_t length;
    int access;
    uint64_t comp_mask, iova;
    void *addr;
    int fd;
    uint64_t fd_offset;
    void *dmah, *buf;
};

/* The memory of a buffer, by the buffer's handle. */
static struct {
    void *handle;
    uint8_t *memory;
} buffers[8];

static uint8_t *memory_of(const void *handle) {
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        if (buffers[i].handle == handle)
            return buffers[i].memory;
    return NULL;
}

static void *alloc_buf(struct ibv_pd *pd, size_t size) {
    void *handle = NULL;
    size_t place = 0;
    uint8_t *memory = NEWER(void *, ibv_alloc_buf, (struct ibv_pd *, size_t, void **))(pd, size, &handle);
    if (!memory)
        return NULL;
    while (buffers[place].handle)
        if (++place == sizeof buffers / sizeof *buffers)
            fail("too many buffers", "");
    buffers[place].handle = handle;
    buffers[place].memory = memory;
    tell("%s ", (uintptr_t)memory % sysconf(_SC_PAGESIZE) ? "inside a page" : "at a page");
    memset(memory, 0x5a, size);
    return handle;
}

static int free_buf(void *handle) {
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        if (buffers[i].handle == handle)
            buffers[i].handle = NULL;
    NEWER(void, ibv_free_buf, (void *))(handle);
    return 0;
}

static struct ibv_mr *reg_buf_mr(struct ibv_pd *pd, void *handle, size_t length, int access) {
    return NEWER(struct ibv_mr *, ibv_reg_buf_mr, (struct ibv_pd *, void *, void *, size_t, int))(
        pd, handle, memory_of(handle) + k("at", 0), length, access);
}

/* The keys that are there say the mask; `mask` has more. */
static struct ibv_mr *reg_mr_ex(struct ibv_pd *pd, size_t length, int access) {
    void *handle = KP("buf");
    uint8_t *begin = handle ? memory_of(handle) : KP("addr");
    struct mr_init_attr attr = {.length = length,
                                .access = access,
                                .comp_mask = (key("iova") ? MASK_IOVA : 0) | (key("addr") || key("buf") ? MASK_ADDR : 0) |
                                             (key("fd") ? MASK_FD : 0) | (key("fd_offset") ? MASK_FD_OFFSET : 0) |
                                             (key("buf") ? MASK_BUF : 0) | k("mask", 0),
                                .iova = k("iova", 0),
                                .addr = begin + k("at", 0),
                                .fd = k("fd", 0),
                                .fd_offset = k("fd_offset", 0),
                                .buf = handle};
    if (key("but"))
        attr.comp_mask &= ~k("but", 0);
    return left_out ? NULL : NEWER(struct ibv_mr *, ibv_reg_mr_ex, (struct ibv_pd *, struct mr_init_attr *))(pd, &attr);
}

static void query_port_speed(int port) {
    uint64_t speed = 0;
    tell_int(NEWER(int, ibv_query_port_speed, (struct ibv_context *, uint32_t, uint64_t *))(opened(), port, &speed));
    tell(" speed=%llu", (unsigned long long)speed);
}

static int write_cm_event(struct rdma_cm_id *id, int event, int status, uint64_t argument) {
    return NEWER(int, rdma_write_cm_event, (struct rdma_cm_id *, int, int, uint64_t))(id, event, status, argument);
}

static int resolve_addrinfo(struct rdma_cm_id *id, const char *node, const char *service) {
    struct sockaddr_storage source, dest;
    struct rdma_addrinfo hints = addrinfo_hints(&source, &dest);
    ports_given[atoi(service) & 0xffff] = true;
    return NEWER(int, rdma_resolve_addrinfo, (struct rdma_cm_id *, const char *, const char *, const struct rdma_addrinfo *))(
        id, host(node), strcmp(service, "null") ? service : NULL, key("no_hints") ? NULL : &hints);
}

static struct rdma_addrinfo *query_addrinfo(struct rdma_cm_id *id) {
    struct rdma_addrinfo *found = NULL;
    int result = NEWER(int, rdma_query_addrinfo, (struct rdma_cm_id *, struct rdma_addrinfo **))(id, key("null") ? NULL : &found);
    if (result) {
        tell("%d ", result);
        return NULL;
    }
    tell_addrinfo(found);
    return found;
}

/* Makes the call of a name. */
static bool newer_call(const char *name) {
    NEW("alloc_buf", P0; size_t size = a(1), alloc_buf(x, size), free_buf)
    END("free_buf", free_buf)
    DO("export_buf", P0; if (!left_out) tell_int(NEWER(int, ibv_export_buf_dmabuf_fd, (void *))(x)))
    DO("fill_buf", P0; if (!left_out) (memset(memory_of(x), k("byte", 1), a(1)), tell("written")))
    DO("sum_buf", P0; if (!left_out) tell("%u", sum(memory_of(x), a(1))))
    NEW("reg_buf_mr", P1; size_t length = a(2); int access = a(3), reg_buf_mr(x, y, length, access), ibv_dereg_mr)
    NEW("reg_mr_ex", P0; KP("buf"); KP("addr"); size_t length = a(1); int access = a(2), reg_mr_ex(x, length, access), ibv_dereg_mr)
    DO("query_port_speed", query_port_speed(a(0)))
    INT("rdma_write_cm_event", P0; int event = a(1); int status = a(2); uint64_t argument = a(3), write_cm_event(x, event, status, argument))
    INT("rdma_resolve_addrinfo", P0, resolve_addrinfo(x, text(1), text(2)))
    NEW("rdma_query_addrinfo", P0, query_addrinfo(x), free_addrinfo)
    return false;
}
