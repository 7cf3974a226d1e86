// Calls that a ring does not serve, on a connection that moves and on other files. Each mode prints what the kernel
// says.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/wait.h>

#include "connection.h"
#include "stream.h"

enum { BYTES = 8, HANGS_S = 30, AHEAD = 1000 };

static uint64_t rounds;

static void put(int fd) {
    if (write(fd, buffer, BYTES) != BYTES) fail("write");
}

// Reads a message, or finds the end.
static int get(int fd) {
    for (size_t got = 0; got < BYTES;) {
        ssize_t n = read(fd, buffer + got, BYTES - got);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return 0;
        got += (size_t)n;
    }
    return 1;
}

// Answers each message by one with a mark, up to the end.
static void answer(int fd, char mark) {
    while (get(fd)) {
        buffer[0] = (unsigned char)mark;
        put(fd);
    }
}

// Asks the other end.
static void ask(int fd, uint64_t count, char mark) {
    for (uint64_t i = 0; i < count; i++) {
        slowly();
        put(fd);
        if (!get(fd)) fail("no answer");
        if (buffer[0] != (unsigned char)mark) fail("answer of another one");
    }
}

// Receives that take no byte wait until there are some.
static void receive_nothing(int fd) {
    static unsigned turn;
    struct msghdr message = {0};
    ssize_t n;
    switch (turn++ % 3) {
    case 0: n = recv(fd, buffer, 0, 0); break;
    case 1: n = recv(fd, buffer, 0, MSG_PEEK); break;
    default: n = recvmsg(fd, &message, 0);
    }
    if (n != 0) fail("receive of no bytes");
}

static void nothing(int fd) {
    for (uint64_t i = 0; i < rounds; i += 100) {
        ask(fd, 99, 'a');
        put(fd);
        receive_nothing(fd);
        if (!get(fd)) fail("no answer");
    }
}

// Selects a duplicate of the descriptor that calls use, then both.
static void duplicate(int fd) {
    ask(fd, rounds, 'a');
    int other = dup(fd);
    put(fd);
    for (int both = 0; both < 2; both++) {
        fd_set set;
        struct timeval time = {HANGS_S, 0};
        FD_ZERO(&set);
        FD_SET(other, &set);
        if (both) FD_SET(fd, &set);
        if (select(FD_SETSIZE, &set, 0, 0, &time) != 1 + both || !FD_ISSET(other, &set)) fail("select");
    }
    if (!get(fd)) fail("no answer");
    close(other);
}

// A process that gets a descriptor asks the other end by it.
static void ask_by_passed(int from) {
    char byte, control[CMSG_SPACE(sizeof(int))];
    struct iovec part = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    alarm(HANGS_S);
    if (recvmsg(from, &message, 0) != 1 || !CMSG_FIRSTHDR(&message)) fail("recvmsg");
    int fd;
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    ask(fd, 100, 'a');
}

static int passes[2];

// Passes a connection to another process by `sendmmsg` of a socket that is not followed.
static void passed(int fd) {
    char byte = 'x', control[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec part = {&byte, 1};
    struct mmsghdr message = {
        .msg_hdr = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control}};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message.msg_hdr);
    header->cmsg_level = SOL_SOCKET, header->cmsg_type = SCM_RIGHTS, header->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    ask(fd, rounds, 'a');
    if (sendmmsg(passes[0], &message, 1, 0) != 1) fail("sendmmsg");
    int status;
    if (wait(&status) < 0) fail("wait");
    printf("passed %d\n", status);
}

// Asks, and waits until the answer can be read.
static void ask_and_wait(int fd) {
    struct pollfd entry = {fd, POLLIN, 0};
    memcpy(buffer, "01234567", BYTES);
    put(fd);
    if (poll(&entry, 1, HANGS_S * 1000) != 1) fail("poll");
}

// Each peek shows what is behind that of the one before.
static void peek_thrice(int fd) {
    for (int i = 0; i < 3; i++) {
        char part[3] = "";
        if (recv(fd, part, 2, MSG_PEEK) != 2) fail("peek");
        printf("%s\n", part);
    }
    if (!get(fd)) fail("no answer");
}

static void peeks(int fd) {
    int offset = 0;
    if (setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &offset, sizeof offset)) fail("SO_PEEK_OFF");
    ask(fd, rounds, 'a');
    ask_and_wait(fd);
    peek_thrice(fd);
}

// A message says which process has sent it, by a descriptor.
static void sender(int fd) {
    enum { PASS_PIDFD = 76, SCM_PIDFD = 4 };
    int on = 1, pidfd = -1, pid = 0;
    char control[CMSG_SPACE(sizeof pidfd)], path[64], line[128];
    struct iovec part = {buffer, BYTES};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    if (setsockopt(fd, SOL_SOCKET, PASS_PIDFD, &on, sizeof on)) {
        printf("not by this kernel\n");
        return;
    }
    ask(fd, rounds, 'a');
    put(fd);
    // The answer is there, and no call has looked for it.
    poll(0, 0, 20);
    if (recvmsg(fd, &message, MSG_WAITALL) != BYTES || !CMSG_FIRSTHDR(&message)) fail("recvmsg");
    memcpy(&pidfd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof pidfd);
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", pidfd);
    FILE *info = fopen(path, "r");
    while (info && fgets(line, sizeof line, info)) sscanf(line, "Pid: %d", &pid);
    printf("sent by %s\n", pid == getpid() ? "its receiver" : pid > 0 ? "the other end" : "nobody");
}

