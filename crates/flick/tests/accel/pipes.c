// Programs for pipes that move: a source, a filter and a sink of a checked stream, by calls of odd sizes, and hazards.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "stream.h"

static void send_all(int fd, const unsigned char *from, size_t n) {
    while (n > 0) {
        ssize_t sent = write(fd, from, n);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0) fail("write");
        from += sent, n -= (size_t)sent;
    }
}

// Writes the stream in pieces, by write and writev in turns. With `event`, something happens in the middle.
static void source(uint64_t bytes, const char *event) {
    uint64_t middle = bytes / 2;
    for (uint64_t sent = 0; sent < bytes;) {
        size_t n = odd(BYTES_MAX);
        if (n > bytes - sent) n = (size_t)(bytes - sent);
        for (size_t i = 0; i < n; i++) buffer[i] = at(sent + i);
        if (n > 3 && n % 3 == 0) {
            struct iovec parts[3] = {{buffer, 1}, {buffer + 1, n / 2}, {buffer + 1 + n / 2, n - 1 - n / 2}};
            ssize_t moved = writev(1, parts, 3);
            if (moved != (ssize_t)n) fail("writev");
        } else {
            send_all(1, buffer, n);
        }
        if (sent < middle && sent + n >= middle && event) {
            if (!strcmp(event, "fork")) {
                pid_t child = fork();
                if (child == 0) {
                    _exit(0);
                }
                waitpid(child, 0, 0);
            } else if (!strcmp(event, "poll")) {
                struct pollfd entry = {1, POLLOUT, 0};
                poll(&entry, 1, -1);
            } else if (!strcmp(event, "stop")) {
                raise(SIGSTOP);
            } else if (!strcmp(event, "die")) {
                kill(getpid(), SIGKILL);
            }
        }
        sent += n;
    }
}

// Reads the stream to its end and prints its length. With `event`, something happens in the middle.
static void sink(uint64_t bytes, const char *event) {
    uint64_t got = 0, middle = bytes / 2;
    for (;;) {
        size_t n = odd(BYTES_MAX);
        ssize_t moved = read(0, buffer, n);
        if (moved < 0 && errno == EINTR) continue;
        if (moved < 0) fail("read");
        if (moved == 0) break;
        for (ssize_t i = 0; i < moved; i++) {
            if (buffer[i] != at(got + (uint64_t)i)) {
                fprintf(stderr, "wrong byte at %llu\n", (unsigned long long)(got + (uint64_t)i));
                _exit(1);
            }
        }
        if (got < middle && got + (uint64_t)moved >= middle && event) {
            int unread = 0;
            if (!strcmp(event, "fork")) {
                pid_t child = fork();
                if (child == 0) _exit(0);
                waitpid(child, 0, 0);
            } else if (!strcmp(event, "poll")) {
                struct pollfd entry = {0, POLLIN, 0};
                if (poll(&entry, 1, -1) != 1) fail("poll");
                if (ioctl(0, FIONREAD, &unread) != 0 || (unread == 0 && !(entry.revents & POLLHUP))) fail("unread");
            } else if (!strcmp(event, "limit")) {
                // No descriptor can be opened any more. The look has the bytes of a ring returned to the kernel.
                if (setrlimit(RLIMIT_NOFILE, &(struct rlimit){1, 1}) || ioctl(0, FIONREAD, &unread)) fail("limit");
            } else if (!strcmp(event, "stop")) {
                raise(SIGSTOP);
            } else if (!strcmp(event, "die")) {
                kill(getpid(), SIGKILL);
            } else if (!strcmp(event, "child") || !strcmp(event, "full")) {
                // The child reads the rest, and this process ends with its status. No descriptor is free before.
                while (!strcmp(event, "full") && open("/dev/null", O_RDONLY) >= 0) continue;
                pid_t child = fork();
                if (child != 0) {
                    int status;
                    waitpid(child, &status, 0);
                    _exit(WEXITSTATUS(status));
                }
            }
        }
        got += (uint64_t)moved;
    }
    printf("%llu\n", (unsigned long long)got);
}

// Reads a part of the stream, then becomes another program.
static void take(uint64_t bytes, char **program) {
    for (uint64_t got = 0; got < bytes;) {
        size_t n = odd(BYTES_MAX);
        if (n > bytes - got) n = (size_t)(bytes - got);
        ssize_t moved = read(0, buffer, n);
        if (moved <= 0) fail("read");
        got += (uint64_t)moved;
    }
    char text[32], *arguments[] = {program[0], program[1], text, 0};
    snprintf(text, sizeof text, "%llu", (unsigned long long)bytes);
    execv(program[0], arguments);
    fail("exec");
}

// Checks the stream from an offset on, and prints its length.
static void tail(uint64_t from) {
    ssize_t moved;
    while ((moved = read(0, buffer, BYTES_MAX)) > 0) {
        for (ssize_t i = 0; i < moved; i++) {
            if (buffer[i] != at(from + (uint64_t)i)) fail("wrong byte behind the program");
        }
        from += (uint64_t)moved;
    }
    printf("%llu\n", (unsigned long long)from);
}

