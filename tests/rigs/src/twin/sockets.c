/* Sockets, for runner.c: compiled as one text with it. A script says first which ones it has: librdmacm's (`sockets rs`), or
 * the C library's (`sockets plain`). Calls have librdmacm's names in both cases. A socket's descriptor is told as `made`; a
 * number stands for a descriptor that is not a script's. */

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <rdma/rsocket.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>

/* The longest message, and the most pieces of one. */
#define LONGEST (4 << 20)
#define PIECES 16

struct sockets {
    int (*socket)(int, int, int);
    int (*bind)(int, const struct sockaddr *, socklen_t);
    int (*listen)(int, int);
    int (*accept)(int, struct sockaddr *, socklen_t *);
    int (*connect)(int, const struct sockaddr *, socklen_t);
    int (*shutdown)(int, int);
    int (*close)(int);
    ssize_t (*recv)(int, void *, size_t, int);
    ssize_t (*recvfrom)(int, void *, size_t, int, struct sockaddr *, socklen_t *);
    ssize_t (*recvmsg)(int, struct msghdr *, int);
    ssize_t (*read)(int, void *, size_t);
    ssize_t (*readv)(int, const struct iovec *, int);
    ssize_t (*send)(int, const void *, size_t, int);
    ssize_t (*sendto)(int, const void *, size_t, int, const struct sockaddr *, socklen_t);
    ssize_t (*sendmsg)(int, const struct msghdr *, int);
    ssize_t (*write)(int, const void *, size_t);
    ssize_t (*writev)(int, const struct iovec *, int);
    int (*poll)(struct pollfd *, nfds_t, int);
    int (*select)(int, fd_set *, fd_set *, fd_set *, struct timeval *);
    int (*getpeername)(int, struct sockaddr *, socklen_t *);
    int (*getsockname)(int, struct sockaddr *, socklen_t *);
    int (*setsockopt)(int, int, int, const void *, socklen_t);
    int (*getsockopt)(int, int, int, void *, socklen_t *);
    int (*fcntl)(int, int, ...);
};
static const struct sockets rsockets = {
    rsocket, rbind, rlisten, raccept, rconnect, rshutdown, rclose, rrecv, rrecvfrom, rrecvmsg, rread, rreadv,
    rsend, rsendto, rsendmsg, rwrite, rwritev, rpoll, rselect, rgetpeername, rgetsockname, rsetsockopt, rgetsockopt, rfcntl,
};
static const struct sockets plain_sockets = {
    socket, bind, listen, accept, connect, shutdown, close, recv, recvfrom, recvmsg, read, readv,
    send, sendto, sendmsg, write, writev, poll, select, getpeername, getsockname, setsockopt, getsockopt, fcntl,
};
static const struct sockets *the = &rsockets;

