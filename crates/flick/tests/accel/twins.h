// A pipe that moves and one of the kernel: a process of its own writes to the first one, on order, and this one to the
// other; both return the same.
#pragma once
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "stream.h"

static unsigned char other[BYTES_MAX];

static uint32_t below(uint32_t max) {
    state = state * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)state * max >> 32);
}

static void unblock(int fd) {
    int on = 1;
    if (fd % 2 ? ioctl(fd, FIONBIO, &on) : fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK)) fail("unblock");
}

// What the model asks of the process that writes, in shared memory.
struct order {
    _Atomic uint32_t asked, done;
    uint32_t operation, bytes, count;
    int64_t result, error;
};

enum { WRITE, POLL_WRITER, CLOSE };

static void obey(int shared) {
    struct order *order = mmap(0, sizeof *order, PROT_READ | PROT_WRITE, MAP_SHARED, shared, 0);
    unblock(1);
    for (uint32_t next = 1;; next++) {
        while (atomic_load(&order->asked) != next) {
            if (getppid() == 1) _exit(1);
            sched_yield();
        }
        errno = 0;
        if (order->operation == WRITE) {
            order->result = 0;
            for (uint32_t i = 0; i < order->count; i++) {
                ssize_t n = write(1, buffer, order->bytes);
                order->result = n < 0 ? n : order->result + n;
            }
        } else if (order->operation == POLL_WRITER) {
            struct pollfd entry = {1, POLLOUT | POLLIN, 0};
            order->result = poll(&entry, 1, 0) * 1000 + entry.revents;
        } else {
            close(1);
        }
        order->error = errno;
        atomic_store(&order->done, next);
        if (order->operation == CLOSE) _exit(0);
    }
}

static struct order *order;
static int moved[2], plain[2];
static uint32_t step;

static void same(const char *what, int64_t first, int64_t second) {
    if (first == second) return;
    fprintf(stderr, "step %u, %s: %lld with a ring, %lld of the kernel\n", step, what, (long long)first,
            (long long)second);
    kill(0, SIGTERM);
    _exit(1);
}

static void ask_writer(uint32_t operation, uint32_t bytes, uint32_t count) {
    order->operation = operation, order->bytes = bytes, order->count = count;
    uint32_t next = atomic_load(&order->asked) + 1;
    atomic_store(&order->asked, next);
    while (atomic_load(&order->done) != next) sched_yield();
}

static int64_t put(uint32_t bytes, uint32_t count) {
    ask_writer(WRITE, bytes, count);
    int64_t result = 0;
    errno = 0;
    for (uint32_t i = 0; i < count; i++) {
        ssize_t n = write(plain[1], buffer, bytes);
        result = n < 0 ? n : result + n;
    }
    same("errno of write", order->error, errno);
    same("write", order->result, result);
    return result;
}

static int64_t get(uint32_t bytes) {
    errno = 0;
    int64_t first = read(moved[0], buffer, bytes), error = errno;
    errno = 0;
    int64_t second = read(plain[0], other, bytes);
    same("errno of read", error, errno);
    same("read", first, second);
    return first;
}

// Begins with empty pipes, the first of which may move.
static void begin(char *self) {
    int shared = memfd_create("order", 0);
    if (shared < 0 || ftruncate(shared, sizeof *order) || pipe(moved) || pipe2(plain, O_NONBLOCK)) fail("begin");
    order = mmap(0, sizeof *order, PROT_READ | PROT_WRITE, MAP_SHARED, shared, 0);
    setpgid(0, 0);
    if (fork() == 0) {
        char text[16], *arguments[] = {self, "obey", text, 0};
        snprintf(text, sizeof text, "%d", shared);
        dup2(moved[1], 1);
        for (int i = 0; i < 2; i++) close(moved[i]), close(plain[i]);
        execv(self, arguments);
        fail("exec");
    }
    close(moved[1]);
    unblock(moved[0]);
    // So that the pipe moves.
    for (int i = 0; i < 3000; i++) put(8, 1), get(8);
}
