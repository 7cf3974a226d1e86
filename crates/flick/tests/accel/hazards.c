// What a preloaded library may break in a program: one case for each first argument. A case that holds prints `ok`.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <netinet/in.h>
#include <unistd.h>

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            printf("line %d: %s (errno %d)\n", __LINE__, #condition, errno); \
            exit(1); \
        } \
    } while (0)

extern char **environ;

// Cancellation: a thread blocks in each call; it must end there, and run its cleanup on the way out.

static int empty[2], full[2], empty_pipe[2], full_pipe[2], listener;
static volatile int blocked_thread, cleaned;
static char bytes[1 << 16];
static struct iovec part = {bytes, sizeof bytes};
static struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
static struct mmsghdr messages = {.msg_hdr = {.msg_iov = &part, .msg_iovlen = 1}};

static void call_read(void) { read(empty_pipe[0], bytes, 1); }
static void call_readv(void) { readv(empty_pipe[0], &part, 1); }
static void call_recv(void) { recv(empty[0], bytes, 1, 0); }
static void call_recvfrom(void) { recvfrom(empty[0], bytes, 1, 0, NULL, NULL); }
static void call_recvmsg(void) { recvmsg(empty[0], &message, 0); }
static void call_recvmmsg(void) { recvmmsg(empty[0], &messages, 1, 0, NULL); }
static void call_write(void) { write(full_pipe[1], bytes, sizeof bytes); }
static void call_writev(void) { writev(full_pipe[1], &part, 1); }
static void call_send(void) { send(full[0], bytes, sizeof bytes, 0); }
static void call_sendto(void) { sendto(full[0], bytes, sizeof bytes, 0, NULL, 0); }
static void call_sendmsg(void) { sendmsg(full[0], &message, 0); }
static void call_sendmmsg(void) { sendmmsg(full[0], &messages, 1, 0); }
static void call_accept(void) { accept(listener, NULL, NULL); }
static void call_accept4(void) { accept4(listener, NULL, NULL, 0); }
static void call_splice(void) { splice(empty_pipe[0], NULL, full_pipe[1], NULL, 1, 0); }
static void call_preadv2(void) { preadv2(empty_pipe[0], &part, 1, -1, 0); }
static void call_pwritev2(void) { pwritev2(full_pipe[1], &part, 1, -1, 0); }
static void call_vmsplice(void) { vmsplice(full_pipe[1], &part, 1, 0); }

static void clean(void *unused) { (void)unused; cleaned = 1; }

static void *blocked(void *call) {
    pthread_cleanup_push(clean, NULL);
    blocked_thread = (int)syscall(SYS_gettid);
    ((void (*)(void))call)();
    pthread_cleanup_pop(0);
    return NULL;
}

// Waits until the kernel says that the thread sleeps in a system call.
static void wait_until_blocked(void) {
    char path[64], state[512];
    while (!blocked_thread) sched_yield();
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", blocked_thread);
    for (;;) {
        FILE *file = fopen(path, "r");
        CHECK(file && fgets(state, sizeof state, file));
        fclose(file);
        if (strrchr(state, ')')[2] == 'S') return;
        sched_yield();
    }
}

static void fill(int fd) {
    fcntl(fd, F_SETFL, O_NONBLOCK);
    while (write(fd, bytes, sizeof bytes) > 0) {}
    while (write(fd, bytes, 1) > 0) {}
    fcntl(fd, F_SETFL, 0);
}

