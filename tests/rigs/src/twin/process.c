/* Processes, threads, signals and limits, for runner.c: compiled as one text with it. */

#include <dirent.h>
#include <linux/capability.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* A thread that sleeps each time in so many looks, with some milliseconds between them, is taken for one that waits. */
#define LOOKS 30
#define PAUSE 5

/* A program that every system has. */
#define LOADER "/lib64/ld-linux-x86-64.so.2"

static bool call(const char *name);

/* Takes the first word for the name of a call. */
static const char *first_word(void) {
    const char *name = words[0];
    memmove(words, words + 1, --word_count * sizeof *words);
    return name;
}

/* Makes a call in a child, and says what it told, or how the child ended. */
static void in_child(void) {
    const char *name = first_word();
    char said[MOST] = "";
    int ends[2], status = 0;
    if (pipe2(ends, O_CLOEXEC))
        fail("no pipe", "");
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        signal(SIGSEGV, SIG_DFL);
        signal(SIGABRT, SIG_DFL);
        signal(SIGALRM, SIG_DFL);
        alarm(LIMIT_SECONDS / 2);
        if (!call(name))
            tell("no such call");
        _exit(write(ends[1], told, strlen(told)) < 0);
    }
    close(ends[1]);
    for (size_t length = 0; length < sizeof said - 1;) {
        ssize_t more = read(ends[0], said + length, sizeof said - 1 - length);
        if (more <= 0)
            break;
        said[length += more] = 0;
    }
    close(ends[0]);
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status))
        tell("child died of signal %d", WTERMSIG(status));
    else
        tell("child %d%s%s", WEXITSTATUS(status), *said ? " " : "", said);
}

/* Becomes another program, which looks whether this one could be loaded, and says nothing. */
static void run_another(void) {
    char own[MOST] = "";
    if (readlink("/proc/self/exe", own, sizeof own - 1) > 0)
        execl(LOADER, LOADER, "--verify", own, NULL);
    tell("%s", error_name(errno));
}

static void write_memory(uint8_t *at) {
    memset(at + k("at", 0), k("byte", 0xaa), k("len", BUFFER));
    tell("written");
}

/* Counts open descriptors: all, or those that another program would have. */
static int inherited_first;
static int descriptors(bool inherited) {
    int count = 0;
    DIR *all = opendir("/proc/self/fd");
    for (struct dirent *one; all && (one = readdir(all));) {
        int fd = atoi(one->d_name);
        if (*one->d_name != '.' && fd > 2 && fd != dirfd(all) && (!inherited || !(fcntl(fd, F_GETFD) & FD_CLOEXEC)))
            count++;
    }
    closedir(all);
    return count;
}

__attribute__((constructor)) static void count_first(void) {
    inherited_first = descriptors(true);
}

/* The lowest number that a descriptor may have next. */
static int next_descriptor(void) {
    int fd = dup(0);
    close(fd);
    return fd;
}

/* The change of the number of descriptors since the last time. */
static void tell_descriptors(void) {
    static int before;
    int now = descriptors(false);
    tell(key("since") ? "%+d" : "counted", now - before);
    before = now;
}

/* The limits as they were. */
static struct rlimit limit_before[RLIM_NLIMITS];

static void allow_locking(bool allowed) {
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];
    syscall(SYS_capget, &header, data);
    data[0].effective &= ~(1u << CAP_IPC_LOCK);
    if (allowed)
        data[0].effective |= data[0].permitted & 1u << CAP_IPC_LOCK;
    syscall(SYS_capset, &header, data);
}

static uint64_t used(int resource) {
    unsigned long pages = 0;
    if (resource == RLIMIT_NOFILE)
        return next_descriptor();
    if (resource == RLIMIT_AS) {
        FILE *file = fopen("/proc/self/statm", "re");
        if (!file || fscanf(file, "%lu", &pages) != 1)
            fail("no size", "");
        fclose(file);
    }
    return pages * sysconf(_SC_PAGESIZE);
}

/* Leaves the process so much of a resource beyond what it has; a name that is not there would be a fault of the script. */
static void set_limit(bool lowered) {
    static const char *const names[RLIM_NLIMITS] = {[RLIMIT_NOFILE] = "nofile", [RLIMIT_AS] = "as", [RLIMIT_MEMLOCK] = "memlock"};
    for (int i = 0; i < RLIM_NLIMITS; i++) {
        if (!names[i] || strcmp(names[i], words[0]))
            continue;
        if (lowered)
            getrlimit(i, &limit_before[i]);
        struct rlimit limit = limit_before[i];
        if (lowered)
            limit.rlim_cur = used(i) + strtoull(words[1], NULL, 0);
        if (i == RLIMIT_MEMLOCK)
            allow_locking(!lowered);
        tell_int(setrlimit(i, &limit));
    }
}

