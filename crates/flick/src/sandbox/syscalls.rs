//! The system calls that a service may make, enforced by seccomp.
//! Promises: any other call fails with `ENOSYS`, as on an older kernel, so that libraries use their fallback; sockets
//! are of the families `AF_UNIX`, `AF_INET` and `AF_INET6`, or ask the kernel about sockets (sock_diag(7)); no program
//! is started, and no file is mapped to be executed. Applies to every thread.
//! Not here: io_uring, whose operations are not system calls. Landlock restricts its files (`files.rs`), and it starts
//! no programs.
//! Source: seccomp(2); the calls that the C library of Debian 12 and 13 makes.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

use super::Enforcement;

/// Bytes, files, memory, time, threads, signals.
const GENERAL: &[c_long] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_openat,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_lseek,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_mkdirat,
    libc::SYS_unlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_umask,
    libc::SYS_fcntl,
    libc::SYS_flock,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_pipe2,
    libc::SYS_ioctl,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_membarrier,
    libc::SYS_mincore,
    libc::SYS_futex,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_set_robust_list,
    libc::SYS_get_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_rseq,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_tgkill,
    libc::SYS_kill,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_getpriority,
    libc::SYS_setpriority,
    libc::SYS_getcpu,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
    libc::SYS_getrandom,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_prlimit64,
    libc::SYS_getrusage,
    libc::SYS_sysinfo,
    libc::SYS_uname,
    libc::SYS_prctl,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    libc::SYS_memfd_create,
];

/// Network, events and timers.
const NETWORK: &[c_long] = &[
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_connect,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_setsockopt,
    libc::SYS_getsockopt,
    libc::SYS_sendto,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_recvmmsg,
    libc::SYS_shutdown,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    libc::SYS_timerfd_gettime,
    libc::SYS_inotify_init1,
    libc::SYS_inotify_add_watch,
    libc::SYS_inotify_rm_watch,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
];

/// Older calls, which newer architectures do not have.
#[cfg(target_arch = "x86_64")]
const OLD: &[c_long] = &[
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_mkdir,
    libc::SYS_unlink,
    libc::SYS_rmdir,
    libc::SYS_rename,
    libc::SYS_chmod,
    libc::SYS_dup2,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_epoll_wait,
    libc::SYS_time,
    libc::SYS_arch_prctl,
    libc::SYS_getrlimit,
];
#[cfg(not(target_arch = "x86_64"))]
const OLD: &[c_long] = &[];

/// Socket families.
const FAMILIES: [libc::c_int; 3] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6];

/// Restricts every thread of this process.
pub fn restrict() -> Enforcement {
    match filter(&[]).and_then(|program| seccompiler::apply_filter_all_threads(&program)) {
        Ok(()) => Enforcement::Full,
        Err(error) => {
            tracing::debug!(%error, "cannot restrict system calls");
            Enforcement::Unavailable
        }
    }
}

/// The filter, with these calls allowed as well.
pub(super) fn filter(also: &[c_long]) -> Result<BpfProgram, seccompiler::Error> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for call in [GENERAL, NETWORK, OLD, also].into_iter().flatten() {
        rules.insert(*call, Vec::new());
    }
    for call in [libc::SYS_socket, libc::SYS_socketpair] {
        let is = |argument: u8, value: libc::c_int| {
            SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value as u64)
        };
        let families = FAMILIES.into_iter().map(|family| SeccompRule::new(vec![is(0, family)?]));
        let diag = [is(0, libc::AF_NETLINK), is(2, libc::NETLINK_SOCK_DIAG)];
        let diag = diag.into_iter().collect::<Result<Vec<_>, _>>().and_then(SeccompRule::new);
        let allowed = families.chain([diag]).collect::<Result<Vec<_>, _>>();
        rules.insert(call, allowed.map_err(seccompiler::Error::Backend)?);
    }
    rules.insert(libc::SYS_mmap, mappings().map_err(seccompiler::Error::Backend)?);
    let arch = std::env::consts::ARCH.try_into().map_err(seccompiler::Error::Backend)?;
    let refused = SeccompAction::Errno(libc::ENOSYS as u32);
    let filter = SeccompFilter::new(rules, refused, SeccompAction::Allow, arch);
    filter.and_then(TryInto::try_into).map_err(seccompiler::Error::Backend)
}

/// Mappings without code, and those of no file, in which compiled programs run. Libraries are mapped by now.
fn mappings() -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let has = |argument: u8, mask: libc::c_int, value: libc::c_int| {
        let operator = SeccompCmpOp::MaskedEq(mask as u64);
        SeccompRule::new(vec![SeccompCondition::new(
            argument,
            SeccompCmpArgLen::Dword,
            operator,
            value as u64,
        )?])
    };
    Ok(vec![has(2, libc::PROT_EXEC, 0)?, has(3, libc::MAP_ANONYMOUS, libc::MAP_ANONYMOUS)?])
}