static const struct constant socket_constants[] = {
    N(SOCK_STREAM), N(SOCK_DGRAM), N(SOCK_RAW), N(SOCK_SEQPACKET), N(SOCK_NONBLOCK), N(SOCK_CLOEXEC), N(IPPROTO_TCP),
    N(IPPROTO_UDP), N(IPPROTO_IP), N(IPPROTO_IPV6), N(IPPROTO_SCTP), N(AF_UNIX), N(SOL_SOCKET), N(SOL_RDMA), N(RDMA_SQSIZE),
    N(RDMA_RQSIZE), N(RDMA_INLINE), N(RDMA_IOMAPSIZE), N(RDMA_ROUTE),
    N(SO_REUSEADDR), N(SO_REUSEPORT), N(SO_RCVBUF), N(SO_SNDBUF), N(SO_LINGER), N(SO_KEEPALIVE), N(SO_OOBINLINE), N(SO_ERROR), N(SO_TYPE), N(SO_DOMAIN), N(SO_PROTOCOL),
    N(SO_ACCEPTCONN), N(SO_BROADCAST), N(SO_RCVTIMEO), N(SO_SNDTIMEO), N(SO_RCVLOWAT), N(SO_SNDLOWAT), N(SO_PRIORITY),
    N(SO_DONTROUTE), N(SO_TIMESTAMP), N(TCP_NODELAY), N(TCP_MAXSEG), N(TCP_KEEPIDLE), N(TCP_KEEPINTVL), N(TCP_KEEPCNT),
    N(TCP_CONGESTION), N(TCP_INFO), N(TCP_CORK), N(TCP_USER_TIMEOUT), N(TCP_QUICKACK), N(TCP_DEFER_ACCEPT), N(TCP_SYNCNT),
    N(IP_TOS), N(IP_TTL), N(IPV6_V6ONLY), N(IPV6_TCLASS), N(MSG_PEEK), N(MSG_WAITALL), N(MSG_DONTWAIT), N(MSG_NOSIGNAL),
    N(MSG_MORE), N(MSG_OOB), N(MSG_TRUNC), N(MSG_DONTROUTE), N(MSG_ERRQUEUE), N(MSG_CTRUNC), N(MSG_EOR),
    N(SHUT_RD), N(SHUT_WR), N(SHUT_RDWR), N(POLLIN), N(POLLOUT), N(POLLPRI), N(POLLRDHUP), N(POLLHUP), N(POLLERR), N(POLLNVAL), N(F_GETFL), N(F_SETFL), N(F_GETFD), N(F_SETFD),
    N(EPOLL_CTL_ADD), N(EPOLL_CTL_MOD), N(EPOLL_CTL_DEL), N(EPOLLIN), N(EPOLLOUT), N(EPOLLPRI), N(EPOLLET), N(EPOLLONESHOT),
    N(F_DUPFD), N(F_GETOWN), N(O_NONBLOCK), N(O_ASYNC), N(O_APPEND), N(FD_CLOEXEC),
};

static volatile sig_atomic_t broken_pipes;

static void broken_pipe(int number) {
    (void)number;
    broken_pipes++;
}

static void choose_sockets(void) {
    the = strcmp(words[0], "rs") ? &plain_sockets : &rsockets;
    signal(SIGPIPE, broken_pipe);
    tell("done");
}

/* A number of the headers, or of others joined by `|`. */
static int number(const char *word) {
    char copy[128], *rest = copy, *one;
    int all = 0;
    snprintf(copy, sizeof copy, "%s", word);
    while ((one = strsep(&rest, "|"))) {
        size_t i = 0, count = sizeof socket_constants / sizeof *socket_constants;
        while (i < count && strcmp(one, socket_constants[i].name))
            i++;
        all |= (int)(i < count ? socket_constants[i].value : value(one));
    }
    return all;
}

static int n(const char *name, int otherwise) {
    const char *word = key(name);
    return word ? number(word) : otherwise;
}

/* The descriptor of a word. */
static int descriptor(const char *word) {
    if (isdigit(*word) || *word == '-')
        return atoi(word);
    return (int)value(word) - 1;
}

static void said(int64_t result) {
    tell("%lld", (long long)result);
    if (result < 0)
        tell(" errno %s", error_name(errno));
    if (broken_pipes)
        tell(" SIGPIPE");
    broken_pipes = 0;
}

static int close_socket(void *socket) {
    return the->close((int)(intptr_t)socket - 1);
}

static void new_socket(int socket) {
    if (socket < 0) {
        said(socket);
        return;
    }
    tell_new("rsocket", (void *)(intptr_t)(socket + 1), close_socket);
}

static socklen_t length_of(const struct sockaddr *address) {
    return n("len", address && address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in));
}

/* The address of a word; `NAME` of a socket is the address that it has. */
static struct sockaddr *destination(const char *word, struct sockaddr_storage *space) {
    struct object *object = find(word);
    if (!object)
        return address(word, space);
    socklen_t length = sizeof *space;
    if (the->getsockname(descriptor(word), (void *)space, &length))
        fail("no address of", word);
    return (void *)space;
}

typedef int with_address(int, const struct sockaddr *, socklen_t);

