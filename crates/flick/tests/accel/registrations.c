// Registrations in epoll instances of a pipe that moves and of one of the kernel: sequences of `epoll_ctl`, known ones
// and random ones, return and report the same. And a client that asks as redis-benchmark does: it removes and adds
// each connection several times for a question.
#define _GNU_SOURCE
#include <netinet/in.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

#include "twins.h"

enum { ADD = EPOLL_CTL_ADD, MOD = EPOLL_CTL_MOD, DEL = EPOLL_CTL_DEL };
static int fds[2], sets[2];

// Does the same with both, the one that moves being 0, and compares what is returned.
#define BOTH(what, expression) \
    do { \
        int64_t results[2]; \
        for (int i = 0; i < 2; i++) results[i] = (expression); \
        same(what, results[0], results[1]); \
        last = results[1]; \
    } while (0)
static int64_t last;

static void expect(const char *what, int64_t value) { same(what, value, last); }

static int64_t control_with(int set, int operation, int fd, uint32_t events, uint64_t data) {
    struct epoll_event event = {.events = events, .data.u64 = data};
    errno = 0;
    return epoll_ctl(set, operation, fd, &event) * 1000 - errno;
}

static int64_t control(int i, int operation, uint32_t events, uint64_t data) {
    return control_with(sets[i], operation, fds[i], events, data);
}

// The first event of an instance, and how many there are.
static int64_t wait_of(int set, int max, int ms) {
    struct epoll_event events[4] = {{0}};
    errno = 0;
    int n = epoll_wait(set, events, max, ms);
    if (n <= 0) return n * 1000 - errno;
    return n * 1000000000ll + events[0].events % 100000 * 1000ll + (int64_t)events[0].data.u64;
}

static int64_t first(uint32_t events, uint64_t data) { return 1000000000ll + events * 1000ll + (int64_t)data; }

static void renew(int i) {
    if (sets[i]) close(sets[i]);
    sets[i] = epoll_create1(0);
}

// What a process that was forked, or a thread, is told by an instance.
static int64_t asked_by_child(int set) {
    int status;
    pid_t child = fork();
    if (child == 0) _exit(wait_of(set, 2, 0) == 0 ? 1 : wait_of(set, 2, 0) == first(EPOLLIN, 8) ? 2 : 3);
    if (waitpid(child, &status, 0) != child) fail("fork");
    return WEXITSTATUS(status);
}

// Begins, and writes and reads for so long that the pipe has probably moved.
static void begin_moved(char *self) {
    enum { MOVED_MS = 40 };
    struct timespec began, now;
    clock_gettime(CLOCK_MONOTONIC, &began);
    begin(self);
    do {
        for (int i = 0; i < 500; i++) put(8, 1), get(8);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((now.tv_sec - began.tv_sec) * 1000 + (now.tv_nsec - began.tv_nsec) / 1000000 < MOVED_MS);
}

static void *ask(void *set) { return (void *)(intptr_t)wait_of(*(int *)set, 2, 0); }

static int64_t asked_by_thread(int set) {
    pthread_t thread;
    void *result;
    if (pthread_create(&thread, 0, ask, &set) || pthread_join(thread, &result)) fail("thread");
    return (intptr_t)result;
}

// What an instance reports by another number.
static int64_t asked_by_other(int other_set) {
    int64_t result = wait_of(other_set, 2, 0);
    close(other_set);
    return result;
}

// Passes an instance through a socket, and returns its new number.
static int passed(int set) {
    int pair[2];
    char byte = 0, space[CMSG_SPACE(sizeof set)] = {0};
    struct iovec vector = {&byte, 1};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    *head = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof set), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(head), &set, sizeof set);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) || sendmsg(pair[0], &message, 0) != 1) fail("sendmsg");
    if (recvmsg(pair[1], &message, 0) != 1) fail("recvmsg");
    memcpy(&set, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof set);
    close(pair[0]), close(pair[1]);
    return set;
}

// An instance that reports the other one.
static int around(int set) {
    int outer = epoll_create1(0);
    if (control_with(outer, ADD, set, EPOLLIN, 8)) fail("around");
    return outer;
}

static int64_t polled(int set) {
    struct pollfd entry = {set, POLLIN, 0};
    return poll(&entry, 1, 0);
}

static int64_t selected(int set) {
    fd_set reads;
    FD_ZERO(&reads);
    FD_SET(set, &reads);
    struct timeval none = {0, 0};
    return select(set + 1, &reads, 0, 0, &none);
}