static void cancel(void) {
    void (*calls[])(void) = {call_read, call_readv, call_recv, call_recvfrom, call_recvmsg, call_recvmmsg, call_write,
        call_writev, call_send, call_sendto, call_sendmsg, call_sendmmsg, call_accept, call_accept4, call_splice,
        call_preadv2, call_pwritev2, call_vmsplice};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, empty) && !socketpair(AF_UNIX, SOCK_STREAM, 0, full));
    CHECK(!pipe(empty_pipe) && !pipe(full_pipe));
    listener = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(!bind(listener, (void *)&address, sizeof address) && !listen(listener, 1));
    fill(full[0]);
    fill(full_pipe[1]);
    for (size_t index = 0; index < sizeof calls / sizeof *calls; index++) {
        pthread_t thread;
        void *result;
        blocked_thread = cleaned = 0;
        CHECK(!pthread_create(&thread, NULL, blocked, calls[index]));
        wait_until_blocked();
        CHECK(!pthread_cancel(thread) && !pthread_join(thread, &result));
        if (result != PTHREAD_CANCELED || !cleaned) {
            printf("call %zu was not cancelled well\n", index);
            exit(1);
        }
    }
}

// Other threads use descriptors all the time.

static volatile int ends;

static void *traffic(void *unused) {
    (void)unused;
    while (!ends) {
        int pair[2];
        char byte = 'x';
        CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair));
        CHECK(write(pair[0], &byte, 1) == 1 && read(pair[1], &byte, 1) == 1);
        close(pair[0]);
        close(pair[1]);
    }
    return NULL;
}

static void with_traffic(void (*run)(void)) {
    pthread_t threads[2];
    for (int index = 0; index < 2; index++) CHECK(!pthread_create(&threads[index], NULL, traffic, NULL));
    run();
    ends = 1;
    for (int index = 0; index < 2; index++) CHECK(!pthread_join(threads[index], NULL));
}

static void expect_exit(pid_t child, int status_expected) {
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == status_expected);
}

static void spawns(void) {
    for (int round = 0; round < 40; round++) {
        int ends_of_pipe[2];
        char text[8] = {0};
        posix_spawn_file_actions_t actions;
        char *echo[] = {"/bin/echo", "spawned", NULL};
        CHECK(!pipe(ends_of_pipe) && !posix_spawn_file_actions_init(&actions));
        CHECK(!posix_spawn_file_actions_addclose(&actions, ends_of_pipe[0]));
        CHECK(!posix_spawn_file_actions_adddup2(&actions, ends_of_pipe[1], 1));
        CHECK(!posix_spawn_file_actions_addclose(&actions, ends_of_pipe[1]));
        pid_t child;
        CHECK(!posix_spawn(&child, echo[0], &actions, NULL, echo, environ));
        close(ends_of_pipe[1]);
        // The spawned process has closed its copy of the end that is read; ours still works.
        CHECK(read(ends_of_pipe[0], text, 7) == 7 && !strcmp(text, "spawned"));
        close(ends_of_pipe[0]);
        expect_exit(child, 0);
        child = vfork();
        if (child == 0) {
            close(empty_pipe[0]);
            close(empty_pipe[1]);
            _exit(7);
        }
        expect_exit(child, 7);
    }
}

static void vforks(void) {
    CHECK(!pipe(empty_pipe));
    with_traffic(spawns);
    // Calls of the child were no calls of this process.
    CHECK(write(empty_pipe[1], "abc", 3) == 3 && read(empty_pipe[0], bytes, 3) == 3);
}

static void *forks(void *unused) {
    (void)unused;
    for (int round = 0; round < 40; round++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            int pair[2];
            char text[4] = {0};
            CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
            CHECK(send(pair[0], "abc", 3, 0) == 3 && recv(pair[1], text, 3, 0) == 3 && !strcmp(text, "abc"));
            _exit(3);
        }
        expect_exit(child, 3);
    }
    return NULL;
}

static void fork_from_thread(void) {
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, forks, NULL) && !pthread_join(thread, NULL));
}

// A signal handler jumps out of calls, wherever it finds them.

static sigjmp_buf again;
static volatile int jumps;

static void jump(int signal) {
    (void)signal;
    jumps++;
    siglongjmp(again, 1);
}