static void at_address(with_address *call) {
    struct sockaddr_storage space;
    int socket = descriptor(words[0]);
    struct sockaddr *to = destination(words[1], &space);
    if (!left_out)
        said(call(socket, to, length_of(to)));
}

typedef int for_name(int, struct sockaddr *, socklen_t *);

static void tell_name(const char *what, const void *address, socklen_t length, socklen_t room) {
    if (room >= sizeof(struct sockaddr_in) && length)
        tell_address(what, address);
    tell(" len=%u", length);
}

static void name_of(for_name *call) {
    struct sockaddr_storage space = {0};
    int socket = descriptor(words[0]);
    socklen_t room = n("len", sizeof space), length = room;
    if (left_out)
        return;
    int result = call(socket, key("null") ? NULL : (void *)&space, key("null") ? NULL : &length);
    said(result);
    if (!result)
        tell_name("name", &space, length, room);
}

/* Says if something can be read or accepted within a while, or if nobody is to wait for it. It asks again and again: librdmacm's
 * rpoll does not hear at once of connections that come while it waits, and before rdma-core 63 it hangs behind a wait that has
 * passed. */
static bool came(int socket, bool waits) {
    struct pollfd wait = {.fd = socket, .events = POLLIN};
    uint64_t until = milliseconds() + n("wait", 1500);
    int count = waits ? the->poll(&wait, 1, 0) : 1;
    while (!count && milliseconds() < until) {
        usleep(1000);
        count = the->poll(&wait, 1, 0);
    }
    if (!count)
        tell("nothing came");
    errno = 0;
    return count;
}

/* Accepts a connection, which is waited for before. */
static void accept_one(void) {
    struct sockaddr_storage space = {0};
    int listener = descriptor(words[0]);
    socklen_t room = n("len", sizeof space), length = room;
    if (left_out || !came(listener, !key("now")))
        return;
    int accepted = the->accept(listener, key("null") ? NULL : (void *)&space, key("null") ? NULL : &length);
    new_socket(accepted);
    if (accepted >= 0 && !key("null"))
        tell_name("from", &space, length, room);
}

/* The numbers of a key, divided by `/`. */
static int list(const char *name, int *to, int most) {
    char copy[128], *rest = copy, *one;
    int count = 0;
    const char *word = key(name);
    if (!word)
        return 0;
    snprintf(copy, sizeof copy, "%s", word);
    while (count < most && (one = strsep(&rest, "/")))
        to[count++] = *one == '-' ? -number(one + 1) : number(one);
    return count;
}

static void set_socket_option(void) {
    union {
        int numbers[8];
        long longs[4];
        char text[32];
    } given = {{0}};
    int numbers[8], socket = descriptor(words[0]), count = list("value", numbers, 8), longs = list("long", numbers, 4);
    for (int i = 0; i < count; i++)
        given.numbers[i] = numbers[i];
    for (int i = 0; i < longs; i++)
        given.longs[i] = numbers[i];
    socklen_t length = count * sizeof(int) + longs * sizeof(long);
    if (key("text"))
        length = snprintf(given.text, sizeof given.text, "%s", key("text"));
    if (!left_out)
        said(the->setsockopt(socket, number(words[1]), number(words[2]), key("null") ? NULL : &given, n("len", length)));
}

static void get_socket_option(void) {
    unsigned char got[256];
    int socket = descriptor(words[0]);
    socklen_t room = n("len", 4), length = room;
    if (left_out)
        return;
    memset(got, 0xee, sizeof got);
    int result = the->getsockopt(socket, number(words[1]), number(words[2]), key("null") ? NULL : got, &length);
    said(result);
    if (result)
        return;
    tell(" len=%u", length);
    if (key("quiet"))
        return;
    if (key("error")) {
        int error;
        memcpy(&error, got, sizeof error);
        tell(" %s", error ? error_name(error) : "none");
        return;
    }
    for (unsigned at = 0; at + 4 <= length && at < 16; at += 4) {
        int one;
        memcpy(&one, got + at, sizeof one);
        tell(one == (int)0xeeeeeeee ? " untouched" : " %d", one);
    }
    for (unsigned at = 0; length < 4 && at < length; at++)
        tell(" %02x", got[at]);
}

