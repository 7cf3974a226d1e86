// Two processes with a connection or a pipe that several threads of each use.
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

#include "connection.h"
#include "stream.h"

extern char **environ;

enum { THREADS = 4, RECORD_MAX = 4096 };

// A record of one thread: its bytes follow from its number.
struct record {
    uint32_t thread, bytes;
    uint64_t number;
    unsigned char data[RECORD_MAX - 16];
};

static int fd, is_pipe;
static uint64_t limit;
static const char *event;

static void start(pthread_t *thread, void *(*run)(void *), void *argument) {
    if (pthread_create(thread, 0, run, argument)) fail("pthread_create");
}

static void join(pthread_t thread) {
    if (pthread_join(thread, 0)) fail("pthread_join");
}

// Reads all of a piece; returns 0 at the end of the stream.
static int read_all(int from, void *to, size_t n) {
    for (size_t got = 0; got < n;) {
        ssize_t moved = read(from, (char *)to + got, n - got);
        if (moved < 0 && errno == EINTR) continue;
        if (moved < 0) fail("read");
        if (moved == 0 && got > 0) fail("torn record");
        if (moved == 0) return 0;
        got += (size_t)moved;
    }
    return 1;
}

// Makes a process in the midst of the stream.
static void happen(void) {
    if (!strcmp(event, "fork")) {
        pid_t child = fork();
        if (child == 0) _exit(0);
        if (waitpid(child, 0, 0) != child) fail("waitpid");
    } else if (!strcmp(event, "spawn")) {
        pid_t child;
        char *const arguments[] = {"true", 0};
        if (posix_spawn(&child, "/bin/true", 0, 0, arguments, environ)) fail("posix_spawn");
        if (waitpid(child, 0, 0) != child) fail("waitpid");
    }
}

static atomic_ullong records_sent, records_taken;
enum { CREDIT = 32 };

// Takes the reader's credits: the kernel tears records when a send buffer is full.
static void *take_credits(void *argument) {
    unsigned char credits[100];
    (void)argument;
    for (;;) {
        ssize_t n = read(fd, credits, sizeof credits);
        // Writers are to learn of the end themselves.
        if (n <= 0) n = 1 << 30;
        records_taken += (uint64_t)n * CREDIT;
        if (n == 1 << 30) return 0;
    }
}

// Writes records, each by one call.
static void *write_records(void *argument) {
    struct record one = {.thread = (uint32_t)(uintptr_t)argument};
    uint32_t random = one.thread * 77 + 1;
    for (; one.number < limit; one.number++) {
        random = random * 1664525u + 1013904223u;
        one.bytes = 16 + (random >> 8) % ((random >> 28) == 0 ? sizeof one.data : 100);
        memset(one.data, (int)(one.number % 251), one.bytes - 16);
        if (one.number < 25) {
            nanosleep(&(struct timespec){0, 1000000}, 0);
        } else if (one.number % (limit / 4 + 1) == 30 + one.thread) happen();
        while (!is_pipe && (int64_t)(records_sent - records_taken) > 4 * CREDIT) sched_yield();
        records_sent++;
        // A write of PIPE_BUF bytes may be cut only by a signal, and there is none.
        if (write(fd, &one, one.bytes) != (ssize_t)one.bytes) fail("write");
    }
    return 0;
}

// Checks the records of all threads up to the end of the stream.
static uint64_t read_records(void) {
    static struct record one;
    uint64_t next[THREADS] = {0}, count = 0;
    while (read_all(fd, &one, 16)) {
        if (one.thread >= THREADS || one.bytes < 16 || one.bytes > RECORD_MAX) fail("torn record");
        if (one.number != next[one.thread]++) fail("lost record");
        if (one.bytes > 16 && !read_all(fd, one.data, one.bytes - 16)) fail("torn record");
        for (size_t i = 0; i < one.bytes - 16; i++) {
            if (one.data[i] != one.number % 251) fail("wrong byte");
        }
        if (++count % CREDIT == 0 && !is_pipe && write(fd, "c", 1) != 1) fail("write");
    }
    return count;
}

// Several threads write, one of the other process reads.
static void writers(int is_child) {
    pthread_t threads[THREADS], credits;
    if (!is_child) {
        printf("%llu records\n", (unsigned long long)read_records());
        close(fd);
        return;
    }
    if (!is_pipe) start(&credits, take_credits, 0);
    for (uintptr_t i = 0; i < THREADS; i++) start(&threads[i], write_records, (void *)i);
    for (int i = 0; i < THREADS; i++) join(threads[i]);
    if (is_pipe) return;
    shutdown(fd, SHUT_WR);
    join(credits);
}

