//! Numbers of the system calls that the library sees, on x86-64, and of their options.

/// Declares the numbers, and [`HOOKED`] with all of them.
macro_rules! numbers {
    ($($name:ident = $number:literal),+ $(,)?) => {
        $(
            #[doc = concat!("System call ", stringify!($number), ".")]
            pub const $name: u32 = $number;
        )+
        /// The system calls whose sites lead to the library, and their names.
        pub const HOOKED: &[(u32, &str)] = &[$(($number, stringify!($name))),+];
    };
}

numbers! {
    READ = 0, WRITE = 1, CLOSE = 3, POLL = 7, IOCTL = 16, READV = 19, WRITEV = 20, PIPE = 22, SELECT = 23, DUP = 32, DUP2 = 33, SENDFILE = 40,
    SOCKET = 41, CONNECT = 42, ACCEPT = 43, SENDTO = 44, RECVFROM = 45, SENDMSG = 46, RECVMSG = 47,
    SHUTDOWN = 48, LISTEN = 50, SOCKETPAIR = 53, SETSOCKOPT = 54, CLONE = 56, FORK = 57, VFORK = 58, EXECVE = 59, WAIT4 = 61, FCNTL = 72, SETUID = 105,
    SETREUID = 113, SETRESUID = 117, SETFSUID = 122, PRCTL = 157, CHROOT = 161, EPOLL_CREATE = 213, EXIT_GROUP = 231, EPOLL_WAIT = 232, EPOLL_CTL = 233, WAITID = 247, PSELECT6 = 270, PPOLL = 271, EPOLL_PWAIT = 281,
    UNSHARE = 272, SPLICE = 275, TEE = 276, VMSPLICE = 278, ACCEPT4 = 288, EPOLL_CREATE1 = 291, DUP3 = 292, PIPE2 = 293, RECVMMSG = 299,
    SENDMMSG = 307, SETNS = 308, SECCOMP = 317, EXECVEAT = 322, PREADV2 = 327, PWRITEV2 = 328, IO_URING_SETUP = 425, CLONE3 = 435,
    CLOSE_RANGE = 436, EPOLL_PWAIT2 = 441,
}

/// The calls that wait for several files.
pub const WAITS: [u32; 7] = [POLL, PPOLL, SELECT, PSELECT6, EPOLL_WAIT, EPOLL_PWAIT, EPOLL_PWAIT2];

/// Those that wait for the files of an epoll instance.
pub const EPOLL_WAITS: [u32; 3] = [EPOLL_WAIT, EPOLL_PWAIT, EPOLL_PWAIT2];

/// `CLONE_VM`: the new process has the memory of this one.
pub const CLONE_VM: u64 = 0x100;
/// `CLONE_FILES`: the new process has the descriptors of this one.
pub const CLONE_FILES: u64 = 0x400;
/// `CLONE_VFORK`: the caller waits for the new process.
pub const CLONE_VFORK: u64 = 0x4000;

/// `CLONE_THREAD`: a thread of this process is made.
pub const CLONE_THREAD: u64 = 0x1_0000;

/// `F_DUPFD` and `F_DUPFD_CLOEXEC` of `fcntl`.
pub const DUPLICATING: [u64; 2] = [0, 1030];
/// Commands of `fcntl` that change nothing about a pipe: `F_DUPFD` to `F_GETFL`, `F_GETOWN`, `F_GETSIG`,
/// `F_DUPFD_CLOEXEC`, `F_GETPIPE_SZ`.
pub const HARMLESS_FCNTLS: [u64; 8] = [0, 1, 2, 3, 9, 11, 1030, 1032];
/// Commands of `ioctl` that change nothing about a pipe: `TCGETS`, `FIONCLEX`, `FIOCLEX`.
pub const HARMLESS_IOCTLS: [u64; 3] = [0x5401, 0x5450, 0x5451];
/// Options of `setsockopt` that change nothing about how bytes are read and written, by level: `SO_REUSEADDR`,
/// `SO_KEEPALIVE`, `SO_LINGER`; `TCP_NODELAY`, `TCP_KEEPIDLE`, `TCP_KEEPINTVL`, `TCP_KEEPCNT`, `TCP_QUICKACK`,
/// `TCP_USER_TIMEOUT`.
pub const HARMLESS_OPTIONS: [(u64, u64); 9] =
    [(1, 2), (1, 9), (1, 13), (6, 1), (6, 4), (6, 5), (6, 6), (6, 12), (6, 18)];
/// `PR_SET_DUMPABLE` of `prctl`.
pub const PR_SET_DUMPABLE: u64 = 4;
/// `PR_SET_SECCOMP` of `prctl`.
pub const PR_SET_SECCOMP: u64 = 22;
/// `CLOSE_RANGE_UNSHARE` of `close_range`.
pub const CLOSE_RANGE_UNSHARE: u32 = 2;

/// Flags of sends that a ring can obey: `MSG_NOSIGNAL`, `MSG_MORE`, `MSG_DONTWAIT`.
pub const PLAIN_SENDS: u64 = 0xc040;
/// `MSG_MORE`.
pub const MSG_MORE: u64 = 0x8000;
/// `MSG_DONTWAIT`.
pub const MSG_DONTWAIT: u64 = 0x40;
/// `F_SETFL` of `fcntl`.
pub const SET_FLAGS: u64 = 4;
/// `O_NONBLOCK`.
pub const NONBLOCK: u64 = 0o4000;
/// Flags that `F_SETFL` may have beside: the way of access, which it ignores, and `O_LARGEFILE`.
pub const PLAIN_FLAGS: u64 = 0o104_003;
/// `FIONBIO` of `ioctl`.
pub const FIONBIO: u64 = 0x5421;
/// `MSG_OOB`.
pub const MSG_OOB: u64 = 1;
/// `MSG_PEEK`.
pub const MSG_PEEK: u64 = 2;
/// `MSG_ERRQUEUE`.
pub const MSG_ERRQUEUE: u64 = 0x2000;

/// `AF_UNIX`.
pub const AF_UNIX: u64 = 1;
/// `AF_INET` and `AF_INET6`.
pub const AF_INETS: [u64; 2] = [2, 10];
/// `SOCK_STREAM`.
pub const SOCK_STREAM: u64 = 1;
/// `IPPROTO_TCP`.
pub const IPPROTO_TCP: u64 = 6;

/// `EINPROGRESS`, `EINTR` as results.
pub const IN_PROGRESS: [i64; 2] = [-115, -4];