static void tell_events(int events) {
    static const struct constant known[] = {
        N(POLLIN), N(POLLPRI), N(POLLOUT), N(POLLRDHUP), N(POLLERR), N(POLLHUP), N(POLLNVAL),
    };
    const char *between = " ";
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (events & known[i].value) {
            tell("%s%s", between, known[i].name + strlen("POLL"));
            between = ",";
        }
        events &= ~known[i].value;
    }
    tell(*between == ' ' ? " none" : "");
    if (events)
        tell(",%#x", events);
}

/* Polls sockets, each followed by events if they are others than both. */
static void poll_sockets(void) {
    struct pollfd fds[8];
    int count = 0;
    for (int i = 0; i < word_count; i++)
        if (!strncmp(words[i], "POLL", 4) && count)
            fds[count - 1].events = number(words[i]);
        else if (!strchr(words[i], '='))
            fds[count++] = (struct pollfd){.fd = descriptor(words[i]), .events = POLLIN | POLLOUT, .revents = 0x7777};
    if (left_out)
        return;
    said(the->poll(fds, count, n("wait", 0)));
    for (int i = 0; i < count; i++)
        tell_events(fds[i].revents);
}

/* Selects a socket for what the keys say. */
static void select_socket(void) {
    static const char *const names[] = {"read", "write", "except"};
    fd_set sets[3];
    int socket = descriptor(words[0]);
    struct timeval time = {.tv_usec = n("wait", 0) * 1000};
    if (left_out)
        return;
    for (int i = 0; i < 3; i++) {
        FD_ZERO(&sets[i]);
        if (key(names[i]))
            FD_SET(socket, &sets[i]);
    }
    said(the->select(socket + 1, key("read") ? &sets[0] : NULL, key("write") ? &sets[1] : NULL, key("except") ? &sets[2] : NULL,
                     &time));
    for (int i = 0; i < 3; i++)
        if (key(names[i]) && FD_ISSET(socket, &sets[i]))
            tell(" %s", names[i]);
}

static uint8_t sent_bytes[LONGEST], got_bytes[LONGEST];

/* Data that a line has as a text, or a number of bytes of, which begin with the byte that it has. */
static size_t to_send(void) {
    const char *text = key("text");
    size_t length = text ? strlen(text) : (size_t)n("bytes", 0), first = n("first", 0);
    for (size_t i = 0; i < length; i++)
        sent_bytes[i] = text ? (uint8_t)text[i] : (uint8_t)(first + i * 31 + i / 251);
    return length;
}

/* What came: its length, and its text or its sum. */
static void tell_got(int64_t length, size_t room) {
    said(length);
    if (length <= 0)
        return;
    size_t there = (size_t)length < room ? (size_t)length : room;
    uint32_t sum = 0;
    bool is_text = there <= 40;
    for (size_t i = 0; i < there; i++) {
        sum = sum * 31 + got_bytes[i];
        is_text &= isalnum(got_bytes[i]) != 0;
    }
    if (is_text)
        tell(" %.*s", (int)there, (const char *)got_bytes);
    else
        tell(" sum=%u", sum);
}

static size_t room_for(void) {
    memset(got_bytes, 0xcc, 64);
    return n("bytes", 64);
}

static void receive_from(int socket) {
    struct sockaddr_storage space = {0};
    size_t room = room_for();
    socklen_t given = n("len", sizeof space), length = given;
    int64_t got = the->recvfrom(socket, got_bytes, room, n("flags", 0), (void *)&space, &length);
    tell_got(got, room);
    if (got > 0)
        tell_name("from", &space, length, given);
}

