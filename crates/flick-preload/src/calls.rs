//! The hooks: a decision before a call is made, and its accounts afterwards.
//! Promises: a call is passed on or made once, with the program's arguments; a hook that runs in a child by `vfork`
//! writes nothing, and one in a forked process begins with a table of its own.
//! Refuses: system calls of its own where a seccomp filter was installed.

mod control;

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::limits::{FDS_MAX, MESSAGES_MAX};
use crate::numbers as nr;
use crate::raw::{set_vfork_parent, vfork_parent};
use crate::state::{File, FileRef, Kind, NewFile, ProcessTable, Seen, flag, kept, reason};
use crate::sys::{self, ProgramMemory};
use crate::threads::{self, ThreadWait};
use crate::{exec, moving, registrations, verify, wait, wake};
use control::{control, has_control};

/// A system call, as the entry has stored its registers.
#[derive(Debug)]
#[repr(C)]
pub struct Call {
    /// The file that is counted, from the hook before the call to the one after it. 0: none.
    context: u64,
    /// The result, once the call is made.
    pub result: i64,
    r9: u64,
    r8: u64,
    r10: u64,
    rdx: u64,
    rsi: u64,
    rdi: u64,
    number: u64,
    tail: u64,
}

impl Call {
    /// The number.
    pub fn number(&self) -> u32 {
        self.number as u32
    }

    /// This thread counts as one in the kernel, until the hook after the call.
    pub fn set_counted(&mut self) {
        self.context |= COUNTED;
    }

    /// The file that is counted.
    fn file(&self) -> Option<FileRef> {
        let word = self.context & !COUNTED;
        (word != 0).then(|| FileRef::from_word(word))
    }

    /// The descriptors of a call that moves bytes between two.
    fn two_fds(&self) -> [u64; 2] {
        [self.rdi, if self.number() == nr::SPLICE { self.rdx } else { self.rsi }]
    }

    /// The arguments.
    pub fn arguments(&self) -> [u64; 6] {
        [self.rdi, self.rsi, self.rdx, self.r10, self.r8, self.r9]
    }
}

/// Bit of a call's context, in the half with the slot: the thread is counted in the file.
const COUNTED: u64 = 1 << 31;

/// Decision on a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum HookDecision {
    /// libc's own instruction makes it.
    Pass = 0,
    /// The entry makes it, and the hook after it counts.
    Count = 1,
    /// The hook has made it; its result is in the call.
    Done = 2,
}