static void *send_stream(void *argument) {
    static unsigned char piece[BYTES_MAX];
    (void)argument;
    for (uint64_t sent = 0; sent < limit;) {
        size_t n = slowly() ? 10 : odd(30000);
        if (n > limit - sent) n = (size_t)(limit - sent);
        if (sent < limit / 2 && sent + n >= limit / 2) happen();
        for (size_t i = 0; i < n; i++) piece[i] = at(sent + i);
        for (size_t done = 0; done < n;) {
            ssize_t moved = write(fd, piece + done, n - done);
            if (moved <= 0) fail("write");
            done += (size_t)moved;
        }
        sent += n;
    }
    return 0;
}

static uint64_t receive_stream(uint64_t bytes) {
    uint64_t got = 0;
    while (got < bytes) {
        ssize_t n = read(fd, buffer, bytes - got < 20000 ? (size_t)(bytes - got) : 20000);
        if (n <= 0) fail("read");
        for (ssize_t i = 0; i < n; i++) {
            if (buffer[i] != at(got + (uint64_t)i)) fail("wrong byte");
        }
        got += (uint64_t)n;
    }
    return got;
}

// A thread of each process sends while another one receives.
static void duplex(int is_child) {
    pthread_t sender;
    start(&sender, send_stream, 0);
    uint64_t got = receive_stream(limit);
    join(sender);
    if (!is_child) printf("%llu bytes\n", (unsigned long long)got);
}

// Answers and asks of one byte each, until both ends may have moved.
static void warm(int is_child) {
    unsigned char byte = 0;
    for (int i = 0; i < 3000; i++) {
        if (is_child && write(fd, &byte, 1) != 1) fail("write");
        if (read(fd, &byte, 1) != 1) fail("read");
        if (!is_child && write(fd, &byte, 1) != 1) fail("write");
        if (i < 100) nanosleep(&(struct timespec){0, 1000000}, 0);
    }
}

static atomic_int is_in_read;

static void *read_once(void *argument) {
    char *text = argument;
    is_in_read = 1;
    ssize_t n = read(fd, text, 6);
    if (n < 0) snprintf(text, 30, "%s", strerror(errno));
    return 0;
}

// One thread closes, or replaces, what another one reads: that read goes on.
static void close_beside(int is_child) {
    warm(is_child);
    if (is_child) {
        nanosleep(&(struct timespec){0, 8000000}, 0);
        if (write(fd, "later\n", 6) != 6) fail("write");
        char rest;
        if (read(fd, &rest, 1) > 0) fail("byte that was not sent");
        return;
    }
    char text[32] = "";
    int pipes[2];
    pthread_t reader;
    if (pipe(pipes) || write(pipes[1], "other\n", 6) != 6) fail("pipe");
    start(&reader, read_once, text);
    while (!is_in_read) {}
    nanosleep(&(struct timespec){0, 2000000}, 0);
    if (!strcmp(event, "dup2")) dup2(pipes[0], fd);
    else {
        close(fd);
        // It gets the number.
        dup(pipes[0]);
    }
    join(reader);
    printf("%s", text);
    close(fd);
}

enum { PAIRS = 100 };
static int pairs[PAIRS][2];
static atomic_int reads_begun, reads_ended;

static void handle(int number) { (void)number; }

static void ask_of_pairs(int index, int is_child) {
    unsigned char byte = 0;
    int one = pairs[index][is_child];
    if (is_child && write(one, &byte, 1) != 1) fail("write");
    if (read(one, &byte, 1) != 1) fail("read");
    if (!is_child && write(one, &byte, 1) != 1) fail("write");
}

// Reads each pair until it is replaced.
static void *read_replaced(void *argument) {
    (void)argument;
    for (int i = 0; i < PAIRS; i++) {
        unsigned char byte;
        ssize_t n;
        for (int count = 0; count < 200; count++) ask_of_pairs(i, 0);
        reads_begun++;
        do n = read(pairs[i][0], &byte, 1);
        while (n < 0 && errno == EINTR);
        if (n != 0) fail("read of a replaced descriptor");
        reads_ended++;
    }
    return 0;
}