static volatile sig_atomic_t signals;

static void note(int number) {
    (void)number;
    signals++;
}

// What can be read comes before a signal that the mask of a call lets in.
static void ready(int fd) {
    sigset_t blocked, none;
    fd_set set;
    struct timespec time = {HANGS_S, 0};
    sigemptyset(&blocked), sigemptyset(&none), sigaddset(&blocked, SIGUSR1);
    signal(SIGUSR1, note);
    sigprocmask(SIG_BLOCK, &blocked, 0);
    ask(fd, rounds, 'a');
    ask_and_wait(fd);
    struct pollfd entry = {fd, POLLIN, 0};
    raise(SIGUSR1);
    int found = ppoll(&entry, 1, &time, &none);
    printf("ppoll %d %d, signals %d\n", found, entry.revents, (int)signals);
    FD_ZERO(&set);
    FD_SET(fd, &set);
    found = pselect(fd + 1, &set, 0, 0, &time, &none);
    printf("pselect %d %d, signals %d\n", found, FD_ISSET(fd, &set), (int)signals);
    if (!get(fd)) fail("no answer");
}

static uint64_t now_ms(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000 + (uint64_t)time.tv_nsec / 1000000;
}

// Sends messages in three parts, all but the last one with `MSG_MORE`. Says if one was held up.
static void more(int fd) {
    const size_t parts[] = {BYTES / 2, BYTES / 4, BYTES / 4};
    uint64_t held = 0;
    for (uint64_t i = 0; i < rounds; i++) {
        slowly();
        uint64_t began = now_ms();
        for (int part = 0; part < 3; part++) {
            if (send(fd, buffer, parts[part], part < 2 ? MSG_MORE : 0) != (ssize_t)parts[part]) fail("send");
        }
        if (!get(fd)) fail("no answer");
        held += now_ms() - began > 150;
    }
    if (held) printf("held up\n");
}

// Asks for as long as it is let, and holds sends back until there is a full segment, which the kernel does for 200 ms.
static void corked(int fd) {
    ask(fd, 14, 'a');
    if (setsockopt(fd, IPPROTO_TCP, TCP_CORK, &(int){1}, sizeof(int))) fail("setsockopt");
    alarm(0);
    for (;;) ask(fd, 1, 'a');
}

static void show(ssize_t result) { printf("%zd %s\n", result, result < 0 ? strerror(errno) : ""); }

// Calls with arguments elsewhere than in memory, also on files that do not move.
static void faults(int fd) {
    void *volatile nowhere = (void *)8;
    struct msghdr message = {.msg_control = nowhere, .msg_controllen = 24};
    ask(fd, rounds, 'a');
    int other[2];
    if (socketpair(AF_UNIX, SOCK_DGRAM, 0, other)) fail("socketpair");
    show(sendmsg(other[0], nowhere, 0));
    show(sendmsg(other[0], &message, 0));
    show(ioctl(other[0], FIONBIO, nowhere));
    show(ioctl(fd, FIONBIO, nowhere));
    ask(fd, 100, 'a');
}

// Ends a connection of TCP and makes another one, by the same socket.
static int again(void) {
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    socklen_t length = sizeof name;
    int listener = socket(AF_INET, SOCK_STREAM, 0), fd = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&name, length) || listen(listener, 2)) fail("listen");
    if (getsockname(listener, (struct sockaddr *)&name, &length)) fail("getsockname");
    if (fork() == 0) {
        close(fd);
        for (char mark = 'a'; mark <= 'b'; mark++) answer(accept(listener, 0, 0), mark);
        _exit(0);
    }
    close(listener);
    alarm(HANGS_S);
    if (connect(fd, (struct sockaddr *)&name, length)) fail("connect");
    ask(fd, rounds, 'a');
    if (connect(fd, &none, sizeof none) || connect(fd, (struct sockaddr *)&name, length)) fail("connect again");
    ask(fd, 100, 'b');
    return fd;
}

// Bytes of a pipe, which both of its processes count.
struct counts {
    _Atomic uint64_t sent, received;
};

// Lets strace kill this process at its next `writev`, by which only the library returns bytes to the kernel.
static void die_at_writev(void) {
    char pid[16], line[128];
    int tracer = 0;
    snprintf(pid, sizeof pid, "%d", getpid());
    char *const strace[] = {"strace", "-qq", "-o", "/dev/null", "-e", "trace=writev", "-e", "inject=writev:signal=KILL",
                            "-p", pid, 0};
    if (posix_spawnp(&(pid_t){0}, strace[0], 0, 0, strace, environ)) fail("strace");
    while (!tracer) {
        FILE *status = fopen("/proc/self/status", "r");
        while (fgets(line, sizeof line, status)) sscanf(line, "TracerPid: %d", &tracer);
        fclose(status);
    }
}

