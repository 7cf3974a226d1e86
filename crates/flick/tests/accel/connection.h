// Two processes with a connection.
#pragma once
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "stream.h"

// Pauses in the first hundred calls, in which the monitor pairs the connection.
static int slowly(void) {
    static int calls;
    struct timespec pause = {0, 1000000};
    if (calls++ >= 100) return 0;
    nanosleep(&pause, 0);
    return 1;
}

// Two processes with a connection: the descriptor, and whether this is the child.
static int connection(const char *family, int *is_child) {
    int pair[2], one;
    if (!strcmp(family, "pair")) {
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) fail("socketpair");
        *is_child = fork() == 0;
        close(pair[!*is_child]);
        return pair[*is_child];
    }
    struct sockaddr_in tcp = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    // The name is chosen by the kernel.
    struct sockaddr_un local = {.sun_family = AF_UNIX};
    int is_unix = !strcmp(family, "unix");
    struct sockaddr *name = is_unix ? (struct sockaddr *)&local : (struct sockaddr *)&tcp;
    socklen_t length = is_unix ? sizeof(sa_family_t) : sizeof tcp;
    int listener = socket(name->sa_family, SOCK_STREAM, 0);
    if (bind(listener, name, length) || listen(listener, 1)) fail("listen");
    length = is_unix ? sizeof local : sizeof tcp;
    if (getsockname(listener, name, &length)) fail("getsockname");
    *is_child = fork() == 0;
    if (*is_child) {
        close(listener);
        one = socket(name->sa_family, SOCK_STREAM, 0);
        if (connect(one, name, length)) fail("connect");
    } else {
        one = accept(listener, 0, 0);
        close(listener);
    }
    // Otherwise most of the time is spent with delayed acknowledgements.
    if (!is_unix && setsockopt(one, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int))) fail("setsockopt");
    return one;
}
