// Signal handlers that use the pipe of the call which they interrupt. That call starts again behind the handler
// (SA_RESTART), in the kernel.
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>

#include "stream.h"

enum { RECORD_BYTES = 4096, PIPE_RECORDS = 16, STALL_S = 10 };
enum { BY_MAIN, BY_HANDLER };

struct record {
    uint32_t by, number;
    unsigned char rest[RECORD_BYTES - 8];
};

// What both processes know: records that were written, read and asked for, and whether the reader is to wait.
static struct shared {
    _Atomic uint64_t sent, received, wanted;
    _Atomic int is_held;
} *shared;
static int ends[2];

static void pause_us(long us) { nanosleep(&(struct timespec){us / 1000000, us % 1000000 * 1000}, 0); }

static struct record next_record(uint32_t by) {
    static uint32_t numbers[2];
    return (struct record){by, numbers[by]++, {0}};
}

static void put(uint32_t by) {
    struct record record = next_record(by);
    if (write(ends[1], &record, sizeof record) != sizeof record) fail("write");
    shared->sent++;
}

// Reads records up to the end. Those of the main program and those of its handler are each in their order.
static void read_records(void) {
    uint32_t expected[2] = {0};
    for (;;) {
        struct record record;
        while (shared->is_held) pause_us(200);
        for (size_t got = 0; got < sizeof record;) {
            ssize_t n = read(ends[0], (char *)&record + got, sizeof record - got);
            if (n <= 0) _exit(n < 0 || got > 0);
            got += (size_t)n;
        }
        if (record.by > BY_HANDLER || record.number != expected[record.by]++) {
            fprintf(stderr, "number %u of %u\n", record.number, record.by);
            _exit(1);
        }
        shared->received++;
    }
}

static uint32_t handled_count;

// Lets the reader take all that was written, and writes behind it.
static void write_more(int number) {
    (void)number;
    int before = errno;
    shared->is_held = 0;
    while (shared->received != shared->sent) sched_yield();
    for (uint32_t i = 0; i < handled_count; i++) put(BY_HANDLER);
    errno = before;
}

static void handle_after(void (*handler)(int), long us) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    struct itimerval once = {{0, 0}, {us / 1000000, us % 1000000}};
    sigaction(SIGALRM, &action, 0);
    setitimer(ITIMER_REAL, &once, 0);
}

static pid_t begin(void (*child)(void), int child_end) {
    *shared = (struct shared){0};
    if (pipe2(ends, O_CLOEXEC)) fail("pipe");
    pid_t pid = fork();
    close(ends[pid == 0 ? !child_end : child_end]);
    if (pid == 0) child(), _exit(0);
    return pid;
}

static void end(pid_t child) {
    int status;
    if (waitpid(child, &status, 0) != child) fail("wait");
    printf("%d\n", status);
}

// A write waits in the kernel for a pipe that is full.
static void writes(uint64_t rounds) {
    pid_t reader = begin(read_records, 0);
    handled_count = 20;
    // So that the pipe moves.
    for (int i = 0; i < 100; i++) put(BY_MAIN), pause_us(1000);
    for (uint64_t i = 0; i < rounds; i++) {
        for (int i = 0; i < 300; i++) put(BY_MAIN);
        shared->is_held = 1;
        handle_after(write_more, 60000);
        for (int i = 0; i < 4 * PIPE_RECORDS; i++) put(BY_MAIN);
    }
    close(ends[1]);
    end(reader);
}

// Writes a record by a call that a ring does not serve.
static void put_otherwise(const char *way) {
    struct record record = next_record(BY_MAIN);
    struct iovec vector = {&record, sizeof record};
    int source[2];
    ssize_t n;
    if (!strcmp(way, "splice")) {
        if (pipe2(source, O_CLOEXEC) || write(source[1], &record, sizeof record) != sizeof record) fail("source");
        n = splice(source[0], 0, ends[1], 0, sizeof record, 0);
        close(source[0]), close(source[1]);
    } else {
        n = pwritev2(ends[1], &vector, 1, -1, 0);
    }
    if (n != sizeof record) fail(way);
    shared->sent++;
}

// Such a call waits in the kernel while the pipe is to move: the pipe is full, and has been used by as many calls as
// that takes.
static void otherwise(const char *way) {
    handled_count = 200;
    pid_t reader = begin(read_records, 0);
    for (int i = 0; i < PIPE_RECORDS; i++) {
        put(BY_MAIN);
        while (shared->received != shared->sent) sched_yield();
    }
    shared->is_held = 1;
    for (int i = 0; i < PIPE_RECORDS; i++) put(BY_MAIN);
    handle_after(write_more, 300000);
    put_otherwise(way);
    for (int i = 0; i < 1000; i++) put(BY_MAIN);
    close(ends[1]);
    end(reader);
}

static uint32_t got_count;

static void get(void) {
    uint32_t number;
    for (size_t got = 0; got < sizeof number;) {
        ssize_t n = read(ends[0], (char *)&number + got, sizeof number - got);
        if (n <= 0) fail("read");
        got += (size_t)n;
    }
    if (number != got_count++) fail("number");
    shared->received++;
}

// Reads what comes from now on; the call that it has interrupted reads what comes behind.
static void read_more(int number) {
    (void)number;
    int before = errno;
    shared->wanted += 40;
    for (int i = 0; i < 40; i++) get();
    shared->wanted++;
    errno = before;
}

// Writes what is wanted. Ends a reader that does not read.
static void write_wanted(void) {
    time_t moved = time(0);
    for (uint32_t number = 0; !shared->is_held;) {
        uint64_t received = shared->received;
        if (number < shared->wanted) {
            if (write(ends[1], &number, sizeof number) != sizeof number) fail("write");
            number++, moved = time(0);
        } else if (received == number) {
            moved = time(0);
        } else if (time(0) - moved > STALL_S) {
            kill(getppid(), SIGKILL);
            fail("a read has stalled");
        }
        sched_yield();
    }
}

// A read waits in the kernel for a pipe that is empty.
static void reads(uint64_t rounds) {
    pid_t writer = begin(write_wanted, 1);
    for (uint64_t i = 0; i < rounds; i++) {
        // The sender enters the ring of an empty pipe, and the receiver stays there if it reads several ones at a time.
        for (int n = 0; n < 600; n++) {
            if (n % 20 == 0) shared->wanted += 20;
            get();
            if (i == 0) pause_us(500);
        }
        handle_after(read_more, 80000);
        get();
    }
    shared->is_held = 1;
    end(writer);
}

int main(int count, char **arguments) {
    if (count < 3) return 2;
    shared = mmap(0, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) fail("mmap");
    if (!strcmp(arguments[1], "writes")) writes(strtoull(arguments[2], 0, 10));
    else if (!strcmp(arguments[1], "reads")) reads(strtoull(arguments[2], 0, 10));
    else if (!strcmp(arguments[1], "otherwise")) otherwise(arguments[2]);
    else return 2;
    return 0;
}