/* Signals for a thread that waits: some for which calls begin again, and then those for which they do not. */
static pthread_t interrupted;
static volatile sig_atomic_t signals;
static volatile bool interrupting;
static pid_t interrupted_id;

static void count_signal(int number) {
    (void)number;
    signals++;
}

/* Says if a thread of this process sleeps now. */
static bool sleeps(pid_t thread) {
    char name[64], line[512] = "";
    snprintf(name, sizeof name, "/proc/self/task/%d/stat", thread);
    FILE *file = fopen(name, "re");
    if (!file)
        return false;
    const char *end = fgets(line, sizeof line, file) ? strrchr(line, ')') : NULL;
    fclose(file);
    return end && end[1] && end[2] == 'S';
}

/* Waits until a thread waits, or something else has come to its end. Says if it waits. */
static bool waits(pid_t thread, volatile bool *goes_on) {
    for (int looks = 0; *goes_on && looks < LOOKS; looks++) {
        usleep(PAUSE * 1000);
        if (!sleeps(thread))
            looks = 0;
    }
    return *goes_on;
}

/* Sends a signal each time that the thread waits, and the next when it has had this one. */
static void *send_signals(void *restarting) {
    for (int left = *(int *)restarting; waits(interrupted_id, &interrupting); left--) {
        int before = signals;
        struct sigaction action = {.sa_handler = count_signal, .sa_flags = left > 0 ? SA_RESTART : 0};
        sigaction(SIGUSR1, &action, NULL);
        pthread_kill(interrupted, SIGUSR1);
        while (interrupting && signals == before)
            usleep(PAUSE * 1000);
    }
    return NULL;
}

/* Makes a call that waits, and says what it told, and after how many signals. */
static void interrupt(void) {
    pthread_t thread;
    int restarting = k("restart", 0);
    const char *name = first_word();
    struct sigaction action = {.sa_handler = count_signal};
    sigaction(SIGUSR1, &action, NULL);
    signals = 0;
    interrupted = pthread_self();
    interrupted_id = gettid();
    interrupting = true;
    if (pthread_create(&thread, NULL, send_signals, &restarting))
        fail("no thread", "");
    if (!call(name))
        fail("no such call:", name);
    int count = signals;
    interrupting = false;
    pthread_join(thread, NULL);
    tell(" after %d signals", count);
}

static void wait_cq_event(void *channel) {
    struct ibv_cq *cq;
    void *given;
    int result = ibv_get_cq_event(channel, &cq, &given);
    tell_int(result);
    if (!result)
        ibv_ack_cq_events(cq, 1);
}

static void wait_async_event(void) {
    struct ibv_async_event event;
    int result = ibv_get_async_event(context, &event);
    tell_int(result);
    if (!result)
        ibv_ack_async_event(&event);
}

static void wait_cm_event(void *channel) {
    struct rdma_cm_event *event;
    int result = rdma_get_cm_event(channel, &event);
    tell_int(result);
    if (!result)
        rdma_ack_cm_event(event);
}

/* Events of queues that are kept for a while, with the number of those that are not acknowledged. */
static struct kept {
    struct ibv_cq *cq;
    int count;
} kept[16];

static int kept_events(const struct ibv_cq *cq) {
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (kept[i].count && kept[i].cq == cq)
            return kept[i].count;
    return 0;
}

static void keep_cq_event(struct ibv_comp_channel *channel) {
    struct ibv_cq *cq = NULL;
    void *given;
    int at = 0;
    if (!readable(channel->fd, COMES)) {
        tell("none");
        return;
    }
    tell_int(ibv_get_cq_event(channel, &cq, &given));
    tell(" %s", named(cq));
    while (kept[at].count && kept[at].cq != cq)
        if (++at == sizeof kept / sizeof *kept)
            fail("too many queues with events", "");
    kept[at] = (struct kept){cq, kept[at].count + 1};
}

/* Acknowledges so many events of a queue, of those that were kept. */
static void ack_cq_events(struct ibv_cq *cq, int count) {
    if (count > kept_events(cq)) {
        left_out = true;
        return;
    }
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (kept[i].count && kept[i].cq == cq)
            kept[i].count -= count;
    ibv_ack_cq_events(cq, count);
    tell("done");
}