// Ways in which something but this thread's `epoll_wait` asks an instance. Those report what the kernel has.
static int64_t asked_otherwise(int set, const char *way) {
    if (!strcmp(way, "fork")) return asked_by_child(set);
    if (!strcmp(way, "thread")) return asked_by_thread(set);
    if (!strcmp(way, "dup")) return asked_by_other(dup(set));
    if (!strcmp(way, "dup2")) return asked_by_other(dup2(set, 150));
    if (!strcmp(way, "fcntl")) return asked_by_other(fcntl(set, F_DUPFD_CLOEXEC, 100));
    if (!strcmp(way, "passed")) return asked_by_other(passed(set));
    if (!strcmp(way, "around")) return asked_by_other(around(set));
    if (!strcmp(way, "poll")) return polled(set);
    if (!strcmp(way, "select")) return selected(set);
    fail(way);
    return 0;
}

static void removed(void) {
    put(5, 1);
    BOTH("wait", wait_of(sets[i], 2, 0));
    expect("a level", first(EPOLLIN, 5));
    BOTH("remove", control(i, DEL, 0, 0));
    for (int n = 0; n < 100; n++) BOTH("wait after the removal", wait_of(sets[i], 2, n % 50 == 0));
    expect("nothing", 0);
    BOTH("add", control(i, ADD, EPOLLIN | EPOLLET, 6));
    BOTH("wait for an edge", wait_of(sets[i], 2, 0));
    expect("the edge", first(EPOLLIN, 6));
}

