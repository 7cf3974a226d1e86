// Calls that a ring does not serve, on a connection that moves and on other files. Each mode prints what the kernel
// says.
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/wait.h>

#include "connection.h"
#include "stream.h"

enum { BYTES = 8 };

static void put(int fd) {
    if (write(fd, buffer, BYTES) != BYTES) fail("write");
}

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
    return 2;
}