static void jump_out(void) {
    struct itimerval often = {{0, 100}, {0, 100}}, never = {{0, 0}, {0, 0}};
    int pair[2];
    CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    signal(SIGALRM, jump);
    sigsetjmp(again, 1);
    if (jumps == 0) setitimer(ITIMER_REAL, &often, NULL);
    while (jumps < 3000) {
        CHECK(write(pair[0], bytes, 64) == 64);
        while (recv(pair[1], bytes, sizeof bytes, MSG_DONTWAIT) > 0) {}
    }
    setitimer(ITIMER_REAL, &never, NULL);
    signal(SIGALRM, SIG_IGN);
    CHECK(write(pair[0], bytes, 64) == 64);
}

// Whether this process has pages of a patched text.
static int is_seen(void) {
    char line[1024];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps)) found |= strstr(line, ".text\n") && strstr(line, "r-xp");
    if (maps) fclose(maps);
    return found;
}

static void seen(void) { CHECK(is_seen()); }

static void exec_scrubbed(void) {
    char *nothing[] = {"LD_PRELOAD=", "PATH=/bin", NULL}, *arguments[] = {"hazards", "seen", NULL};
    CHECK(is_seen());
    pid_t child = fork();
    if (child == 0) {
        execve("/proc/self/exe", arguments, nothing);
        _exit(9);
    }
    expect_exit(child, 0);
    child = vfork();
    if (child == 0) {
        execve("/proc/self/exe", arguments, NULL);
        _exit(9);
    }
    expect_exit(child, 0);
    char *absent[] = {"absent", NULL};
    CHECK(execve("/nonexistent", absent, nothing) == -1 && errno == ENOENT);
}

// As systemd's MemoryDenyWriteExecute: mprotect(PROT_EXEC) and mmap(PROT_WRITE | PROT_EXEC) are refused.
static void deny_write_execute(void) {
#define ARGUMENT(index) (offsetof(struct seccomp_data, args) + 8 * (index))
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, ARGUMENT(2)),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 0, 4),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 0, 2),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, ARGUMENT(2)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PROT_READ | PROT_WRITE | PROT_EXEC, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    char *arguments[] = {"hazards", "seen", NULL};
    CHECK(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
    void *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED && mprotect(page, 4096, PROT_READ | PROT_EXEC) == -1);
    execve("/proc/self/exe", arguments, environ);
    CHECK(!"execve");
}

// Wrong arguments: the errors are the kernel's.
static void errors(void) {
    int flags = fcntl(0, F_GETFL);
    CHECK(flags >= 0);
    CHECK(read(999, bytes, 1) == -1 && errno == EBADF);
    CHECK(write(-1, bytes, 1) == -1 && errno == EBADF);
    CHECK(close(70000) == -1 && errno == EBADF);
    CHECK(dup2(999, 5) == -1 && errno == EBADF);
    CHECK(syscall(SYS_sendmsg, 0, 8, 0) == -1);
    CHECK(!pipe(empty_pipe) && read(empty_pipe[0], bytes, 0) == 0);
    void *volatile nowhere = (void *)8;
    CHECK(write(empty_pipe[1], nowhere, 1) == -1 && errno == EFAULT);
    CHECK(dup2(empty_pipe[0], 300) == 300 && dup(300) >= 0);
    CHECK(!close(300) && write(empty_pipe[1], "x", 1) == 1 && read(empty_pipe[0], bytes, 9) == 1);
}

int main(int count, char **arguments) {
    struct { const char *name; void (*run)(void); } cases[] = {{"cancel", cancel}, {"vforks", vforks},
        {"fork_from_thread", fork_from_thread}, {"jumps", jump_out}, {"seen", seen}, {"exec_scrubbed", exec_scrubbed},
        {"deny_write_execute", deny_write_execute}, {"errors", errors}};
    setvbuf(stdout, NULL, _IONBF, 0);
    for (size_t index = 0; count > 1 && index < sizeof cases / sizeof *cases; index++) {
        if (!strcmp(cases[index].name, arguments[1])) {
            cases[index].run();
            printf("ok\n");
            return 0;
        }
    }
    return 2;
}
