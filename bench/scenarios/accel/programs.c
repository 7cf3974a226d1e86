// Programs that know nothing of flick, for `bench accel`: two sides of round trips, and packet filters.
// Each takes its role as first argument; what they print goes to standard error.
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { MESSAGE_BYTES = 8, WARM_UP = 20000, CONNECT_TRIES_MAX = 20000 };
// Of a capture, of a record, and the place of the byte that filters change.
enum { HEADER_BYTES = 24, HEAD_BYTES = 16, PACKET_BYTES_MAX = 1 << 18, CHANGED_AT = HEAD_BYTES + 22, CHANGED_TO = 64 };

static void fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static void write_all(int fd, const void *bytes, size_t n) {
    for (const char *from = bytes; n > 0;) {
        ssize_t sent = write(fd, from, n);
        if (sent < 0) fail("write");
        from += sent, n -= (size_t)sent;
    }
}

// Returns 0 at the end of the input.
static int read_all(int fd, void *bytes, size_t n) {
    for (char *to = bytes; n > 0;) {
        ssize_t got = read(fd, to, n);
        if (got < 0) fail("read");
        if (got == 0) return 0;
        to += got, n -= (size_t)got;
    }
    return 1;
}

// Listens or connects at `tcp:PORT` or `unix:PATH`; a client tries until the server is there.
static int stream(const char *at, int listens) {
    struct sockaddr_in ip = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_un path = {.sun_family = AF_UNIX};
    int is_tcp = !strncmp(at, "tcp:", 4);
    ip.sin_port = htons((uint16_t)atoi(at + 4));
    snprintf(path.sun_path, sizeof path.sun_path, "%s", at + 5);
    const struct sockaddr *address = is_tcp ? (void *)&ip : (void *)&path;
    socklen_t length = is_tcp ? sizeof ip : sizeof path;
    int fd = socket(address->sa_family, SOCK_STREAM, 0), on = 1;
    if (fd < 0) fail("socket");
    if (listens) {
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (bind(fd, address, length) || listen(fd, 1)) fail("listen");
        int accepted = accept(fd, 0, 0);
        if (accepted < 0) fail("accept");
        close(fd);
        fd = accepted;
    } else {
        for (int tries = 0; connect(fd, address, length); tries++) {
            if (tries == CONNECT_TRIES_MAX) fail("connect");
            usleep(1000);
        }
    }
    if (is_tcp) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

static long long nanoseconds(struct timespec from, struct timespec to) {
    return (to.tv_sec - from.tv_sec) * 1000000000ll + to.tv_nsec - from.tv_nsec;
}

static void echo(int from, int to) {
    char message[MESSAGE_BYTES];
    while (read_all(from, message, sizeof message)) write_all(to, message, sizeof message);
}

// Asks, and tells the nanoseconds of all round trips to the Unix socket `control`, which says when to end.
static void ask(int from, int to, long rounds, const char *control) {
    struct timespec begun, ended;
    for (long number = -WARM_UP; number < rounds; number++) {
        int64_t message = number, reply = 0;
        if (number == 0) clock_gettime(CLOCK_MONOTONIC, &begun);
        write_all(to, &message, sizeof message);
        if (!read_all(from, &reply, sizeof reply) || reply != message) fail("a wrong echo");
    }
    clock_gettime(CLOCK_MONOTONIC, &ended);
    int fd = stream(control, 0);
    dprintf(fd, "%lld\n", nanoseconds(begun, ended));
    char end;
    while (read(fd, &end, 1) > 0) continue;
}

// One end of a filter: by system calls, or by stdio with the buffers that it chooses.
static int uses_stdio;

static int take(void *bytes, size_t n) {
    return uses_stdio ? fread(bytes, n, 1, stdin) == 1 : read_all(0, bytes, n);
}

static void put(const void *bytes, size_t n) {
    if (!uses_stdio) write_all(1, bytes, n);
    else if (fwrite(bytes, n, 1, stdout) != 1) fail("write");
}

static void flush(void) {
    if (fflush(stdout)) fail("write");
}

static unsigned char record[HEAD_BYTES + PACKET_BYTES_MAX];

// The length of the record whose head is there.
static size_t record_bytes(const unsigned char *head) {
    uint32_t kept;
    memcpy(&kept, head + 8, sizeof kept);
    if (kept > PACKET_BYTES_MAX) fail("a wrong record");
    return HEAD_BYTES + kept;
}

// Reads the head of a record, then its packet; changes a byte and writes both.
static void filter(void) {
    if (!take(record, HEADER_BYTES)) fail("no header");
    put(record, HEADER_BYTES);
    flush();
    while (take(record, HEAD_BYTES)) {
        size_t n = record_bytes(record);
        if (!take(record + HEAD_BYTES, n - HEAD_BYTES)) fail("a wrong record");
        record[CHANGED_AT] = CHANGED_TO;
        put(record, n);
    }
    flush();
}

// A whole capture in memory.
static unsigned char *capture(const char *path, size_t *bytes) {
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END)) fail(path);
    *bytes = (size_t)ftell(file);
    rewind(file);
    unsigned char *all = malloc(*bytes);
    if (!all || fread(all, *bytes, 1, file) != 1) fail(path);
    fclose(file);
    return all;
}

// Writes a capture record by record.
static void source(const char *path) {
    size_t bytes, at = HEADER_BYTES;
    unsigned char *all = capture(path, &bytes);
    put(all, HEADER_BYTES);
    flush();
    for (; at < bytes; at += record_bytes(all + at)) put(all + at, record_bytes(all + at));
    flush();
}

// Reads what a filter made of a capture, compares it, and prints the nanoseconds behind the header.
static void sink(const char *path) {
    size_t bytes, at = HEADER_BYTES;
    unsigned char *all = capture(path, &bytes);
    struct timespec begun, ended;
    if (!take(record, HEADER_BYTES) || memcmp(record, all, HEADER_BYTES)) fail("a wrong header");
    clock_gettime(CLOCK_MONOTONIC, &begun);
    for (; take(record, HEAD_BYTES); at += record_bytes(record)) {
        size_t n = record_bytes(record);
        if (!take(record + HEAD_BYTES, n - HEAD_BYTES) || at + n > bytes) fail("a wrong record");
        all[at + CHANGED_AT] = CHANGED_TO;
        if (memcmp(record, all + at, n)) fail("a record came out wrong");
    }
    if (at != bytes) fail("records are missing");
    clock_gettime(CLOCK_MONOTONIC, &ended);
    printf("%lld\n", nanoseconds(begun, ended));
    flush();
}

int main(int count, char **words) {
    const char *role = count > 1 ? words[1] : "";
    const char *at = count > 2 ? words[2] : "";
    int is_echo = !strcmp(role, "echo");
    uses_stdio = count > 2 && !strcmp(at, "stdio");
    if (!strcmp(role, "filter")) {
        filter();
    } else if (!strcmp(role, "source") && count > 3) {
        source(words[3]);
    } else if (!strcmp(role, "sink") && count > 3) {
        sink(words[3]);
    } else if (is_echo || (!strcmp(role, "ask") && count > 4)) {
        int fd = strcmp(at, "pipes") ? stream(at, is_echo) : -1;
        int from = fd < 0 ? 0 : fd, to = fd < 0 ? 1 : fd;
        if (is_echo) echo(from, to);
        else ask(from, to, atol(words[3]), words[4]);
    } else {
        fprintf(stderr, "usage: %s filter HOW | source HOW FILE | sink HOW FILE | echo AT | ask AT ROUNDS CONTROL\n", words[0]);
        return 2;
    }
    return 0;
}
