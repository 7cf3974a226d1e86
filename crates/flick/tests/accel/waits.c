// Programs that wait for pipes that move: a source and a sink that do not block, and a model that makes the same calls
// on a pipe that moves and on one of the kernel, and compares all results.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "twins.h"

// Waits until a descriptor is ready, in one of several ways. Another pipe, in which nothing comes, is in each set.
static void ready(int fd, int is_read, const char *way) {
    static int idle[2], set = -1;
    if (idle[1] == 0 && pipe(idle)) fail("pipe");
    uint32_t epoll_events = is_read ? EPOLLIN : EPOLLOUT;
    epoll_events |= !strcmp(way, "edge") ? EPOLLET : !strcmp(way, "once") ? EPOLLONESHOT : 0u;
    if (!strcmp(way, "poll")) {
        struct pollfd entries[3] = {{idle[0], POLLIN, 0}, {fd, is_read ? POLLIN : POLLOUT, 0}, {-1, POLLIN, 0}};
        if (poll(entries, 3, -1) != 1 || entries[0].revents || !entries[1].revents) fail("poll");
    } else if (!strcmp(way, "select")) {
        fd_set reads, writes;
        FD_ZERO(&reads);
        FD_ZERO(&writes);
        FD_SET(idle[0], &reads);
        FD_SET(fd, is_read ? &reads : &writes);
        if (select(idle[1] + 1, &reads, &writes, 0, 0) != 1) fail("select");
        if (FD_ISSET(idle[0], &reads) || !FD_ISSET(fd, is_read ? &reads : &writes)) fail("wrong set");
    } else {
        struct epoll_event event = {.events = epoll_events, .data.u64 = 77};
        if (set < 0) {
            set = epoll_create1(EPOLL_CLOEXEC);
            if (epoll_ctl(set, EPOLL_CTL_ADD, fd, &event)) fail("add");
        } else if (!strcmp(way, "once") && epoll_ctl(set, EPOLL_CTL_MOD, fd, &event)) {
            fail("arm");
        }
        if (epoll_wait(set, &event, 1, -1) != 1 || event.data.u64 != 77) fail("epoll_wait");
    }
}

// Reads the stream to its end without blocking, and prints its length.
static void sink(const char *way) {
    uint64_t got = 0;
    unblock(0);
    for (;;) {
        ssize_t n = read(0, buffer, 1 + below(3000));
        if (n == 0) break;
        if (n < 0 && errno == EAGAIN) {
            ready(0, 1, way);
            continue;
        }
        if (n < 0) fail("read");
        for (ssize_t i = 0; i < n; i++) {
            if (buffer[i] != at(got + (uint64_t)i)) fail("wrong byte");
        }
        got += (uint64_t)n;
    }
    printf("%llu\n", (unsigned long long)got);
}

// Writes the stream without blocking. With a file: until that exists, then so many bytes more, and prints how many
// these were in all; it ends after a minute without the file.
static void source(uint64_t bytes, const char *way, const char *file) {
    enum { LONGEST_S = 60 };
    int is_counted = file != 0;
    uint64_t sent = 0;
    unblock(1);
    if (is_counted) alarm(LONGEST_S);
    for (uint64_t end = is_counted ? UINT64_MAX : bytes; sent < end;) {
        if (file && access(file, F_OK) == 0) end = sent + bytes, file = 0;
        size_t n = 1 + below(below(50) == 0 ? BYTES_MAX : 300);
        if (n > end - sent) n = (size_t)(end - sent);
        for (size_t i = 0; i < n; i++) buffer[i] = at(sent + i);
        ssize_t written = write(1, buffer, n);
        if (written > 0) sent += (uint64_t)written;
        else if (errno == EAGAIN) ready(1, 0, way);
        else fail("write");
    }
    if (is_counted) fprintf(stderr, "%llu\n", (unsigned long long)sent);
}

static int sets[2];