// Copies records, by read and write.
static void filter(size_t record) {
    for (;;) {
        ssize_t n = read(0, buffer, record);
        if (n <= 0) return;
        send_all(1, buffer, (size_t)n);
    }
}

// Copies records by stdio.
static void stdio_filter(size_t record) {
    size_t n;
    while ((n = fread(buffer, 1, record, stdin)) > 0) fwrite(buffer, 1, n, stdout);
}

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

// Sends 8 bytes to a program over two pipes and waits for them, and prints nanoseconds per round trip.
static void ping(char **program, uint64_t rounds) {
    int there[2], back[2];
    if (pipe(there) || pipe(back)) fail("pipe");
    if (fork() == 0) {
        dup2(there[0], 0), dup2(back[1], 1);
        close(there[0]), close(there[1]), close(back[0]), close(back[1]);
        execv(program[0], program);
        fail("exec");
    }
    close(there[0]), close(back[1]);
    uint64_t began = 0;
    for (uint64_t i = 0; i < rounds; i++) {
        if (i == rounds / 2) began = now();
        send_all(there[1], buffer, 8);
        for (size_t got = 0; got < 8;) {
            ssize_t n = read(back[0], buffer + got, 8 - got);
            if (n <= 0) fail("read");
            got += (size_t)n;
        }
    }
    printf("%.1f\n", (double)(now() - began) / (double)(rounds - rounds / 2));
}

static volatile sig_atomic_t handled;

static void handle(int number) {
    (void)number;
    handled++;
}

// Reads with timers, whose handler ends the read or does not, beside the ring (5 ms) and in the kernel (60 ms).
static void interrupted(void) {
    // So that the pipe moves.
    for (int i = 0; i < 20000; i++) {
        if (read(0, buffer, 1) != 1) fail("read");
    }
    const long times_us[2] = {5000, 50000};
    for (int restarts = 0; restarts < 2; restarts++) {
        struct sigaction action = {.sa_handler = handle, .sa_flags = restarts ? SA_RESTART : 0};
        sigaction(SIGALRM, &action, 0);
        for (int i = 0; i < 2; i++) {
            handled = 0;
            struct itimerval timer = {{0, 0}, {0, times_us[i]}};
            setitimer(ITIMER_REAL, &timer, 0);
            ssize_t n = read(0, buffer, 1);
            if (handled != 1) fail("not handled");
            // With restarts the source's next byte comes, after a tenth of a second.
            if (restarts ? n != 1 : n != -1 || errno != EINTR) fail("interrupted");
        }
    }
    printf("ok\n");
}

// Feeds `interrupted`.
static void feed(void) {
    for (int i = 0; i < 20000; i++) send_all(1, buffer, 1);
    for (int i = 0; i < 4; i++) {
        struct timespec pause = {0, 250000000};
        nanosleep(&pause, 0);
        send_all(1, buffer, 1);
    }
}

// Writes until the reader is gone, and prints how the error came.
static void until_broken(uint64_t pause_ns) {
    signal(SIGPIPE, SIG_IGN);
    uint64_t last = now();
    for (;;) {
        last = now();
        if (write(1, buffer, 64) < 0) break;
        if (pause_ns) {
            struct timespec pause = {0, (long)pause_ns};
            nanosleep(&pause, 0);
        }
    }
    fprintf(stderr, "%s %llu\n", strerror(errno), (unsigned long long)(now() - last));
}

static void *stay(void *unused) {
    (void)unused;
    pid_t parent = getppid();
    while (getppid() == parent) poll(0, 0, 50);
    _exit(0);
}

// Holds its descriptors until its parent ends, in a thread that is not the first one.
static void hold(void) {
    pthread_t thread;
    if (pthread_create(&thread, 0, stay, 0)) fail("pthread_create");
    pthread_exit(0);
}

int main(int count, char **arguments) {
    if (count < 2) return 2;
    const char *mode = arguments[1];
    uint64_t number = count > 2 ? strtoull(arguments[2], 0, 10) : 0;
    const char *event = count > 3 ? arguments[3] : 0;
    if (!strcmp(mode, "source")) source(number, event);
    else if (!strcmp(mode, "sink")) state = 7, sink(number, event);
    else if (!strcmp(mode, "filter")) filter((size_t)number);
    else if (!strcmp(mode, "stdio")) stdio_filter((size_t)number);
    else if (!strcmp(mode, "ping")) ping(arguments + 3, number);
    else if (!strcmp(mode, "interrupted")) interrupted();
    else if (!strcmp(mode, "take")) state = 9, take(number, arguments + 3);
    else if (!strcmp(mode, "tail")) tail(number);
    else if (!strcmp(mode, "hold")) hold();
    else if (!strcmp(mode, "feed")) feed();
    else if (!strcmp(mode, "broken")) until_broken(number);
    else return 2;
    return 0;
}