/// The process that a hook runs in.
enum Process {
    /// One with a state.
    Followed(&'static ProcessTable),
    /// A child by `vfork`, which has the memory of its parent: nothing may be written.
    Vforked,
    /// One without a state.
    Plain,
}

/// Decides on a call.
pub fn before(call: &mut Call, memory: ProgramMemory) -> HookDecision {
    call.context = 0;
    let number = call.number();
    match process(number) {
        Process::Plain => HookDecision::Pass,
        Process::Vforked => exec::complete(call, memory, None),
        Process::Followed(state) if matches!(number, nr::EXECVE | nr::EXECVEAT) => {
            threads::forking(state);
            moving::leave_all(state);
            exec::complete(call, memory, Some(state))
        }
        Process::Followed(state) if has_filter(state) => HookDecision::Pass,
        Process::Followed(state) => decide(state, call, memory),
    }
}

/// Whether a seccomp filter may refuse the library's calls.
pub fn has_filter(state: &ProcessTable) -> bool {
    state.not_followed.load(Relaxed) & reason::SECCOMP != 0
}

/// The process that makes a call.
fn process(number: u32) -> Process {
    let Some(state) = sys::state() else { return Process::Plain };
    let parent = vfork_parent();
    if parent != 0 {
        if parent != sys::thread_id() {
            return Process::Vforked;
        }
        set_vfork_parent(0);
    }
    let Some(word) = sys::fork_word() else { return Process::Plain };
    match word.load(Acquire) {
        1 => {
            threads::has_forked(state);
            Process::Followed(state)
        }
        // A forked process that ends at once needs no table.
        0 if number != nr::EXIT_GROUP && !has_filter(state) => forked(state, word),
        _ => Process::Plain,
    }
}

/// Begins the table of a forked process, in its first call.
#[cold]
#[inline(never)]
fn forked(state: &ProcessTable, word: &AtomicU32) -> Process {
    // A signal handler that interrupts what follows finds 2, and is not followed.
    if word.compare_exchange(0, 2, AcqRel, Relaxed).is_err() {
        return Process::Plain;
    }
    moving::forked();
    let Some(own) = sys::create_state() else { return Process::Plain };
    for (first, _) in state.populated_chunks() {
        sys::populate_chunk(own, first);
    }
    own.inherit(state);
    own.make_visible();
    sys::publish_state(own);
    word.store(1, Release);
    Process::Followed(own)
}

fn decide(state: &'static ProcessTable, call: &mut Call, memory: ProgramMemory) -> HookDecision {
    match call.number() {
        nr::READ | nr::READV | nr::WRITE | nr::WRITEV | nr::RECVFROM | nr::SENDTO => {
            match followed(state, call.rdi) {
                Some(file) => transfer(state, file, call, memory),
                None => HookDecision::Pass,
            }
        }
        nr::PREADV2 | nr::RECVMMSG | nr::PWRITEV2 | nr::SENDMMSG | nr::VMSPLICE => {
            let is_passing = call.number() == nr::SENDMMSG;
            if is_passing && moving::has_moved() {
                moving::leave_all(state);
            }
            let Some(file) = followed(state, call.rdi) else {
                // Also a socket that is not followed may pass descriptors.
                return if is_passing { HookDecision::Count } else { HookDecision::Pass };
            };
            call.context = file.into_word();
            if uses_otherwise(state, file, call.number()) {
                call.set_counted();
            }
            HookDecision::Count
        }
        // Also a socket that is not followed may pass descriptors.
        nr::SENDMSG | nr::RECVMSG => {
            let file = followed(state, call.rdi);
            if call.number() == nr::SENDMSG
                && moving::has_moved()
                && (has_slot(state, file) || has_control(call.rsi, memory))
            {
                control(state, call.rsi, memory, passing);
            }
            match file {
                Some(file) => transfer(state, file, call, memory),
                None => HookDecision::Count,
            }
        }
        nr::SPLICE | nr::TEE | nr::SENDFILE => {
            let files = call.two_fds().map(|fd| followed(state, fd));
            for file in files.iter().flatten() {
                if uses_otherwise(state, *file, call.number()) {
                    call.set_counted();
                }
            }
            if files.iter().any(Option::is_some) { HookDecision::Count } else { HookDecision::Pass }
        }
        _ => decide_on_descriptors(state, call, memory),
    }
}

/// Whether a file moves, so that its messages are read in any case.
fn has_slot(state: &ProcessTable, file: Option<FileRef>) -> bool {
    file.and_then(|file| state.file(file)).is_some_and(|file| file.moved.load(Relaxed) != 0)
}

/// A file is read or written by a call that is not followed. Returns whether that is counted until the call has ended.
fn uses_otherwise(state: &ProcessTable, found: FileRef, number: u32) -> bool {
    state.file(found).is_some_and(|file| moving::use_otherwise(state, file, number))
}

/// Makes a call through the ring of a file, if it has one.
fn transfer(
    state: &'static ProcessTable,
    file: FileRef,
    call: &mut Call,
    memory: ProgramMemory,
) -> HookDecision {
    moving::transfer(state, file, call, memory).unwrap_or_else(|| {
        call.context |= file.into_word();
        HookDecision::Count
    })
}

/// Decides on a call that makes, closes or watches descriptors, or makes a process.
fn decide_on_descriptors(
    state: &'static ProcessTable,
    call: &mut Call,
    memory: ProgramMemory,
) -> HookDecision {
    match call.number() {
        nr::SOCKET | nr::SOCKETPAIR | nr::PIPE | nr::PIPE2 => HookDecision::Count,
        nr::EPOLL_CREATE | nr::EPOLL_CREATE1 if state.moves.load(Relaxed) != 0 => HookDecision::Count,
        nr::DUP => {
            registrations::duplicating(state, call.rdi);
            HookDecision::Count
        }
        nr::DUP2 | nr::DUP3 => {
            registrations::duplicating(state, call.rdi);
            if call.rdi as u32 != call.rsi as u32 {
                replacing(state, u64::from(call.rsi as u32));
            }
            HookDecision::Count
        }
        nr::ACCEPT | nr::ACCEPT4 | nr::CONNECT | nr::LISTEN => {
            followed(state, call.rdi);
            if call.number() == nr::CONNECT {
                // It may end the connection of the socket (`AF_UNSPEC`); the next one has another peer.
                leave(state, call.rdi);
            }
            HookDecision::Count
        }
        nr::SHUTDOWN => {
            leave(state, call.rdi);
            HookDecision::Pass
        }
        nr::SETSOCKOPT => {
            if !nr::HARMLESS_OPTIONS.contains(&(call.rsi, call.rdx)) {
                leave(state, call.rdi);
            }
            HookDecision::Pass
        }
        nr::FCNTL if nr::DUPLICATING.contains(&call.rsi) => {
            registrations::duplicating(state, call.rdi);
            HookDecision::Count
        }
        nr::CLOSE => {
            closing_numbers(state, u64::from(call.rdi as u32), u64::from(call.rdi as u32));
            closing(state, call.rdi);
            HookDecision::Pass
        }
        // One with other flags fails.
        nr::CLOSE_RANGE if call.rdx as u32 & !nr::CLOSE_RANGE_UNSHARE == 0 => {
            close_range(state, call.rdi, call.rsi);
            HookDecision::Pass
        }
        nr::EPOLL_CTL if state.moves.load(Relaxed) != 0 => registering(state, call, memory),
        number if nr::WAITS.contains(&number) => waiting(state, call, memory),
        nr::IOCTL | nr::FCNTL => {
            if moving::has_moved() {
                set(state, call, memory);
            }
            HookDecision::Pass
        }
        nr::CLONE => forking(state, call.rdi),
        nr::CLONE3 => forking(state, memory.word(call.rdi)),
        nr::FORK => forking(state, 0),
        nr::VFORK => forking(state, nr::CLONE_VM | nr::CLONE_VFORK),
        _ => ending_or_hiding(state, call),
    }
}

/// Decides on an `epoll_ctl`.
fn registering(state: &ProcessTable, call: &mut Call, memory: ProgramMemory) -> HookDecision {
    if registrations::keep(state, call, memory) {
        call.result = 0;
        return HookDecision::Done;
    }
    followed(state, call.rdx);
    HookDecision::Count
}

/// Decides on a call that waits. Other threads know of it before it looks at rings.
fn waiting(state: &'static ProcessTable, call: &mut Call, memory: ProgramMemory) -> HookDecision {
    if nr::EPOLL_WAITS.contains(&call.number()) {
        registrations::waiting(call, memory);
    }
    if !threads::are_several(state) {
        let decision = if moving::has_moved() { wait::before(state, call, memory) } else { None };
        return decision.unwrap_or(HookDecision::Pass);
    }
    let wait = wait::of_call(call, memory, state.fds_end(), |fd| {
        let file = followed(state, fd).and_then(|file| state.file(file))?;
        (file.flags.load(Relaxed) & flag::LISTENING == 0).then(|| threads::polled_bit(file))
    });
    if wait.begin() {
        moving::keep_all_in_kernel(state);
    }
    if moving::has_moved()
        && let Some(decision) = wait::before(state, call, memory)
    {
        wait.end();
        return decision;
    }
    call.context = wait.into_word();
    HookDecision::Count
}

/// Returns the file of a descriptor to the kernel.
fn leave(state: &ProcessTable, fd: u64) {
    if moving::has_moved()
        && let Some(file) = followed(state, fd)
    {
        moving::leave_file(state, file);
    }
}

/// A descriptor is about to be passed to another process.
fn passing(state: &ProcessTable, fd: u64) {
    registrations::duplicating(state, fd);
    leave(state, fd);
}

/// Follows whether calls on a file wait. Returns a file to the kernel of which another setting is changed or read.
#[cold]
fn set(state: &ProcessTable, call: &Call, memory: ProgramMemory) {
    let is_nonblocking = match call.number() {
        nr::IOCTL if nr::HARMLESS_IOCTLS.contains(&call.rsi) => return,
        nr::FCNTL if nr::HARMLESS_FCNTLS.contains(&call.rsi) => return,
        nr::IOCTL if call.rsi == nr::FIONBIO && memory.is_readable(call.rdx, 4) => memory.half(call.rdx) != 0,
        nr::FCNTL if call.rsi == nr::SET_FLAGS && call.rdx & !nr::PLAIN_FLAGS == 0 => {
            call.rdx & nr::NONBLOCK != 0
        }
        _ => return leave(state, call.rdi),
    };
    if let Some(file) = followed(state, call.rdi) {
        moving::set_nonblocking(state, file, is_nonblocking);
    }
}

/// Calls after which this process is followed no more, or is gone.
fn ending_or_hiding(state: &ProcessTable, call: &Call) -> HookDecision {
    let why = match call.number() {
        nr::IO_URING_SETUP => reason::IO_URING,
        nr::SECCOMP => reason::SECCOMP,
        nr::PRCTL if call.rdi == nr::PR_SET_SECCOMP => reason::SECCOMP,
        nr::UNSHARE if call.rdi & nr::CLONE_FILES != 0 => reason::OWN_TABLES,
        nr::EXIT_GROUP => {
            moving::closing_all(state);
            verify::at_exit(state);
            0
        }
        _ => 0,
    };
    if why != 0 {
        // No thread takes an offer between the return and the mark.
        moving::stay(state, kept::LEFT);
        state.not_followed.fetch_or(why, Relaxed);
    }
    let changes_credentials = matches!(
        call.number(),
        nr::SETUID | nr::SETREUID | nr::SETRESUID | nr::SETFSUID | nr::CHROOT | nr::SETNS | nr::UNSHARE
    ) && !(call.number() == nr::SETUID && call.rdi as u32 == sys::effective_user());
    // The descriptors of such a process cannot be had.
    let is_hidden = call.number() == nr::PRCTL && call.rdi == nr::PR_SET_DUMPABLE && call.rsi != 1;
    if changes_credentials || is_hidden {
        moving::stay(state, kept::CREDENTIALS);
    }
    HookDecision::Pass
}

/// A process or thread is made.
fn forking(state: &ProcessTable, flags: u64) -> HookDecision {
    if flags & nr::CLONE_THREAD != 0 {
        state.threads.store(1, Relaxed);
        registrations::flush(state);
        return HookDecision::Pass;
    }
    threads::forking(state);
    moving::leave_all(state);
    if state.moves.load(Relaxed) != 0 {
        registrations::forking(state, flags & nr::CLONE_VM == 0);
    }
    if flags & (nr::CLONE_FILES | nr::CLONE_VM) == nr::CLONE_FILES {
        // The new process would close them as its own.
        wake::close_all();
    }
    if flags & nr::CLONE_FILES == 0 {
        state.fork_epoch.fetch_add(1, Relaxed);
    }
    if flags & nr::CLONE_VFORK != 0 {
        set_vfork_parent(sys::thread_id());
    } else if flags & nr::CLONE_VM != 0 && flags & nr::CLONE_FILES == 0 {
        state.not_followed.fetch_or(reason::OWN_TABLES, Relaxed);
    }
    HookDecision::Pass
}

/// The file of a descriptor, if it is followed. A descriptor that is seen first is asked about.
fn followed(state: &ProcessTable, fd: u64) -> Option<FileRef> {
    let number = usize::try_from(fd as u32).ok().filter(|_| (fd as i32) >= 0)?;
    match state.look(number) {
        Seen::File(file) => Some(file),
        Seen::Other => None,
        Seen::Unknown => adopt(state, number),
    }
}

/// Enters a descriptor that was opened unseen.
fn adopt(state: &ProcessTable, fd: usize) -> Option<FileRef> {
    let facts = sys::file_facts(fd as u64)?;
    let found = match facts.mode & 0o170_000 {
        0o140_000 => stream_socket(fd as u64),
        0o010_000 => {
            let kind = if sys::is_writable(fd as u64) { Kind::PipeWrite } else { Kind::PipeRead };
            Some((kind, flag::ADOPTED))
        }
        _ => None,
    };
    let Some((kind, flags)) = found else {
        enter_other(state, fd);
        return None;
    };
    let is_socket = matches!(kind, Kind::Tcp | Kind::Unix);
    let id = match is_socket {
        true if moving::has_moved() => (sys::socket::cookie(fd as u64).unwrap_or_default(), 0),
        true => (0, 0),
        false => facts.id,
    };
    moving::leave_same(state, id);
    let counts = match sys::tcp_facts(fd as u64).filter(|_| kind == Kind::Tcp) {
        Some(tcp) => (tcp.sent, tcp.received.saturating_sub(verify::unread(fd as u64, tcp.state))),
        None => (0, 0),
    };
    enter(state, fd, &NewFile { kind, flags, id, counts })
}

/// The kind of a stream socket, and its flags.
fn stream_socket(fd: u64) -> Option<(Kind, u32)> {
    const SO_TYPE: u64 = 3;
    const SO_ACCEPTCONN: u64 = 30;
    const SO_PROTOCOL: u64 = 38;
    const SO_DOMAIN: u64 = 39;
    let option = |name| sys::socket_option(fd, name);
    let kind = kind_of(option(SO_DOMAIN)?, option(SO_TYPE)?, option(SO_PROTOCOL)?)?;
    let state = if option(SO_ACCEPTCONN)? == 1 { flag::LISTENING } else { flag::CONNECTED };
    Some((kind, flag::ADOPTED | state))
}

fn kind_of(domain: u64, kind: u64, protocol: u64) -> Option<Kind> {
    match (domain, kind & 0xf) {
        (nr::AF_UNIX, nr::SOCK_STREAM) => Some(Kind::Unix),
        (domain, nr::SOCK_STREAM) if nr::AF_INETS.contains(&domain) => {
            [0, nr::IPPROTO_TCP].contains(&protocol).then_some(Kind::Tcp)
        }
        _ => None,
    }
}

/// Whether the table has memory for a descriptor.
fn has_memory(state: &ProcessTable, fd: usize) -> bool {
    let has = fd < FDS_MAX && state.is_populated(fd) || sys::populate_chunk(state, fd);
    if !has {
        state.not_entered.fetch_add(1, Relaxed);
    }
    has
}

fn enter(state: &ProcessTable, fd: usize, new: &NewFile) -> Option<FileRef> {
    if !has_memory(state, fd) {
        return None;
    }
    let file = state.enter(fd, new);
    if file.is_none() {
        state.forget(fd);
        state.not_entered.fetch_add(1, Relaxed);
    }
    file
}

fn enter_other(state: &ProcessTable, fd: usize) {
    if has_memory(state, fd) {
        state.enter_other(fd);
    }
}

/// Descriptors of these numbers are closed or replaced.
fn closing_numbers(state: &ProcessTable, first: u64, last: u64) {
    moving::closing_numbers(first, last);
    registrations::closing(state, first, last);
}

/// A descriptor is about to be replaced, if the kernel does not refuse that: it stays known until then.
fn replacing(state: &ProcessTable, fd: u64) {
    if moving::has_moved()
        && let Some(file) = followed(state, fd).and_then(|file| state.file(file))
    {
        moving::replacing(state, file, fd);
    }
    moving::closing_numbers(fd, fd);
    registrations::replacing(state, fd);
}

/// A descriptor was replaced.
fn replaced(state: &ProcessTable, fd: u64) {
    if let Seen::File(found) = state.look(fd as usize)
        && let Some(file) = state.file(found)
    {
        moving::replaced(state, file);
    }
    registrations::closing(state, fd, fd);
}

/// A descriptor is closed.
fn closing(state: &ProcessTable, fd: u64) {
    let Ok(number) = usize::try_from(fd as u32) else { return };
    let found = if let Seen::File(file) = state.look(number) { state.file(file) } else { None };
    if let Some(file) = found {
        moving::closing(state, file, u64::from(fd as u32));
    }
    if let Some(file) = found
        && state.verify.load(Relaxed) != 0
        && file.refs.load(Relaxed) == 1
    {
        verify::at_close(state, file, fd);
    }
    state.forget(number);
}

fn close_range(state: &ProcessTable, first: u64, last: u64) {
    closing_numbers(state, u64::from(first as u32), u64::from(last as u32));
    let (first, last) = (u64::from(first as u32), u64::from(last as u32).min(FDS_MAX as u64 - 1));
    for (chunk, _) in state.populated_chunks() {
        let end = (chunk + crate::limits::CHUNK_FDS) as u64;
        for fd in first.max(chunk as u64)..(last + 1).min(end) {
            closing(state, fd);
        }
    }
}

/// `ECONNRESET` as a result.
const CONNECTION_RESET: i64 = -104;

/// Ends a call that was made.
pub fn after(call: &mut Call, memory: ProgramMemory) {
    let Some(state) = sys::state() else { return };
    if nr::WAITS.contains(&call.number()) {
        return ThreadWait::from_word(call.context).end();
    }
    count(state, call, memory);
    if call.context & COUNTED != 0 {
        uncount(state, call);
    }
}

/// A call that was counted has ended.
fn uncount(state: &ProcessTable, call: &Call) {
    let number = call.number();
    if let Some(file) = call.file() {
        if let Some(file) = state.file(file) {
            moving::uncount(state, file, number);
        }
        return;
    }
    for fd in call.two_fds() {
        if let Seen::File(found) = state.look(fd as u32 as usize)
            && let Some(file) = state.file(found)
        {
            moving::uncount(state, file, number);
        }
    }
}

/// The call of this thread does not come to its end: the thread is cancelled in it.
pub fn abandoned() {
    if let Some(state) = sys::state() {
        moving::abandoned(state);
    }
}

/// Counts a call that was made.
fn count(state: &ProcessTable, call: &mut Call, memory: ProgramMemory) {
    let (number, result) = (call.number(), call.result);
    if number == nr::CONNECT && nr::IN_PROGRESS.contains(&result) {
        mark(state, call.rdi, flag::CONNECTED);
    }
    let Ok(count) = u64::try_from(result) else { return };
    if count == 0
        && matches!(number, nr::READ | nr::READV | nr::RECVFROM | nr::RECVMSG)
        && let Some(file) = file_of(state, call)
        && moving::was_reset(state, file, call.rdi)
    {
        call.result = CONNECTION_RESET;
        return;
    }
    match number {
        nr::READ | nr::READV | nr::PREADV2 => received(state, call, count),
        nr::WRITE | nr::WRITEV | nr::PWRITEV2 => sent(state, call, count),
        nr::RECVFROM => received_message(state, call, call.r10, count),
        nr::SENDTO => sent_message(state, call, call.r10, count),
        nr::RECVMSG => {
            control(state, call.rsi, memory, forget_passed);
            received_message(state, call, call.rdx, count);
        }
        nr::SENDMSG => {
            control(state, call.rsi, memory, mark_passed);
            sent_message(state, call, call.rdx, count);
        }
        nr::RECVMMSG | nr::SENDMMSG => messages(state, call, memory, count),
        nr::VMSPLICE | nr::TEE | nr::SPLICE | nr::SENDFILE => spliced(state, call, count),
        nr::EPOLL_CTL => registrations::control(state, call, memory),
        _ => opened(state, call, memory, count),
    }
}

fn file_of<'a>(state: &'a ProcessTable, call: &Call) -> Option<&'a File> {
    call.file().and_then(|file| state.file(file))
}

