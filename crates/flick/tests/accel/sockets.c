// Two processes with a connection, which exchange a checked stream by calls of odd sizes, and hazards.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "connection.h"
#include "stream.h"

// Calls name an address, which a connection of TCP ignores.
static int is_addressed;
// Each receive looks first at what comes.
static int looks_first;

static ssize_t send_to(int fd, const void *from, size_t n) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    return sendto(fd, from, n, MSG_NOSIGNAL, (struct sockaddr *)&address, sizeof address);
}

static ssize_t receive_from(int fd, void *to, size_t n) {
    struct sockaddr_in address;
    socklen_t bytes = sizeof address;
    ssize_t moved = recvfrom(fd, to, n, 0, (struct sockaddr *)&address, &bytes);
    if (moved >= 0 && bytes != 0) fail("length of an address");
    return moved;
}

// One send, by the calls in turns.
static ssize_t send_some(int fd, unsigned char *from, size_t n) {
    static unsigned turn;
    struct iovec parts[2] = {{from, n / 3}, {from + n / 3, n - n / 3}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    if (is_addressed) return send_to(fd, from, n);
    switch (turn++ % 4) {
    case 0: return write(fd, from, n);
    case 1: return send(fd, from, n, MSG_NOSIGNAL);
    case 2: return writev(fd, parts, 2);
    default: return sendmsg(fd, &message, MSG_NOSIGNAL);
    }
}

// One receive, by the calls in turns.
static ssize_t receive_by_turns(int fd, unsigned char *to, size_t n) {
    static unsigned turn;
    struct iovec parts[2] = {{to, n / 3}, {to + n / 3, n - n / 3}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2, .msg_flags = -1};
    ssize_t moved;
    if (is_addressed) return receive_from(fd, to, n);
    switch (turn++ % 4) {
    case 0: return read(fd, to, n);
    case 1: return recv(fd, to, n, 0);
    case 2: return readv(fd, parts, 2);
    default:
        moved = recvmsg(fd, &message, 0);
        if (moved >= 0 && (message.msg_flags & ~MSG_CMSG_CLOEXEC)) fail("flags of a message");
        return moved;
    }
}

// What a receive finds are the bytes that a look before it has seen. Looks wait or do not, by `recv` and `recvmsg`.
static ssize_t receive_some(int fd, unsigned char *to, size_t n) {
    static unsigned char seen[BYTES_MAX];
    static unsigned turn;
    struct iovec parts[2] = {{seen, n / 2}, {seen + n / 2, n - n / 2}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    if (!looks_first) return receive_by_turns(fd, to, n);
    int flags = MSG_PEEK | (turn & 1 ? MSG_DONTWAIT : 0);
    ssize_t looked = turn++ & 2 ? recvmsg(fd, &message, flags) : recv(fd, seen, n, flags);
    if (looked < 0 && errno != EAGAIN) return looked;
    ssize_t moved = receive_by_turns(fd, to, n);
    // Both may have found a part: the smaller one counts.
    size_t both = looked < moved ? (looked < 0 ? 0 : (size_t)looked) : (moved < 0 ? 0 : (size_t)moved);
    if (memcmp(seen, to, both)) fail("bytes that were seen");
    return moved;
}

static void send_all(int fd, unsigned char *from, size_t n) {
    while (n > 0) {
        ssize_t sent = send_some(fd, from, n);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0) fail("send");
        from += sent, n -= (size_t)sent;
    }
}

static void fill(uint64_t offset, size_t n) {
    for (size_t i = 0; i < n; i++) buffer[i] = at(offset + i);
}

static void check(uint64_t offset, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (buffer[i] != at(offset + i)) fail("wrong byte");
    }
}

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

// Something happens to an end in the middle of the stream: the reader has looked at `got` bytes.
static void happen(const char *event, int fd) {
    if (!strcmp(event, "poll")) {
        struct pollfd one = {fd, POLLOUT, 0};
        if (poll(&one, 1, -1) != 1) fail("poll");
    } else if (!strcmp(event, "fork")) {
        if (fork() == 0) _exit(0);
        if (wait(0) < 0) fail("wait");
    } else if (!strcmp(event, "dup")) {
        int other = dup(fd);
        if (other < 0 || dup2(other, fd) != fd || close(other)) fail("dup");
    } else if (!strcmp(event, "timeout")) {
        struct timeval time = {20, 0};
        if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time)) fail("setsockopt");
    } else if (!strcmp(event, "stop")) {
        raise(SIGSTOP);
    } else if (!strcmp(event, "die")) {
        raise(SIGKILL);
    }
}

// Sends the stream.
static void source(int fd, uint64_t bytes, const char *event) {
    int happened = 0;
    for (uint64_t sent = 0; sent < bytes;) {
        size_t n = slowly() ? 10 : odd(BYTES_MAX);
        if (n > bytes - sent) n = (size_t)(bytes - sent);
        if (sent > bytes / 2 && !happened++) happen(event, fd);
        fill(sent, n);
        send_all(fd, buffer, n);
        sent += n;
    }
}

// Looks at what comes next without taking it, then takes a piece of a known length, or what is there.
static ssize_t receive_by_flags(int fd, uint64_t got) {
    static unsigned turn;
    ssize_t n = recv(fd, buffer, odd(5000), MSG_PEEK);
    if (n > 0) check(got, (size_t)n);
    if (n <= 0 || turn++ % 2) return recv(fd, buffer, 5000, MSG_WAITALL);
    return recv(fd, buffer, 5000, MSG_DONTWAIT);
}