/* Divides the bytes into pieces of the sizes of a key. */
static int divide(const char *name, uint8_t *bytes, struct iovec *pieces) {
    int sizes[PIECES], count = list(name, sizes, PIECES);
    for (int i = 0; i < count; i++) {
        pieces[i] = (struct iovec){.iov_base = bytes, .iov_len = sizes[i]};
        bytes += sizes[i];
    }
    return count;
}

static void receive_message(int socket, bool is_message) {
    struct iovec pieces[PIECES];
    struct sockaddr_storage space = {0};
    char control[64];
    room_for();
    int count = divide("pieces", got_bytes, pieces);
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = count, .msg_name = key("name") ? &space : NULL,
                             .msg_namelen = key("name") ? sizeof space : 0, .msg_flags = n("before", 0),
                             .msg_control = key("control") ? control : NULL, .msg_controllen = key("control") ? sizeof control : 0};
    int64_t got = is_message ? the->recvmsg(socket, &message, n("flags", 0)) : the->readv(socket, pieces, count);
    tell_got(got, sizeof got_bytes);
    if (got >= 0 && is_message)
        tell(" flags=%#x", message.msg_flags & ~MSG_CMSG_CLOEXEC);
    if (got >= 0 && key("name"))
        tell_name("from", &space, message.msg_namelen, sizeof space);
}

static void send_message(int socket, bool is_message) {
    struct iovec pieces[PIECES];
    struct sockaddr_storage space;
    struct cmsghdr control = {.cmsg_len = sizeof control};
    const char *to = key("to");
    to_send();
    int count = divide("pieces", sent_bytes, pieces);
    struct sockaddr *name = to ? destination(to, &space) : NULL;
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = count, .msg_name = name, .msg_namelen = name ? length_of(name) : 0,
                             .msg_control = key("control") ? &control : NULL, .msg_controllen = key("control") ? sizeof control : 0};
    said(is_message ? the->sendmsg(socket, &message, n("flags", 0)) : the->writev(socket, pieces, count));
}

static void send_to(int socket) {
    struct sockaddr_storage space;
    struct sockaddr *to = destination(words[1], &space);
    size_t length = to_send();
    said(the->sendto(socket, sent_bytes, length, n("flags", 0), to, n("len", to ? length_of(to) : 0)));
}

/* Sends until no more is taken, or receives until nothing is left; says how many bytes there were, without the limits of
 * buffers if the key says so. */
static void fill(int socket, bool sends) {
    int64_t all = 0, one;
    sent_bytes[0] = 1;
    struct pollfd wait = {.fd = socket, .events = POLLIN};
    do {
        if (!sends && the->poll(&wait, 1, n("wait", 0)) < 1)
            break;
        one = sends ? the->send(socket, sent_bytes, 4096, MSG_DONTWAIT | MSG_NOSIGNAL)
                    : the->recv(socket, got_bytes, sizeof got_bytes, MSG_DONTWAIT);
        all += one > 0 ? one : 0;
    } while (one > 0 && all < 64 << 20);
    if (key("quiet"))
        tell("%s", all > n("quiet", 0) ? "more" : "less");
    else
        tell("%lld", (long long)all);
}

/* Adds, changes or removes a descriptor of a set. Its events come with the first letter of its name. */
static void control_set(int set) {
    int fd = descriptor(words[2]);
    struct epoll_event event = {.events = n("events", POLLIN | POLLOUT), .data.u64 = *words[2]};
    if (!left_out)
        said(NEWER(int, repoll_ctl, (int, int, int, struct epoll_event *))(set, number(words[1]), fd, &event));
}

static void wait_for_set(int set) {
    struct epoll_event events[8];
    int count = NEWER(int, repoll_wait, (int, struct epoll_event *, int, int))(set, events, n("most", 8), n("wait", 0));
    said(count);
    for (int i = 0; i < count && i < 8; i++) {
        tell(" %c", (char)events[i].data.u64);
        tell_events(events[i].events);
    }
}