fn received(state: &ProcessTable, call: &Call, count: u64) {
    if let Some(file) = file_of(state, call) {
        moving::count_call(state, file, call, count);
        file.received.fetch_add(count, Relaxed);
    }
}

fn sent(state: &ProcessTable, call: &Call, count: u64) {
    if let Some(file) = file_of(state, call) {
        moving::count_call(state, file, call, count);
        file.sent.fetch_add(count, Relaxed);
    }
}

fn received_message(state: &ProcessTable, call: &Call, flags: u64, count: u64) {
    if flags & nr::MSG_OOB != 0 {
        mark(state, call.rdi, flag::OUT_OF_BAND);
    }
    if flags & (nr::MSG_PEEK | nr::MSG_ERRQUEUE | nr::MSG_OOB) == 0 {
        received(state, call, count);
    }
}

fn sent_message(state: &ProcessTable, call: &Call, flags: u64, count: u64) {
    if flags & nr::MSG_OOB != 0 {
        mark(state, call.rdi, flag::OUT_OF_BAND);
    }
    sent(state, call, count);
}

/// Bytes of a `struct mmsghdr`, and the offset of its count.
const MESSAGE_BYTES: u64 = 64;
const MESSAGE_COUNT: u64 = 56;

fn messages(state: &ProcessTable, call: &Call, memory: ProgramMemory, count: u64) {
    for index in 0..count.min(MESSAGES_MAX as u64) {
        let header = call.rsi + index * MESSAGE_BYTES;
        let bytes = u64::from(memory.half(header + MESSAGE_COUNT));
        if call.number() == nr::SENDMMSG {
            control(state, header, memory, mark_passed);
            sent_message(state, call, call.r10, bytes);
        } else {
            control(state, header, memory, forget_passed);
            received_message(state, call, call.r10, bytes);
        }
    }
}

