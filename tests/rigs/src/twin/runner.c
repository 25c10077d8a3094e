/* Runs scripts of calls, and prints one line for each: `@ SCRIPT` begins a script; other lines are
 * `NUMBER [NAME =] CALL ARGUMENT...`, in which a comma is a space. language.c says what arguments are; calls are in verbs.c,
 * data.c, extended.c, cm.c, process.c, newer.c and sockets.c. With COUNT_CALLS in the environment, the functions of the
 * libraries that a script calls are printed behind it. */

/* A call that accesses memory which is not there is left here. One that does not end, ends the process: what it has locked would
 * stay so. */
static sigjmp_buf before_call;
static volatile int signal_number;
static pthread_t calls_here;

static void died(int number) {
    if (number == SIGSEGV && pthread_equal(pthread_self(), calls_here)) {
        signal_number = number;
        siglongjmp(before_call, 1);
    }
    char text[160];
    int length = snprintf(text, sizeof text, "%d died of signal %d\n", line_number, number);
    fflush(stdout);
    _exit(write(1, text, length) < 0 ? 4 : 3);
}

/* Ends a script: its last objects go first, and again those that were busy, whose errors are told. Events of theirs that were not
 * taken go too. */
static void destroy_objects(void) {
    int count = 0;
    /* A call that still waits for the other end's answer has it then. */
    for (int i = object_count; apart.runs && i-- > 0;)
        if (is(&objects[i], "get_request"))
            objects[i].gone = !objects[i].destroy(objects[i].pointer);
    join_apart();
    ack_kept_events();
    told[0] = 0;
    for (int round = 0; round < 3; round++)
        for (int i = object_count; i-- > 0;) {
            struct object *object = &objects[i];
            if (!object->pointer || object->gone || !object->destroy)
                continue;
            errno = 0;
            int result = object->destroy(object->pointer);
            object->gone = !result;
            if (result && !round)
                tell("%s%s=%s", count++ ? " " : "", object->name, error_name(result < 0 ? errno : result));
            else if (result && round == 2)
                tell(" %s=stays", object->name);
        }
    if (!told[0])
        tell("all gone");
    object_count = 0;
    memset(data_of, 0, sizeof data_of);
    memset(ports_given + 1, 0, sizeof ports_given - 1);
    while (readable(context->async_fd, 0)) {
        struct ibv_async_event event;
        if (!ibv_get_async_event(context, &event))
            ibv_ack_async_event(&event);
    }
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

/* Takes a line apart: its number, the name of what it makes, and its words. Returns the call's name. */
static const char *read_line(char *line) {
    char *rest = line, *word;
    word_count = 0;
    while ((word = strsep(&rest, " ,")))
        if (*word && word_count < 48)
            words[word_count++] = word;
    line_number = atoi(words[0]);
    names = word_count > 3 && !strcmp(words[2], "=");
    const char *object = words[1], *called = words[names ? 3 : 1];
    int first = names ? 4 : 2;
    word_count -= first;
    memmove(words, words + first, word_count * sizeof *words);
    if (names) {
        if (object_count == sizeof objects / sizeof *objects)
            fail("too many objects", "");
        objects[object_count] = (struct object){.pointer = NULL};
        snprintf(objects[object_count++].name, sizeof objects->name, "%s", object);
    }
    return called;
}

static bool call(const char *name) {
    return verbs_call(name) || data_call(name) || extended_call(name) || cm_call(name) || process_call(name) || newer_call(name) ||
           socket_call(name);
}

int main(void) {
    static char line[1024], name[1024];
    static const char *called;
    calls_here = pthread_self();
    if (getenv("PATIENCE"))
        patience = atoi(getenv("PATIENCE"));
    signal(SIGSEGV, died);
    signal(SIGABRT, died);
    signal(SIGALRM, died);
    open_device();
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        alarm(LIMIT_SECONDS);
        if (*line == '@') {
            snprintf(name, sizeof name, "%s", line + 2);
            script = name;
            printf("%s\n", line);
            memset(calls_made, 0, sizeof calls_made);
            continue;
        }
        called = read_line(line);
        left_out = false;
        made = NULL;
        told[0] = 0;
        errno = 0;
        if (sigsetjmp(before_call, 1)) {
            told[0] = 0;
            tell("died of signal %d", signal_number);
            if (!strcmp(called, "end"))
                object_count = apart.runs = 0;
        } else if (!strcmp(called, "end")) {
            destroy_objects();
        } else if (!call(called)) {
            fail("no such call:", called);
        }
        failed = left_out || !strncmp(told, "-1", 2) || !strncmp(told, "null", 4);
        if (names)
            objects[object_count - 1].pointer = made;
        printf("%d %s\n", line_number, left_out ? "left out" : told);
        if (getenv("COUNT_CALLS") && !strcmp(called, "end"))
            print_calls();
    }
    destroy_objects();
    ibv_close_device(context);
    printf("@ end\n");
    return 0;
}