/* Where the other end may write: at an offset, or, if it is none, at the buffer's address. */
static void map(int socket) {
    uint8_t *buffer = AP(1);
    buffer += k("at", 0);
    if (left_out)
        return;
    off_t offset = riomap(socket, buffer, k("bytes", BUFFER), n("prot", PROT_WRITE), n("flags", 0), (off_t)k("offset", -1));
    if (buffer && offset == (off_t)(intptr_t)buffer)
        tell("its address");
    else
        said(offset);
}

/* Writes there, behind the offset or the address of a buffer. */
static void write_mapped(int socket) {
    size_t length = to_send();
    off_t offset = (off_t)(k("offset", 0) + k("at", 0));
    if (!left_out)
        said((ssize_t)riowrite(socket, sent_bytes, length, offset, n("flags", 0)));
}

static void fcntl_socket(int socket) {
    int result = the->fcntl(socket, number(words[1]), word_count > 2 ? number(words[2]) : 0);
    if (result > 0)
        tell("%#x", result);
    else
        said(result);
}

static void close_named(int socket) {
    int result = the->close(socket);
    struct object *object = find(words[0]);
    /* A set of rsockets that is not empty stays. */
    if (result > 0)
        tell("%s", error_name(result));
    else
        said(result);
    if (object && result <= 0)
        object->gone = true;
}

#define S int s = descriptor(words[0])
/* Calls that receive wait themselves for no more than something that has come. */
#define CAME came(s, !(n("flags", 0) & MSG_DONTWAIT) && !key("now"))
#define SOCKET(known, ...) DO(known, S; if (!left_out) { __VA_ARGS__; })

/* Makes the call of a name. */
static bool socket_call(const char *name) {
    DO("sockets", choose_sockets())
    DO("pause", usleep(atoi(words[0]) * 1000); tell("done"))
    DO("rsocket", new_socket(the->socket(number(words[0]), number(words[1]), word_count > 2 ? number(words[2]) : 0)))
    DO("rbind", at_address(the->bind))
    DO("rconnect", at_address(the->connect))
    SOCKET("rlisten", said(the->listen(s, atoi(words[1]))))
    DO("raccept", accept_one())
    SOCKET("rshutdown", said(the->shutdown(s, number(words[1]))))
    DO("rgetsockname", name_of(the->getsockname))
    DO("rgetpeername", name_of(the->getpeername))
    DO("rsetsockopt", set_socket_option())
    DO("rgetsockopt", get_socket_option())
    DO("rpoll", poll_sockets())
    DO("rselect", select_socket())
    SOCKET("rsend", size_t length = to_send(); said(the->send(s, sent_bytes, length, n("flags", 0))))
    SOCKET("rwrite", size_t length = to_send(); said(the->write(s, sent_bytes, length)))
    SOCKET("rsendto", send_to(s))
    SOCKET("rsendmsg", send_message(s, true))
    SOCKET("rwritev", send_message(s, false))
    SOCKET("rrecv", if (!CAME) return true; size_t room = room_for(); tell_got(the->recv(s, got_bytes, room, n("flags", 0)), room))
    SOCKET("rread", if (!CAME) return true; size_t room = room_for(); tell_got(the->read(s, got_bytes, room), room))
    SOCKET("rrecvfrom", if (CAME) receive_from(s))
    SOCKET("rrecvmsg", if (CAME) receive_message(s, true))
    SOCKET("rreadv", if (CAME) receive_message(s, false))
    SOCKET("fill", fill(s, true))
    SOCKET("drain", fill(s, false))
    SOCKET("rfcntl", fcntl_socket(s))
    DO("repoll_create", new_socket(NEWER(int, repoll_create, (int))(number(words[0]))))
    SOCKET("repoll_ctl", control_set(s))
    SOCKET("repoll_wait", wait_for_set(s))
    SOCKET("riomap", map(s))
    SOCKET("riounmap", char *buffer = AP(1); buffer += k("at", 0); if (!left_out) said(riounmap(s, buffer, k("bytes", BUFFER))))
    SOCKET("riowrite", write_mapped(s))
    SOCKET("rclose", close_named(s))
    return false;
}