/* Acknowledges what is left: nothing can be destroyed before. */
static void ack_kept_events(void) {
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        if (kept[i].count > 0)
            ibv_ack_cq_events(kept[i].cq, kept[i].count);
        kept[i].count = 0;
    }
}

/* Objects that another thread destroys. */
static struct {
    pthread_t thread;
    struct object *object;
    int result;
    volatile pid_t id;
    volatile bool runs;
} destroying;

static void *destroy_apart(void *nothing) {
    destroying.id = gettid();
    destroying.result = destroying.object->destroy(destroying.object->pointer);
    destroying.runs = false;
    return nothing;
}

static void start_destroy(const char *name) {
    destroying.object = find(name);
    destroying.id = 0;
    destroying.runs = true;
    if (!destroying.object || pthread_create(&destroying.thread, NULL, destroy_apart, NULL))
        fail("no thread for", name);
    while (!destroying.id)
        usleep(PAUSE * 1000);
    tell(waits(destroying.id, &destroying.runs) ? "waits" : "done");
}

static void join_destroy(void) {
    pthread_join(destroying.thread, NULL);
    destroying.object->gone = !destroying.result;
    tell_int(destroying.result);
}

/* Threads that make queue pairs of a queue's and destroy them, again and again, while another polls it. */
struct maker {
    pthread_t thread;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    int times, failures;
};

static void *make_and_destroy(void *given) {
    struct maker *maker = given;
    for (int i = 0; i < maker->times; i++) {
        struct ibv_qp_init_attr attr = {.send_cq = maker->cq, .recv_cq = maker->cq, .qp_type = IBV_QPT_RC,
                                        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
        struct ibv_qp *qp = ibv_create_qp(maker->pd, &attr);
        struct ibv_mr *mr = ibv_reg_mr(maker->pd, &data_of, sizeof data_of, 0);
        maker->failures += !qp || ibv_destroy_qp(qp);
        maker->failures += !mr || ibv_dereg_mr(mr);
    }
    return NULL;
}

static void churn(void *pd, struct ibv_cq *cq, struct ibv_qp *qp, struct ibv_mr *mr) {
    struct maker makers[3] = {0};
    int sent = 0, came = 0, failures = 0;
    for (int i = 0; i < 3; i++) {
        makers[i] = (struct maker){.pd = pd, .cq = cq, .times = k("times", 20)};
        if (pthread_create(&makers[i].thread, NULL, make_and_destroy, &makers[i]))
            fail("no thread", "");
    }
    for (uint64_t end = milliseconds() + COMES; came < (int)k("sends", 200) && milliseconds() < end;) {
        struct ibv_sge sge = {.addr = (uintptr_t)mr->addr, .length = 8, .lkey = mr->lkey};
        struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
                                 .wr.rdma = {(uintptr_t)mr->addr + BUFFER / 2, mr->rkey}},
                           *bad;
        struct ibv_wc wc;
        if (sent == came)
            sent++, failures += !!ibv_post_send(qp, &wr, &bad);
        int got = ibv_poll_cq(cq, 1, &wc);
        came += got == 1;
        failures += got < 0 || (got && (wc.status || wc.qp_num != qp->qp_num));
    }
    tell("%d came, %d failed;", came, failures);
    for (int i = 0; i < 3; i++) {
        pthread_join(makers[i].thread, NULL);
        tell(" %d", makers[i].failures);
    }
}

/* Makes the call of a name. */
static bool process_call(const char *name) {
    DO("fork", in_child())
    DO("exit", _exit(a(0)))
    DO("exec", run_another())
    DO("write_memory", P0; if (!left_out) write_memory(x))
    DO("inherited", tell("%d", descriptors(true) - inherited_first))
    DO("descriptors", tell_descriptors())
    DO("limit", set_limit(true))
    DO("unlimit", set_limit(false))
    DO("interrupt", interrupt())
    DO("wait_cq_event", P0; if (!left_out) wait_cq_event(x))
    DO("wait_async_event", wait_async_event())
    DO("wait_cm_event", P0; if (!left_out) wait_cm_event(x))
    DO("keep_cq_event", P0; if (!left_out) keep_cq_event(x))
    DO("ack_cq_events", P0; if (!left_out) ack_cq_events(x, a(1)))
    DO("start_destroy", start_destroy(words[0]))
    DO("join_destroy", join_destroy())
    DO("churn", P1; void *qp = AP(2); void *mr = AP(3); if (!left_out) churn(x, y, qp, mr))
    return false;
}