fn spliced(state: &ProcessTable, call: &Call, count: u64) {
    let (from, to) = match call.number() {
        nr::SPLICE => (Some(call.rdi), Some(call.rdx)),
        nr::TEE => (None, Some(call.rsi)),
        nr::SENDFILE => (Some(call.rsi), Some(call.rdi)),
        _ => (Some(call.rdi), Some(call.rdi)),
    };
    let file = |fd: Option<u64>| followed(state, fd?).and_then(|file| state.file(file));
    if let Some(file) = file(from)
        && file.kind.load(Relaxed) != Kind::PipeWrite as u32
    {
        file.received.fetch_add(count, Relaxed);
    }
    if let Some(file) = file(to)
        && file.kind.load(Relaxed) != Kind::PipeRead as u32
    {
        file.sent.fetch_add(count, Relaxed);
    }
}

fn mark(state: &ProcessTable, fd: u64, bits: u32) {
    if let Some(file) = followed(state, fd).and_then(|file| state.file(file)) {
        file.flags.fetch_or(bits, Relaxed);
    }
}

fn mark_passed(state: &ProcessTable, fd: u64) {
    registrations::duplicating(state, fd);
    mark(state, fd, flag::SHARED);
}

fn forget_passed(state: &ProcessTable, fd: u64) {
    state.forget(fd as usize);
}