// Checks the stream up to its end; returns how long it was. `how` says how it has ended.
static uint64_t sink(int fd, uint64_t bytes, const char *event, const char **how) {
    int happened = 0, uses_flags = !strcmp(event, "flags");
    uint64_t got = 0;
    for (uint64_t calls = 1;; calls++) {
        if (got > bytes / 2 && !happened++) happen(event, fd);
        int by_flags = uses_flags && calls % 500 == 0;
        ssize_t n = by_flags ? receive_by_flags(fd, got) : receive_some(fd, buffer, odd(BYTES_MAX));
        if (n < 0 && errno == EINTR) continue;
        *how = n < 0 ? strerror(errno) : "end";
        if (n <= 0) return got;
        check(got, (size_t)n);
        got += (uint64_t)n;
    }
}

// Sends pieces and waits for each to come back.
static void ask(int fd, uint64_t bytes, const char *event, size_t max) {
    int happened = 0;
    for (uint64_t sent = 0; sent < bytes;) {
        size_t n = slowly() ? 10 : odd(max);
        if (n > bytes - sent) n = (size_t)(bytes - sent);
        if (sent > bytes / 2 && !happened++) happen(event, fd);
        fill(sent, n);
        send_all(fd, buffer, n);
        for (size_t got = 0; got < n;) {
            size_t want = odd(n - got);
            ssize_t moved = receive_some(fd, buffer, want);
            if (moved < 0 && errno == EINTR) continue;
            if (moved <= 0) fail("answer");
            check(sent + got, (size_t)moved);
            got += (size_t)moved;
        }
        sent += n;
    }
}

// Sends back what comes, up to the end.
static uint64_t echo(int fd, uint64_t bytes, const char *event) {
    int happened = 0;
    for (uint64_t got = 0;;) {
        if (got > bytes / 2 && !happened++) happen(event, fd);
        ssize_t n = receive_some(fd, buffer, odd(BYTES_MAX));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) fail("receive");
        if (n == 0) return got;
        send_all(fd, buffer, (size_t)n);
        got += (uint64_t)n;
    }
}

// Answers 8 bytes, and prints nanoseconds per round trip.
static void ping(int fd, int is_child, uint64_t rounds) {
    uint64_t began = 0;
    for (uint64_t i = 0; i < rounds; i++) {
        if (i == rounds / 2) began = now();
        if (is_child && write(fd, buffer, 8) != 8) fail("write");
        for (size_t got = 0; got < 8;) {
            ssize_t n = read(fd, buffer + got, 8 - got);
            if (n <= 0) fail("read");
            got += (size_t)n;
        }
        if (!is_child && write(fd, buffer, 8) != 8) fail("write");
    }
    if (is_child) printf("%.1f\n", (double)(now() - began) / (double)(rounds - rounds / 2));
}

// The parent stops to read while bytes come, and closes the connection or dies; the child prints what it reads then.
static void reset(int fd, int is_child, uint64_t bytes, const char *event) {
    const size_t piece = 100, unread = 2000;
    if (is_child) {
        for (uint64_t sent = 0; sent < bytes + unread; sent += piece) {
            fill(sent, piece);
            if (write(fd, buffer, piece) != (ssize_t)piece) fail("write");
        }
        for (int i = 0; i < 2; i++) {
            ssize_t n = read(fd, buffer, 1);
            printf("%zd %s\n", n, n < 0 ? strerror(errno) : "");
        }
        return;
    }
    for (uint64_t got = 0; got < bytes;) {
        ssize_t n = read(fd, buffer, bytes - got < piece ? (size_t)(bytes - got) : piece);
        if (n <= 0) fail("read");
        check(got, (size_t)n);
        got += (uint64_t)n;
    }
    struct timespec pause = {0, 60000000};
    nanosleep(&pause, 0);
    happen(event, fd);
}

// One end says that it sends no more, and still gets the answer.
static void halves(int fd, int is_child, uint64_t bytes) {
    const char *how;
    if (is_child) {
        source(fd, bytes, "");
        if (shutdown(fd, SHUT_WR)) fail("shutdown");
        printf("%llu back\n", (unsigned long long)sink(fd, bytes, "", &how));
    } else {
        printf("%llu there\n", (unsigned long long)sink(fd, bytes, "", &how));
        source(fd, bytes, "");
    }
    fflush(stdout);
}

int main(int count, char **arguments) {
    if (count < 4) return 2;
    const char *family = arguments[1], *mode = arguments[2];
    uint64_t bytes = strtoull(arguments[3], 0, 10);
    const char *parent_event = count > 4 ? arguments[4] : "", *child_event = count > 5 ? arguments[5] : "";
    int is_child, fd = connection(family, &is_child);
    const char *event = is_child ? child_event : parent_event, *how = "";
    state = is_child ? 7 : 1;
    signal(SIGPIPE, SIG_IGN);
    is_addressed = !strcmp(event, "addressed");
    looks_first = !strcmp(event, "looks");
    if (!strcmp(mode, "echo")) {
        if (is_child) ask(fd, bytes, event, BYTES_MAX);
        else printf("%llu\n", (unsigned long long)echo(fd, bytes, event));
    } else if (!strcmp(mode, "upload")) {
        if (is_child) source(fd, bytes, event);
        else {
            uint64_t got = sink(fd, bytes, event, &how);
            printf("%llu %s\n", (unsigned long long)got, how);
        }
    } else if (!strcmp(mode, "reset")) {
        reset(fd, is_child, bytes, event);
    } else if (!strcmp(mode, "halves")) {
        halves(fd, is_child, bytes);
    } else if (!strcmp(mode, "ping")) {
        ping(fd, is_child, bytes);
    } else return 2;
    if (is_child) return 0;
    close(fd);
    int status;
    if (wait(&status) < 0) fail("wait");
    printf("child %d\n", status);
    return 0;
}