// One thread replaces what another one reads, and ends that read by a signal, as Java closes a channel.
static void replace_and_signal(int is_child) {
    for (int i = 0; i < PAIRS; i++) close(pairs[i][!is_child]);
    for (int count = 0; count < 200; count++) {
        for (int i = 0; i < PAIRS; i++) ask_of_pairs(i, is_child);
        if (count < 100) nanosleep(&(struct timespec){0, 1000000}, 0);
    }
    if (is_child) {
        for (int i = 0; i < PAIRS; i++) {
            for (int count = 0; count < 200; count++) ask_of_pairs(i, 1);
        }
        return;
    }
    int marker[2];
    pthread_t reader;
    struct sigaction action = {.sa_handler = handle};
    if (sigaction(SIGUSR1, &action, 0) || socketpair(AF_UNIX, SOCK_STREAM, 0, marker)) fail("marker");
    close(marker[1]);
    start(&reader, read_replaced, 0);
    for (int i = 0; i < PAIRS; i++) {
        while (reads_begun <= i) sched_yield();
        nanosleep(&(struct timespec){0, 2000000}, 0);
        if (dup2(marker[0], pairs[i][0]) < 0 || pthread_kill(reader, SIGUSR1)) fail("replace");
        for (int ms = 0; reads_ended <= i; ms++) {
            if (ms == 5000) fail("the signal was lost");
            nanosleep(&(struct timespec){0, 1000000}, 0);
        }
    }
    join(reader);
    printf("%d reads ended\n", PAIRS);
}

// A thread is cancelled while it reads; another one reads on.
static void cancel(int is_child) {
    warm(is_child);
    if (is_child) {
        nanosleep(&(struct timespec){0, 8000000}, 0);
        if (write(fd, "later\n", 6) != 6) fail("write");
        return;
    }
    char text[32] = "", none[32] = "";
    pthread_t reader;
    start(&reader, read_once, none);
    while (!is_in_read) {}
    nanosleep(&(struct timespec){0, 2000000}, 0);
    pthread_cancel(reader);
    join(reader);
    read_once(text);
    printf("%s%s", none, text);
}

// A thread is cancelled while it reads what another one has closed: with it the last descriptor is gone.
static void cancel_closed(int is_child) {
    warm(is_child);
    if (is_child) {
        char rest;
        struct pollfd one = {fd, POLLIN, 0};
        if (poll(&one, 1, 10000) != 1 || read(fd, &rest, 1) != 0) fail("the connection was not closed");
        return;
    }
    char text[32] = "";
    pthread_t reader;
    start(&reader, read_once, text);
    while (!is_in_read) {}
    nanosleep(&(struct timespec){0, 2000000}, 0);
    close(fd);
    // The read is in the ring for 20 ms, then in the kernel.
    if (!strcmp(event, "later")) nanosleep(&(struct timespec){0, 60000000}, 0);
    pthread_cancel(reader);
    join(reader);
}

static atomic_ullong taken;

static void *read_some(void *argument) {
    unsigned char own[5000];
    (void)argument;
    for (;;) {
        ssize_t n = read(fd, own, sizeof own);
        if (n < 0) fail("read");
        if (n == 0) return 0;
        taken += (uint64_t)n;
    }
}

// Two threads read one stream.
static void readers(int is_child) {
    if (is_child) {
        send_stream(0);
        close(fd);
        return;
    }
    pthread_t other;
    // The first bytes are read by one thread, so that the connection moves.
    if (read(fd, buffer, 1) != 1) fail("read");
    taken = 1;
    while (taken < 20000) {
        ssize_t n = read(fd, buffer, 1000);
        if (n <= 0) fail("read");
        taken += (uint64_t)n;
    }
    start(&other, read_some, 0);
    read_some(0);
    join(other);
    printf("%llu bytes\n", (unsigned long long)taken);
}