// One operation at random.
static void operation(uint32_t *pending) {
    int fds[2] = {moved[0], plain[0]};
    int64_t results[2];
    uint32_t kind = below(10), timeout = below(4) == 0;
    static const uint32_t modes[] = {EPOLLIN, EPOLLIN | EPOLLET, EPOLLIN | EPOLLONESHOT, EPOLLRDNORM, 0, EPOLLOUT};
    uint32_t mode = modes[below(6)], control = 1 + below(3), is_control = below(2);
    if (kind == 0 && *pending == 0) {
        // Fills the pipe by whole pages, and reads all of it.
        for (int64_t n; (n = put(4096 * (1 + below(20)), 1)) >= 0;) *pending += (uint32_t)n;
    } else if (kind < 4 && *pending < 28000) {
        uint32_t count = 1 + below(80), bytes = 1 + below((28000 - *pending) / count + 1);
        if (*pending + count * bytes <= 28100) *pending += (uint32_t)put(bytes, count);
    } else if (kind < 6) {
        int64_t n = get(1 + below(below(2) ? 70000 : 500));
        if (n > 0) *pending -= (uint32_t)n;
    }
    for (int i = 0; i < 2; i++) {
        int unread = 0, n;
        struct pollfd entries[2] = {{fds[i], POLLIN | POLLOUT, 0}, {fds[i], POLLRDNORM, 0}};
        struct epoll_event events[2] = {{0}}, event = {.events = mode, .data.u64 = 5};
        fd_set reads, errors;
        FD_ZERO(&reads);
        FD_ZERO(&errors);
        FD_SET(fds[i], &reads);
        FD_SET(fds[i], &errors);
        struct timeval pause = {0, timeout * 1000};
        results[i] = 0;
        if (kind == 6) {
            n = poll(entries, 2, (int)timeout);
            results[i] = n * 1000000 + entries[0].revents * 1000 + entries[1].revents;
        } else if (kind == 7) {
            n = epoll_wait(sets[i], events, 2, (int)timeout);
            results[i] = n * 1000000 + (int)(n > 0 ? events[0].events * 100 + events[0].data.u64 : 0);
        } else if (kind == 8) {
            n = select(fds[i] + 1, &reads, 0, &errors, &pause);
            results[i] = n * 100 + FD_ISSET(fds[i], &reads) * 10 + FD_ISSET(fds[i], &errors);
        } else if (kind == 9 && !is_control) {
            results[i] = ioctl(fds[i], FIONREAD, &unread) * 1000000 + unread;
        } else if (kind == 9) {
            errno = 0;
            results[i] = epoll_ctl(sets[i], (int)control, fds[i], &event) * 1000 - errno;
        }
    }
    static const char *names[] = {"fill", "write", "write", "write", "read", "read", "poll", "epoll_wait", "select", "control"};
    same(names[kind], results[0], results[1]);
}

static void model(char *self, uint32_t seed, uint32_t steps) {
    begin(self);
    for (int i = 0; i < 2; i++) {
        sets[i] = epoll_create1(EPOLL_CLOEXEC);
        struct epoll_event event = {.events = EPOLLIN, .data.u64 = 5};
        if (epoll_ctl(sets[i], EPOLL_CTL_ADD, i ? plain[0] : moved[0], &event)) fail("add");
    }
    state = seed;
    uint32_t pending = 0;
    for (step = 0; step < steps; step++) {
        operation(&pending);
        if (step % 16 == 0) {
            ask_writer(POLL_WRITER, 0, 0);
            struct pollfd entry = {plain[1], POLLOUT | POLLIN, 0};
            same("poll of the writer", order->result, poll(&entry, 1, 0) * 1000 + entry.revents);
        }
        if (pending == 0) {
            for (int i = 0; i < 70; i++) put(8, 1), get(8);
        }
    }
    ask_writer(CLOSE, 0, 0);
    close(plain[1]);
    for (int i = 0; i < 2; i++) {
        struct pollfd entry = {i ? plain[0] : moved[0], POLLIN, 0};
        poll(&entry, 1, -1);
        same("end", entry.revents, POLLHUP | (pending ? POLLIN : 0));
    }
    while (get(BYTES_MAX) > 0) continue;
    int status;
    wait(&status);
    printf("equal\n");
}

enum { LOOPS_MAX = 16 };
static int loops[LOOPS_MAX], loop_count;

// Waits for milliseconds until connections can be read, marks those, and returns the call's result. By `once`, every
// second connection is reported once until it is asked for again.
static int wait_for(int is_ready[LOOPS_MAX], const char *way, int ms) {
    static int set = -1, is_armed[LOOPS_MAX];
    struct pollfd entries[LOOPS_MAX];
    struct epoll_event events[LOOPS_MAX];
    struct timeval pause = {ms / 1000, ms % 1000 * 1000};
    fd_set reads;
    int n;
    memset(is_ready, 0, LOOPS_MAX * sizeof *is_ready);
    if (!strcmp(way, "poll")) {
        for (int i = 0; i < loop_count; i++) entries[i] = (struct pollfd){loops[i], POLLIN, 0};
        n = poll(entries, (nfds_t)loop_count, ms);
        for (int i = 0; i < loop_count; i++) is_ready[i] = n > 0 && entries[i].revents != 0;
    } else if (!strcmp(way, "select")) {
        FD_ZERO(&reads);
        for (int i = 0; i < loop_count; i++) {
            if (loops[i] >= 0) FD_SET(loops[i], &reads);
        }
        n = select(FD_SETSIZE, &reads, 0, 0, &pause);
        for (int i = 0; i < loop_count; i++) is_ready[i] = n > 0 && loops[i] >= 0 && FD_ISSET(loops[i], &reads);
    } else {
        int is_once = !strcmp(way, "once"), is_new = set < 0;
        if (is_new) set = epoll_create1(EPOLL_CLOEXEC);
        for (int i = 0; i < loop_count; i++) {
            if (loops[i] < 0 || is_armed[i]) continue;
            events[0].events = EPOLLIN | EPOLLRDHUP | (!strcmp(way, "edge") ? EPOLLET : 0u);
            if (is_once && i % 2) events[0].events |= EPOLLONESHOT;
            events[0].data.u32 = (uint32_t)i;
            if (epoll_ctl(set, is_new ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, loops[i], &events[0])) fail("epoll_ctl");
            is_armed[i] = 1;
        }
        n = epoll_wait(set, events, LOOPS_MAX, ms);
        for (int i = 0; i < n; i++) {
            uint32_t one = events[i].data.u32;
            is_ready[one] = 1, is_armed[one] = !is_once || one % 2 == 0;
        }
    }
    return n;
}