static void errors(void) {
    void *hole = mmap(0, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct epoll_event *heap = calloc(1, sizeof *heap);
    heap->events = EPOLLIN, heap->data.u64 = 7;
    for (int round = 0; round < 3; round++) {
        BOTH("add twice", control(i, ADD, EPOLLIN, 1));
        expect("EEXIST", -1000 - EEXIST);
        BOTH("remove", control(i, DEL, 0, 0));
        BOTH("change what is removed", control(i, MOD, EPOLLIN, 1));
        expect("ENOENT", -1000 - ENOENT);
        BOTH("add", control(i, ADD, EPOLLIN, 1));
        BOTH("remove", control(i, DEL, 0, 0));
        BOTH("add after the removal", control(i, ADD, EPOLLOUT, 1));
        expect("success", 0);
        BOTH("add twice", control(i, ADD, EPOLLIN, 1));
        BOTH("remove", control(i, DEL, 0, 0));
        BOTH("remove twice", control(i, DEL, 0, 0));
        expect("ENOENT", -1000 - ENOENT);
        BOTH("add", control(i, ADD, EPOLLIN, 1));
        BOTH("no event", epoll_ctl(sets[i], MOD, fds[i], 0) * 1000 - errno);
        BOTH("unreadable event", epoll_ctl(sets[i], MOD, fds[i], hole) * 1000 - errno);
        expect("EFAULT", -1000 - EFAULT);
        BOTH("event elsewhere", epoll_ctl(sets[i], MOD, fds[i], heap));
        BOTH("another operation", control(i, 7, EPOLLIN, 1));
        expect("EINVAL", -1000 - EINVAL);
        BOTH("no instance", control_with(fds[i], MOD, fds[i], EPOLLIN, 1));
        BOTH("no file", control_with(sets[i], MOD, 999, EPOLLIN, 1));
        expect("EBADF", -1000 - EBADF);
        BOTH("closed instance", control_with(999, MOD, fds[i], EPOLLIN, 1));
        BOTH("itself", control_with(sets[i], ADD, sets[i], EPOLLIN, 1));
        put(5, 1);
        BOTH("wait", wait_of(sets[i], 2, 0));
        expect("the data of before the errors", first(EPOLLIN, 7));
        BOTH("change", control(i, MOD, EPOLLIN | EPOLLET, 2));
        BOTH("wait", wait_of(sets[i], 2, 0));
        expect("the next edge", first(EPOLLIN, 2));
    }
}

// The end of the pipe is seen, with the data that was given last.
static void ended(const char *way) {
    int is_removed = !strcmp(way, "removed");
    BOTH("remove", control(i, DEL, 0, 0));
    if (!is_removed) BOTH("add", control(i, ADD, EPOLLIN | (!strcmp(way, "edge") ? EPOLLET : 0u), 8));
    ask_writer(CLOSE, 0, 0);
    close(plain[1]);
    BOTH("wait", wait_of(sets[i], 2, is_removed ? 10 : 1000));
    expect("the end", is_removed ? 0 : first(EPOLLHUP, 8));
}

// A descriptor is closed of which there is a duplicate, so the kernel keeps what was registered.
static void duplicated(const char *way) {
    int copies[2];
    if (!strcmp(way, "removed")) BOTH("remove", control(i, DEL, 0, 0));
    else BOTH("change", control(i, MOD, EPOLLIN, 8));
    BOTH("dup", (copies[i] = dup(fds[i])) < 0);
    BOTH("close", close(fds[i]));
    put(5, 1);
    BOTH("wait", wait_of(sets[i], 2, 5));
    expect("what is registered", !strcmp(way, "removed") ? 0 : first(EPOLLIN, 8));
    for (int i = 0; i < 2; i++) fds[i] = copies[i];
    BOTH("add by the other number", control(i, ADD, EPOLLIN, 9));
    BOTH("remove", control(i, DEL, 0, 0));
}

// Another instance gets the number of one in which something was kept.
static void reopened(void) {
    BOTH("remove", control(i, DEL, 0, 0));
    for (int i = 0; i < 2; i++) renew(i);
    BOTH("remove", control(i, DEL, 0, 0));
    expect("ENOENT", -1000 - ENOENT);
    BOTH("add", control(i, ADD, EPOLLIN, 6));
    put(5, 1);
    BOTH("wait", wait_of(sets[i], 2, 0));
    expect("a level", first(EPOLLIN, 6));
    BOTH("remove", control(i, DEL, 0, 0));
    BOTH("dup2", dup2(epoll_create1(0), sets[i]) == sets[i]);
    BOTH("add", control(i, ADD, EPOLLIN, 7));
    expect("success", 0);
    BOTH("wait", wait_of(sets[i], 2, 0));
    expect("a level", first(EPOLLIN, 7));
}

// A call fails that was to replace or to close an instance or a file: both are there as before.
static void refused(const char *way) {
    const int *targets[2] = {sets, fds};
    for (int n = 0; n < 4; n++) {
        const int *target = targets[n % 2];
        errno = 0;
        BOTH("remove", control(i, DEL, 0, 0));
        BOTH("add", control(i, ADD, EPOLLIN, 8));
        if (!strcmp(way, "dup2")) BOTH(way, dup2(999, target[i]) * 1000 - errno);
        else if (!strcmp(way, "dup3")) BOTH(way, dup3(fds[i], target[i], 1) * 1000 - errno);
        else BOTH(way, close_range((unsigned)target[i], (unsigned)target[i], 64) * 1000 - errno);
        expect("the error", -1000 - (!strcmp(way, "dup2") ? EBADF : EINVAL));
        put(5, 1);
        BOTH("wait", wait_of(sets[i], 2, 0));
        expect("a level", first(EPOLLIN, 8));
        get(5);
        // So that the pipe moves again.
        for (int i = 0; i < 3000; i++) put(8, 1), get(8);
    }
}

static void execute(char *self) {
    char texts[2][16], *arguments[] = {self, "asks", texts[0], texts[1], 0};
    put(5, 1);
    BOTH("remove", control(i, DEL, 0, 0));
    BOTH("add", control(i, ADD, EPOLLIN, 8));
    for (int i = 0; i < 2; i++) snprintf(texts[i], sizeof texts[i], "%d", sets[i]);
    execv(self, arguments);
    fail("exec");
}

// An instance is known by another number, or to another instance, before it has a file.
static void early(const char *way) {
    int others[2], is_around = !strcmp(way, "around");
    BOTH("remove", control(i, DEL, 0, 0));
    BOTH("add once more", control(i, ADD, EPOLLIN, 5));
    for (int i = 0; i < 2; i++) {
        renew(i);
        others[i] = is_around ? around(sets[i]) : dup(sets[i]);
    }
    BOTH("add", control_with(is_around ? sets[i] : others[i], ADD, fds[i], EPOLLIN, 7));
    put(5, 1);
    BOTH("wait", wait_of(is_around ? others[i] : sets[i], 2, 0));
    expect("what is reported", first(EPOLLIN, is_around ? 8 : 7));
}

static void known(char *self, const char *name, const char *way) {
    if (!strcmp(name, "removed")) removed();
    else if (!strcmp(name, "errors")) errors();
    else if (!strcmp(name, "ended")) ended(way);
    else if (!strcmp(name, "duplicated")) duplicated(way);
    else if (!strcmp(name, "reopened")) reopened();
    else if (!strcmp(name, "refused")) refused(way);
    else if (!strcmp(name, "exec")) execute(self);
    else if (!strcmp(name, "early")) early(way);
    else {
        int is_removed = !strcmp(name, "asked-removed");
        put(5, 1);
        BOTH("remove", control(i, DEL, 0, 0));
        if (!is_removed) BOTH("add", control(i, ADD, EPOLLIN, 8));
        BOTH(way, asked_otherwise(sets[i], way));
        if (!strcmp(way, "fork")) expect("what the process is told", is_removed ? 1 : 2);
        else if (is_removed) expect("nothing", 0);
        BOTH("add once more", control(i, ADD, EPOLLIN, 9));
        BOTH("wait once more", wait_of(sets[i], 2, 0));
    }
    printf("equal\n");
}

// One operation at random. Some of the last ones keep the pipe in the kernel.
static void operation(uint32_t *pending, int is_end) {
    static const uint32_t modes[] = {EPOLLIN, EPOLLIN | EPOLLET, EPOLLRDNORM, 0, EPOLLOUT, EPOLLIN | EPOLLPRI};
    static const char *const ways[] = {"fork", "dup", "poll", "select", "around", "passed"};
    static int is_edge;
    uint32_t kind = below(is_end ? 16 : 14), mode = modes[below(6)], data = below(8);
    int max = 1 + (int)below(2), ms = below(8) == 0, copy;
    if (kind < 2 && *pending < 20000) *pending += (uint32_t)put(1 + below(90), 1 + below(40));
    else if (kind < 3) {
        int64_t n = get(1 + below(below(2) ? 70000 : 200));
        if (n > 0) *pending -= (uint32_t)n;
    } else if (kind < 6) {
        // Removed and added at once, as programs do that wait for one thing at a time.
        BOTH("remove", control(i, DEL, 0, 0));
        BOTH("add", control(i, ADD, mode, data));
        is_edge = mode & EPOLLET;
    } else if (kind < 9) {
        int operation = 1 + (int)below(3);
        BOTH("control", control(i, operation, mode, data));
        if (last == 0 && operation != DEL) is_edge = mode & EPOLLET;
    } else if (kind < 12) {
        int64_t results[2];
        for (int i = 0; i < 2; i++) results[i] = wait_of(sets[i], max, ms);
        // An edge may come once more than needed.
        if (!(is_edge && *pending > 0 && results[1] == 0)) same("wait", results[0], results[1]);
    } else if (kind < 13) {
        BOTH("dup", close(copy = dup(fds[i])));
        BOTH("poll", polled(fds[i]));
        if (below(4) == 0) {
            BOTH("no event", epoll_ctl(sets[i], MOD, fds[i], 0) * 1000 - errno);
            BOTH("no file", control_with(sets[i], ADD, 999, mode, data));
        }
    } else if (kind < 14) {
        if (below(4) == 0) for (int i = 0; i < 2; i++) renew(i);
    } else if (kind < 15) {
        const char *way = ways[below(6)];
        if (is_edge) return;
        BOTH(way, asked_otherwise(sets[i], way));
    } else {
        BOTH("once", control(i, ADD, EPOLLIN | EPOLLONESHOT, data));
    }
}

static void model(uint32_t seed, uint32_t steps) {
    uint32_t pending = 0;
    state = seed;
    for (step = 0; step < steps; step++) {
        operation(&pending, step > steps - steps / 10);
        if (pending == 0) {
            for (int i = 0; i < 70; i++) put(8, 1), get(8);
        }
    }
    printf("equal\n");
}

enum { CLIENTS_MAX = 64 };
static int clients[CLIENTS_MAX], client_set, client_count;

// Waits for one thing at a connection, in place of what was waited for there.
static void wait_for(int client, uint32_t before, uint32_t events) {
    if (before && control_with(client_set, DEL, clients[client], 0, 0)) fail("remove");
    if (control_with(client_set, ADD, clients[client], events, (uint32_t)client)) fail("add");
}

// Asks the kernel for everything, in the middle of whatever the program does.
static void handle(int number) {
    (void)number;
    int before = errno;
    struct epoll_event events[4];
    if (epoll_wait(client_set, events, 4, 0) < 0) fail("wait of the handler");
    for (int i = 0; i < client_count; i++) {
        if (epoll_ctl(client_set, EPOLL_CTL_MOD, clients[i], 0) == 0 || (errno != EFAULT && errno != EBADF)) fail("change");
    }
    errno = before;
}

static int changed_count;

// Waits, and then changes what the call waits for that it has interrupted.
static void wait_and_change(int number) {
    (void)number;
    int before = errno;
    if (control_with(client_set, MOD, clients[0], EPOLLIN, 6) || wait_of(client_set, 4, 1)) fail("wait of the handler");
    if (control_with(client_set, MOD, clients[0], EPOLLOUT, 7)) fail("change of the handler");
    changed_count++;
    errno = before;
}

// A signal comes while a wait for nothing begins, which must see what the handler changes.
static void wait_for_signal(void) {
    struct itimerval once = {{0, 0}, {0, 1 + (int)below(14)}};
    int before = changed_count;
    signal(SIGALRM, wait_and_change);
    if (control_with(client_set, MOD, clients[0], 0, 0)) fail("change");
    setitimer(ITIMER_REAL, &once, 0);
    int64_t result = wait_of(client_set, 4, 60);
    if (changed_count == before || (result != -1000 - EINTR && result != first(EPOLLOUT, 7))) fail("missed");
    if (control_with(client_set, MOD, clients[0], EPOLLIN, 0)) fail("change back");
}

// A client asks `count` questions on each connection, and the other process answers. Prints how often it was answered.
static void ask_questions(uint32_t count, const char *name) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t bytes = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0), open = client_count;
    if (bind(listener, (struct sockaddr *)&address, bytes) || listen(listener, CLIENTS_MAX)) fail("listen");
    getsockname(listener, (struct sockaddr *)&address, &bytes);
    pid_t server = fork();
    struct epoll_event events[CLIENTS_MAX];
    uint32_t asked[CLIENTS_MAX] = {0}, answered = 0;
    client_set = epoll_create1(EPOLL_CLOEXEC);
    for (int i = 0; i < client_count; i++) {
        clients[i] = server ? socket(AF_INET, SOCK_STREAM, 0) : accept(listener, 0, 0);
        if (server && connect(clients[i], (struct sockaddr *)&address, bytes)) fail("connect");
        unblock(clients[i]);
        wait_for(i, 0, server ? EPOLLOUT : EPOLLIN);
    }
    if (server && !strcmp(name, "signals")) {
        struct itimerval often = {{0, 300}, {0, 300}};
        signal(SIGALRM, handle);
        setitimer(ITIMER_REAL, &often, 0);
    }
    while (open > 0) {
        int n = epoll_wait(client_set, events, CLIENTS_MAX, 5000);
        if (n == 0) fail("stalled");
        if (n < 0 && errno != EINTR) fail("wait");
        for (int i = 0; i < n; i++) {
            int client = (int)events[i].data.u64;
            uint32_t word = asked[client];
            if (events[i].events & EPOLLOUT && server) {
                wait_for(client, EPOLLOUT, EPOLLIN);
                if (write(clients[client], &word, sizeof word) != sizeof word) fail("write");
                continue;
            }
            ssize_t got = read(clients[client], &word, sizeof word);
            if (got < 0 && errno == EAGAIN) continue;
            if (got > 0 && !server && write(clients[client], &word, sizeof word) != sizeof word) fail("answer");
            if (got > 0 && !server) continue;
            if (got > 0 && word != asked[client]) fail("wrong answer");
            if (got > 0) answered++, asked[client]++;
            if (got > 0 && !strcmp(name, "handled") && answered % 16 == 0) wait_for_signal();
            if (got > 0 && !strcmp(name, "fork") && answered == count) {
                pid_t child = fork();
                if (child == 0) _exit(0);
                waitpid(child, 0, 0);
            }
            if (got <= 0 || asked[client] == count) close(clients[client]), open--;
            else wait_for(client, EPOLLIN, EPOLLOUT);
        }
    }
    if (server) printf("%u %d\n", answered, waitpid(server, 0, 0) == server);
}

int main(int count, char **arguments) {
    const char *mode = count > 2 ? arguments[1] : "";
    const char *third = count > 3 ? arguments[3] : "";
    signal(SIGPIPE, SIG_IGN);
    if (!strcmp(mode, "obey")) obey(atoi(arguments[2]));
    else if (!strcmp(mode, "asks")) {
        same("what the next program is told", wait_of(atoi(arguments[2]), 2, 0), wait_of(atoi(third), 2, 0));
        printf("equal\n");
    } else if (!strcmp(mode, "questions")) {
        client_count = atoi(arguments[2]);
        ask_questions((uint32_t)atoi(third), count > 4 ? arguments[4] : "");
        return 0;
    } else if (!strcmp(mode, "known") || !strcmp(mode, "model")) {
        begin_moved(arguments[0]);
        fds[0] = moved[0], fds[1] = plain[0];
        for (int i = 0; i < 2; i++) renew(i);
        BOTH("add", control(i, ADD, EPOLLIN, 5));
        if (!strcmp(mode, "known")) known(arguments[0], arguments[2], third);
        else model((uint32_t)atoi(arguments[2]), (uint32_t)atoi(third));
        _exit(fflush(stdout));
    } else return 2;
    return 0;
}