/// Accounts of calls that return descriptors, or change what one is.
fn opened(state: &ProcessTable, call: &Call, memory: ProgramMemory, count: u64) {
    let fd = count as usize;
    match call.number() {
        nr::SOCKET => match kind_of(call.rdi, call.rsi, call.rdx) {
            Some(kind) => open_socket(state, fd, kind, 0),
            None => enter_other(state, fd),
        },
        nr::SOCKETPAIR => {
            let kind = kind_of(call.rdi, call.rsi, call.rdx);
            for fd in [memory.half(call.r10), memory.half(call.r10 + 4)] {
                match kind {
                    Some(kind) => open_socket(state, fd as usize, kind, flag::CONNECTED),
                    None => enter_other(state, fd as usize),
                }
            }
        }
        nr::ACCEPT | nr::ACCEPT4 => {
            let listener = followed(state, call.rdi).and_then(|file| state.file(file));
            match listener.and_then(|file| Kind::of(file.kind.load(Relaxed))) {
                Some(kind) => open_socket(state, fd, kind, flag::CONNECTED),
                None => state.forget(fd),
            }
        }
        nr::PIPE | nr::PIPE2 => {
            let (read, write) = (memory.half(call.rdi) as usize, memory.half(call.rdi + 4) as usize);
            let id = sys::file_facts(read as u64).map_or((0, 0), |facts| facts.id);
            for (fd, kind) in [(read, Kind::PipeRead), (write, Kind::PipeWrite)] {
                enter(state, fd, &NewFile { kind, flags: 0, id, counts: (0, 0) });
            }
        }
        nr::EPOLL_CREATE | nr::EPOLL_CREATE1 => registrations::made(count as u32),
        nr::CONNECT => mark(state, call.rdi, flag::CONNECTED),
        nr::LISTEN => mark(state, call.rdi, flag::LISTENING),
        _ if u64::from(call.rdi as u32) != count => {
            if matches!(call.number(), nr::DUP2 | nr::DUP3) {
                replaced(state, count);
            }
            if has_memory(state, fd) {
                state.duplicate(call.rdi as u32 as usize, fd);
            }
        }
        _ => {}
    }
}

fn open_socket(state: &ProcessTable, fd: usize, kind: Kind, flags: u32) {
    enter(state, fd, &NewFile { kind, flags, id: (0, 0), counts: (0, 0) });
}