// Waits until connections can be read. Without an event for seconds, a wake-up was lost.
static void readable(int is_ready[LOOPS_MAX], const char *way) {
    enum { STALL_MS = 5000 };
    int n = wait_for(is_ready, way, STALL_MS);
    if (n == 0) fail("stalled");
    if (n < 0 && errno != EINTR) fail("wait");
}

static void alarmed(int number) { (void)number; }

// Waits while nothing comes: for the whole time, and no longer than until a signal.
static void wait_in_vain(const char *way) {
    static const int times[] = {3, 45};
    int is_ready[LOOPS_MAX];
    struct timespec before, after;
    struct itimerval once = {{0, 0}, {0, 8000}};
    signal(SIGALRM, alarmed);
    for (int i = 0; i < 3; i++) {
        clock_gettime(CLOCK_MONOTONIC, &before);
        if (i == 2) setitimer(ITIMER_REAL, &once, 0);
        int n = wait_for(is_ready, way, i == 2 ? 60000 : times[i]);
        if (i == 2 ? n != -1 || errno != EINTR : n != 0) fail("it did not wait in vain");
        clock_gettime(CLOCK_MONOTONIC, &after);
        int64_t ns = (after.tv_sec - before.tv_sec) * 1000000000ll + after.tv_nsec - before.tv_nsec;
        if (i < 2 && ns < times[i] * 1000000ll) fail("it waited too short");
    }
}

// Closes the descriptors by which others could wake this process, as a program does that closes what it does not know.
static void close_events(void) {
    char path[32], name[32] = "";
    for (int fd = 200; fd < 300; fd++) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        ssize_t n = readlink(path, name, sizeof name - 1);
        if (n > 0 && !strncmp(name, "anon_inode:[eventfd]", (size_t)n)) syscall(SYS_close, fd);
    }
}

// What happens in the middle of the questions.
static void event(const char *name, const char *way, int is_child) {
    if (!strcmp(name, "vain") && is_child) wait_in_vain(way);
    else if (!strcmp(name, "close")) close_events();
    else if (!strcmp(name, "limit") && is_child) {
        // Descriptors of the numbers that the library uses cannot be had any more.
        struct rlimit limit = {150, 150};
        close_events();
        if (setrlimit(RLIMIT_NOFILE, &limit)) fail("setrlimit");
    }
    else if (!strcmp(name, "fork")) {
        pid_t child = fork();
        if (child == 0) _exit(0);
        if (waitpid(child, 0, 0) != child) fail("fork");
    }
}

// Two event loops: one asks on each connection again and again, the other one answers. Each reads once for an event.
static void ask_and_answer(const char *way, uint32_t count, const char *name) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t bytes = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0), is_ready[LOOPS_MAX], asked[LOOPS_MAX], open = loop_count;
    if (bind(listener, (struct sockaddr *)&address, bytes) || listen(listener, LOOPS_MAX)) fail("listen");
    getsockname(listener, (struct sockaddr *)&address, &bytes);
    pid_t child = fork();
    for (int i = 0; i < loop_count; i++) {
        loops[i] = child ? accept(listener, 0, 0) : socket(AF_INET, SOCK_STREAM, 0);
        if (!child && connect(loops[i], (struct sockaddr *)&address, bytes)) fail("connect");
        unblock(loops[i]);
        asked[i] = 0;
        if (!child && write(loops[i], &asked[i], sizeof asked[i]) < 0) fail("write");
    }
    while (open > 0) {
        readable(is_ready, way);
        for (int i = 0; i < loop_count; i++) {
            if (!is_ready[i]) continue;
            int got = -1;
            ssize_t n = read(loops[i], &got, sizeof got);
            if (n < 0 && errno == EAGAIN) continue;
            if (n == 0 || (n < 0 && errno == ECONNRESET) || (!child && got + 1 == (int)count)) {
                close(loops[i]);
                loops[i] = -1, open--;
                continue;
            }
            if (n != sizeof got || got != asked[i]++) fail("wrong answer");
            if (i == 0 && (uint32_t)asked[i] % (count / 4 + 1) == count / 4) event(name, way, !child);
            if (write(loops[i], child ? &got : &asked[i], sizeof got) < 0 && errno != EPIPE && errno != ECONNRESET) {
                fail("write");
            }
        }
    }
    if (child) printf("%d\n", wait(&(int){0}) == child);
}