// Reads one byte for each edge, also while another one is left from the middle of the stream on.
static void edges(int is_child) {
    unsigned char bytes[2] = {0};
    if (is_child) {
        for (uint64_t i = 0; i < limit; i++) {
            ssize_t n = i == limit / 2 ? 2 : 1;
            if (write(fd, bytes, (size_t)n) != n || read(fd, bytes, 1) != 1) fail("answer");
            // Later, the other end sleeps before the next byte comes.
            if (i < 100 || (i >= limit / 2 && i < limit / 2 + 3)) nanosleep(&(struct timespec){0, 1000000}, 0);
        }
        printf("answered\n");
        fflush(stdout);
        return;
    }
    int set = epoll_create1(0);
    struct epoll_event events = {EPOLLIN | EPOLLET, {0}};
    if (epoll_ctl(set, EPOLL_CTL_ADD, fd, &events)) fail("epoll_ctl");
    for (uint64_t i = 0; i < limit; i++) {
        if (epoll_wait(set, &events, 1, -1) != 1) fail("epoll_wait");
        if (read(fd, bytes, 1) != 1 || write(fd, bytes, 1) != 1) fail("read");
    }
}

static int requests[2];

// Answers one request that the waiting thread has handed over.
static void *work(void *argument) {
    unsigned char byte;
    (void)argument;
    while (read(requests[0], &byte, 1) == 1) {
        ssize_t n = recv(fd, &byte, 1, MSG_DONTWAIT);
        if (n == 1 && write(fd, &byte, 1) != 1) fail("write");
        if (n == 0) _exit(0);
    }
    return 0;
}

// One thread waits for requests, another one answers them.
static void waiter(int is_child) {
    unsigned char byte = 0;
    if (is_child) {
        warm(is_child);
        for (uint64_t i = 0; i < limit; i++) {
            byte = (unsigned char)i;
            if (write(fd, &byte, 1) != 1 || read(fd, &byte, 1) != 1) fail("answer");
            if (byte != (unsigned char)i) fail("wrong byte");
        }
        printf("answered\n");
        fflush(stdout);
        return;
    }
    pthread_t worker;
    if (pipe(requests)) fail("pipe");
    start(&worker, work, 0);
    warm(is_child);
    int set = epoll_create1(0), uses_poll = !strcmp(event, "poll");
    struct epoll_event events = {EPOLLIN | EPOLLET, {0}};
    if (!uses_poll && epoll_ctl(set, EPOLL_CTL_ADD, fd, &events)) fail("epoll_ctl");
    for (;;) {
        struct pollfd one = {fd, POLLIN, 0};
        int ready = uses_poll ? poll(&one, 1, -1) : epoll_wait(set, &events, 1, -1);
        if (ready < 0) fail("wait");
        if (write(requests[1], &byte, 1) != 1) fail("write");
    }
}

// A thread runs another program, which echoes.
static void *execute(void *argument) {
    (void)argument;
    dup2(fd, 0);
    dup2(fd, 1);
    close(fd);
    execl("/bin/cat", "cat", (char *)0);
    fail("execl");
    return 0;
}

static void exec_beside(int is_child) {
    warm(is_child);
    if (!is_child) {
        pthread_t other;
        start(&other, execute, 0);
        join(other);
        return;
    }
    for (uint64_t i = 0; i < limit; i++) {
        unsigned char byte = (unsigned char)i;
        if (write(fd, &byte, 1) != 1 || read(fd, &byte, 1) != 1) fail("answer");
        if (byte != (unsigned char)i) fail("wrong byte");
    }
    printf("echoed\n");
    fflush(stdout);
}

int main(int count, char **arguments) {
    if (count < 4) return 2;
    const char *family = arguments[1], *mode = arguments[2];
    int is_child = 0;
    limit = strtoull(arguments[3], 0, 10);
    event = count > 4 ? arguments[4] : "";
    signal(SIGPIPE, SIG_IGN);
    is_pipe = !strcmp(family, "pipe");
    for (int i = 0; i < PAIRS && !strcmp(mode, "replace"); i++) {
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, pairs[i])) fail("socketpair");
    }
    if (is_pipe) {
        int pipes[2];
        if (pipe(pipes)) fail("pipe");
        is_child = fork() == 0;
        close(pipes[!is_child]);
        fd = pipes[is_child];
    } else fd = connection(family, &is_child);
    const struct {
        const char *name;
        void (*run)(int);
    } modes[] = {{"writers", writers}, {"duplex", duplex},   {"close", close_beside}, {"cancel", cancel}, {"cancel_closed", cancel_closed},
                 {"readers", readers}, {"waiter", waiter}, {"exec", exec_beside},
                 {"edges", edges},     {"replace", replace_and_signal}};
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        if (!strcmp(mode, modes[i].name)) modes[i].run(is_child);
    }
    if (is_child) return 0;
    int status;
    if (wait(&status) < 0) fail("wait");
    printf("child %d\n", status);
    return 0;
}