// Reads, then waits for an edge behind bytes that it leaves in the pipe: these return to the kernel for now.
static void read_some(int from, struct counts *counts) {
    die_at_writev();
    for (uint64_t i = 0; i < rounds; i++) {
        if (read(from, buffer, 1) != 1) fail("read");
        counts->received++;
    }
    while (counts->sent < counts->received + AHEAD) sched_yield();
    int epoll = epoll_create1(0);
    struct epoll_event edge = {.events = EPOLLIN | EPOLLET};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, from, &edge) || epoll_wait(epoll, &edge, 1, -1) != 1) fail("epoll");
    if (epoll_wait(epoll, &edge, 1, 300) != 0) fail("edge");
}

// Writes without waiting to a pipe whose reader is killed while it returns bytes to the kernel.
static int killed(void) {
    int ends[2], status;
    struct counts *counts = mmap(0, sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (counts == MAP_FAILED || pipe2(ends, O_CLOEXEC)) fail("begin");
    pid_t reader = fork();
    if (reader == 0) {
        close(ends[1]);
        read_some(ends[0], counts);
        _exit(0);
    }
    close(ends[0]);
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    while (waitpid(reader, &status, WNOHANG) == 0) {
        slowly();
        // A sender enters the ring when the pipe is empty.
        uint64_t end = counts->sent < rounds ? counts->received + 1 : rounds + AHEAD;
        if (counts->sent < end && write(ends[1], buffer, 1) == 1) counts->sent++;
        else sched_yield();
    }
    for (int i = 0; i < 1000 && write(ends[1], buffer, 1) != 0 && errno != EPIPE; i++) poll(0, 0, 1);
    printf("%s\n", strerror(errno));
    return 0;
}

static pid_t spawned;
static volatile int has_spawned;

static void *spawn(void *waits) {
    char *const program[] = {"sleep", "60", 0};
    if (posix_spawnp(&spawned, program[0], 0, 0, program, environ)) fail("posix_spawnp");
    has_spawned = 1;
    if (waits && waitpid(spawned, 0, 0) != spawned) fail("waitpid");
    return 0;
}

// Another thread makes a process and waits for it or ends, while the connection is to move.
static void spawn_beside(int fd, void *waits) {
    pthread_t thread;
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    if (pthread_create(&thread, 0, spawn, waits)) fail("pthread_create");
    while (!has_spawned) sched_yield();
    poll(0, 0, 20);
    ask(fd, rounds, 'a');
    kill(spawned, SIGKILL);
    if (pthread_join(thread, 0) || (!waits && waitpid(spawned, 0, 0) != spawned)) fail("end");
}

static void spawn_and_wait(int fd) { spawn_beside(fd, buffer); }

static void spawn_and_end(int fd) { spawn_beside(fd, 0); }

static void *idle(void *unused) {
    (void)unused;
    pause();
    return 0;
}

// The kernel reads no more of a set than there are descriptors, also if the program says that there are many.
static void select_many(void) {
    pthread_t thread;
    int ends[2];
    char *pages = mmap(0, 1 << 17, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED || mprotect(pages + (1 << 16), 1 << 16, PROT_NONE)) fail("mmap");
    fd_set *set = (fd_set *)(pages + (1 << 16) - sizeof *set);
    struct timeval time = {0, 0};
    if (pthread_create(&thread, 0, idle, 0) || pipe(ends)) fail("begin");
    put(ends[1]);
    FD_SET(ends[0], set);
    if (select(1 << 20, set, 0, 0, &time) != 1 || !FD_ISSET(ends[0], set)) fail("select");
    printf("selected\n");
}

int main(int count, char **arguments) {
    if (count == 2 && !strcmp(arguments[1], "select_many")) return select_many(), 0;
    if (count < 4) return 2;
    const char *family = arguments[1], *mode = arguments[2];
    rounds = strtoull(arguments[3], 0, 10);
    const struct {
        const char *name;
        void (*run)(int);
    } modes[] = {{"nothing", nothing}, {"duplicate", duplicate}, {"passed", passed}, {"faults", faults},
                 {"peeks", peeks},     {"sender", sender},       {"ready", ready},
                 {"more", more},       {"corked", corked},
                 {"spawn", spawn_and_wait}, {"spawn_and_end", spawn_and_end}};
    signal(SIGPIPE, SIG_IGN);
    if (!strcmp(mode, "killed")) return killed();
    if (!strcmp(mode, "passed")) {
        if (socketpair(AF_UNIX, SOCK_DGRAM, 0, passes)) fail("socketpair");
        if (fork() == 0) return ask_by_passed(passes[1]), 0;
    }
    int is_again = !strcmp(mode, "again"), is_child = 0;
    int fd = is_again ? again() : connection(family, &is_child);
    if (is_child) {
        answer(fd, 'a');
        return 0;
    }
    // A call that waits for bytes which are elsewhere ends the program.
    alarm(HANGS_S);
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        if (!strcmp(mode, modes[i].name)) modes[i].run(fd);
    }
    close(fd);
    int status;
    if (wait(&status) < 0) fail("wait");
    printf("child %d\n", status);
    return 0;
}