static double now_ms(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return 1e3 * (double)time.tv_sec + 1e-6 * (double)time.tv_nsec;
}

static int compare(const void *one, const void *other) {
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

enum { ROUNDS_MAX = 100, BURST = 100 };

// One byte through the kernel and one through a ring, which come together, up to the end of the rounds. The ring is
// entered by the first one, or by that before.
static void send_both(int fd) {
    for (int i = 0;; i++) {
        for (int n = 0; n < BURST; n++) {
            if (write(fd, "q", 1) != 1 || read(fd, buffer, 1) != 1) fail("answer");
            if (i == 0) nanosleep(&(struct timespec){0, 1000000}, 0);
        }
        if (read(fd, buffer, 1) != 1 || buffer[0] == 'e') return;
        if (i % 8 == 0 && (write(fd, "s", 1) != 1 || read(fd, buffer, 1) != 1)) fail("first");
        if (write(fd, "1", 1) != 1 || write(fd, "2", 1) != 1 || read(fd, buffer, 1) != 1) fail("both");
    }
}

// Takes both bytes by edges. The first read is short where it returns that of the kernel only. Returns how long the
// second one took then, or a negative number.
static double take_both(int set, int fd) {
    struct epoll_event event;
    double began = -1;
    for (ssize_t got = 0; got < 2;) {
        if (epoll_wait(set, &event, 1, -1) != 1) fail("epoll_wait");
        ssize_t n = read(fd, buffer, 100);
        if (n <= 0) fail("read");
        got += n;
        if (got == 1) began = now_ms();
    }
    return began < 0 ? began : now_ms() - began;
}

static void border(int count) {
    int pair[2], set = epoll_create1(0), is_moved = getenv("LD_PRELOAD") != 0, shorts = 0;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) fail("socketpair");
    pid_t child = fork();
    close(pair[child == 0]);
    int fd = pair[child != 0];
    if (child == 0) return send_both(fd);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    double took[ROUNDS_MAX];
    if (epoll_ctl(set, EPOLL_CTL_ADD, fd, &event)) fail("add");
    for (int i = 0; i < ROUNDS_MAX; i++) {
        for (int n = 0; n < BURST; n++) {
            if (epoll_wait(set, &event, 1, -1) != 1) fail("epoll_wait");
            if (read(fd, buffer, 100) != 1 || write(fd, "a", 1) != 1) fail("answer");
        }
        if (shorts == count || !is_moved) break;
        // After 20 ms the ring is left for now.
        if (epoll_wait(set, &event, 1, 40) != 0) fail("event");
        if (write(fd, "g", 1) != 1) fail("write");
        if (i % 8 == 0 && (read(fd, buffer, 1) != 1 || write(fd, "k", 1) != 1)) fail("first");
        nanosleep(&(struct timespec){0, 5000000}, 0);
        double ms = take_both(set, fd);
        if (ms >= 0) took[shorts++] = ms;
        if (write(fd, "n", 1) != 1) fail("write");
    }
    if (write(fd, "e", 1) != 1) fail("write");
    qsort(took, (size_t)shorts, sizeof took[0], compare);
    int is_late = shorts > 0 && took[shorts / 2] > 10;
    fprintf(stderr, "%d short reads\n", shorts);
    printf("%s %d\n", is_late ? "late" : "in time", wait(&(int){0}) == child);
}

int main(int count, char **arguments) {
    if (count < 3) return 2;
    const char *mode = arguments[1];
    if (!strcmp(mode, "source")) source(strtoull(arguments[2], 0, 10), arguments[3], arguments[4]);
    else if (!strcmp(mode, "sink")) state = 7, sink(arguments[2]);
    else if (!strcmp(mode, "loops")) {
        loop_count = atoi(arguments[3]);
        signal(SIGPIPE, SIG_IGN);
        ask_and_answer(arguments[2], (uint32_t)atoi(arguments[4]), count > 5 ? arguments[5] : "");
    }
    else if (!strcmp(mode, "border")) border(atoi(arguments[2]));
    else if (!strcmp(mode, "obey")) obey(atoi(arguments[2]));
    else if (!strcmp(mode, "model")) model(arguments[0], (uint32_t)atoi(arguments[2]), (uint32_t)atoi(arguments[3]));
    else return 2;
    return 0;
}
