//! Servers as child processes: started on a chosen core, awaited, measured, ended by id.
//!
//! Promises: a child is killed and reaped when its `Server` is dropped, also on an error path; no other process is
//! ever signalled.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use flick_shm::client::{ClientAddress, ClientConfig, ClientEvent, ClientSet};
use rustix::event::Timespec;
use rustix::thread::{CpuSet, sched_setaffinity};

/// Longest wait until a started server accepts a connection.
const START_WAIT_MAX: Duration = Duration::from_secs(20);

/// Longest wait until a server ends that was asked to.
const TERM_WAIT_MAX: Duration = Duration::from_secs(3);

/// Pause between two tries to connect.
const START_PAUSE: Duration = Duration::from_millis(5);

/// Longest wait for what children do.
const CHILDREN_WAIT_MAX: Duration = Duration::from_secs(120);

/// Pause between two looks at children.
const LOOK_PAUSE: Duration = Duration::from_millis(2);

/// Ticks per second in `/proc/PID/stat`: fixed by the kernel's interface to programs, whatever its own clock rate is.
const TICKS_PER_S: u64 = 100;

/// A running child that listens on `addr`.
#[derive(Debug)]
pub(crate) struct Server {
    name: String,
    child: Child,
    pub(crate) addr: ClientAddress,
}

impl Server {
    /// Starts `command` on `core` and waits until it accepts a connection on `addr`.
    ///
    /// Errors: the command does not exist, ends at once, or does not listen within `START_WAIT_MAX`.
    pub(crate) fn start(
        command: Command,
        core: usize,
        home_core: usize,
        addr: impl Into<ClientAddress>,
    ) -> io::Result<Server> {
        Self::start_with_log(command, core, home_core, addr, Stdio::null())
    }

    /// Starts `command` as [`Server::start`] does, with its messages (standard error) written to `log`.
    pub(crate) fn start_with_log(
        mut command: Command,
        core: usize,
        home_core: usize,
        addr: impl Into<ClientAddress>,
        log: impl Into<Stdio>,
    ) -> io::Result<Server> {
        // A child inherits the cores of the thread that starts it, and so do all threads it will ever have.
        pin_this_thread(core)?;
        let started = spawn(&mut command, log.into());
        pin_this_thread(home_core)?;
        Self::await_start(started?, &command, addr.into())
    }

    /// Starts `command` wherever the scheduler puts it, as [`Server::start`] does, and leaves this thread so.
    pub(crate) fn start_anywhere(mut command: Command, addr: impl Into<ClientAddress>) -> io::Result<Server> {
        let mut cores = CpuSet::new();
        (0..CpuSet::MAX_CPU).for_each(|core| cores.set(core));
        sched_setaffinity(None, &cores)?;
        let child = spawn(&mut command, Stdio::null())?;
        Self::await_start(child, &command, addr.into())
    }

    fn await_start(child: Child, command: &Command, addr: ClientAddress) -> io::Result<Server> {
        let mut server = Server { name: name_of(command), child, addr };
        server.await_listening()?;
        Ok(server)
    }

    fn await_listening(&mut self) -> io::Result<()> {
        let deadline = Instant::now() + START_WAIT_MAX;
        while Instant::now() < deadline {
            if accepts(&self.addr) {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait()? {
                return Err(io::Error::other(format!("{} ended at once: {status}", self.name)));
            }
            std::thread::sleep(START_PAUSE);
        }
        Err(io::Error::other(format!("{} does not listen on {}", self.name, self.addr)))
    }

    /// Its address with TCP.
    ///
    /// Errors: it listens elsewhere.
    pub(crate) fn ip(&self) -> io::Result<SocketAddr> {
        match &self.addr {
            ClientAddress::Ip(addr) => Ok(*addr),
            other => Err(io::Error::other(format!("{other} is no address of TCP"))),
        }
    }

    /// Its process number, to pause it with a signal.
    pub(crate) fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.child)
    }

    /// Returns the processor time of the child, user and system time apart.
    pub(crate) fn cpu(&self) -> io::Result<CpuTimes> {
        cpu_of(self.child.id())
    }

    /// Returns the processor time of the child's threads that are alive, to the nanosecond.
    pub(crate) fn cpu_time_of_threads(&self) -> io::Result<Duration> {
        cpu_time_of_threads(self.child.id())
    }

    /// Asks the child to end (`SIGTERM`), so that it ends its own children, and waits for `TERM_WAIT_MAX` at most.
    pub(crate) fn terminate(&mut self) {
        let deadline = Instant::now() + TERM_WAIT_MAX;
        // It may have ended by itself; what does not end is killed when this is dropped.
        let _ = rustix::process::kill_process(self.pid(), rustix::process::Signal::TERM);
        while Instant::now() < deadline && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(START_PAUSE);
        }
    }
}

/// Starts a program without standard input and output.
fn spawn(command: &mut Command, log: Stdio) -> io::Result<Child> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    let started = command.spawn();
    started
        .map_err(|error| io::Error::new(error.kind(), format!("cannot start {}: {error}", name_of(command))))
}

fn name_of(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}

/// Returns the processor time of a process, user and system time apart.
pub(crate) fn cpu_of(pid: u32) -> io::Result<CpuTimes> {
    let (user_ticks, system_ticks) = ticks_of(pid)?;
    Ok(CpuTimes { total: cpu_time_of_threads(pid)?, user_ticks, system_ticks })
}

fn cpu_time_of_threads(pid: u32) -> io::Result<Duration> {
    let mut ns = 0;
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = std::fs::read_to_string(thread?.path().join("schedstat"))?;
        ns += text.split_whitespace().next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(Duration::from_nanos(ns))
}

/// Returns the children of a process.
pub(crate) fn children_of(pid: u32) -> io::Result<Vec<u32>> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
    text.split_whitespace().map(|word| word.parse().map_err(io::Error::other)).collect()
}

/// Returns whether a server accepts a connection at an address.
fn accepts(addr: &ClientAddress) -> bool {
    if let ClientAddress::Ip(addr) = addr {
        return TcpStream::connect(addr).is_ok();
    }
    let connect = || -> io::Result<bool> {
        let mut set = ClientSet::new(&ClientConfig::new(1))?;
        set.connect(0, addr).map_err(io::Error::other)?;
        let mut events = Vec::with_capacity(2);
        let deadline = Instant::now() + START_WAIT_MAX;
        while events.is_empty() && Instant::now() < deadline {
            set.wait(&mut events, Some(Timespec { tv_sec: 1, tv_nsec: 0 }))?;
        }
        Ok(events.first() == Some(&ClientEvent::Connected(0)))
    };
    connect().unwrap_or(false)
}

/// Returns the processor time a process has used, user and system, to a hundredth of a second.
pub(crate) fn cpu_time_of(pid: u32) -> io::Result<Duration> {
    let (user, system) = ticks_of(pid)?;
    Ok(Duration::from_millis((user + system) * 1_000 / TICKS_PER_S))
}

/// Ticks of user and of system time.
fn ticks_of(pid: u32) -> io::Result<(u64, u64)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    parse_cpu_ticks(&stat).ok_or_else(|| io::Error::other(format!("unreadable /proc/{pid}/stat")))
}

/// Processor time since a process started, as the kernel counts it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CpuTimes {
    /// Both, to the nanosecond.
    total: Duration,
    user_ticks: u64,
    system_ticks: u64,
}

/// Processor time of an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CpuInterval {
    pub(crate) user: Duration,
    pub(crate) system: Duration,
}

impl CpuTimes {
    /// The time since `before`: the total is exact, its division into user and system time has the resolution of ticks.
    pub(crate) fn since(&self, before: &CpuTimes) -> CpuInterval {
        let total = self.total.saturating_sub(before.total);
        let user = self.user_ticks.saturating_sub(before.user_ticks) as f64;
        let system = self.system_ticks.saturating_sub(before.system_ticks) as f64;
        let user = total.mul_f64(user / (user + system).max(1.0));
        CpuInterval { user, system: total.saturating_sub(user) }
    }
}

/// Children that end by themselves, and are killed and reaped when this is dropped before.
#[derive(Debug, Default)]
pub(crate) struct Children(Vec<Child>);

impl Children {
    pub(crate) fn start(&mut self, command: &mut Command) -> io::Result<()> {
        self.0.push(command.spawn()?);
        Ok(())
    }

    /// Returns what `look` finds, unless a child fails or the time is up before.
    pub(crate) fn until<T>(&mut self, mut look: impl FnMut() -> io::Result<Option<T>>) -> io::Result<T> {
        let deadline = Instant::now() + CHILDREN_WAIT_MAX;
        loop {
            if let Some(found) = look()? {
                return Ok(found);
            }
            for child in &mut self.0 {
                if child.try_wait()?.is_some_and(|status| !status.success()) {
                    return Err(io::Error::other("a program failed"));
                }
            }
            if Instant::now() > deadline {
                return Err(io::Error::other("a program does not answer"));
            }
            std::thread::sleep(LOOK_PAUSE);
        }
    }

    /// Calls `look` again and again until all have ended.
    pub(crate) fn look_until_ended(&mut self, mut look: impl FnMut() -> io::Result<()>) -> io::Result<()> {
        for child in &mut self.0 {
            while child.try_wait()?.is_none() {
                look()?;
                std::thread::sleep(LOOK_PAUSE);
            }
        }
        Ok(())
    }

    /// Waits until all have ended with success.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        for child in &mut self.0 {
            let status = child.wait()?;
            if !status.success() {
                return Err(io::Error::other(format!("a program ended with {status}")));
            }
        }
        self.0.clear();
        Ok(())
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // Both fail only if the child has ended by itself, and then it only has to be reaped.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Tells a command by its file name and arguments, without the directories of this machine.
pub(crate) fn in_words(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args()).map(|word| {
        let word = Path::new(word);
        let shown = if word.is_absolute() { word.file_name().unwrap_or_default() } else { word.as_os_str() };
        shown.to_string_lossy().into_owned()
    });
    words.collect::<Vec<_>>().join(" ")
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only if the child has ended by itself, and then it only has to be reaped.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Finds user and system ticks: the 14th and 15th word, counted behind the name, which may hold anything.
fn parse_cpu_ticks(stat: &str) -> Option<(u64, u64)> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut words = after_name.split_whitespace().skip(11);
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

/// Binds the calling thread to one core; threads and children it starts from now on inherit it.
pub(crate) fn pin_this_thread(core: usize) -> io::Result<()> {
    let mut cores = CpuSet::new();
    cores.set(core);
    sched_setaffinity(None, &cores).map_err(|errno| {
        io::Error::other(format!("cannot run on core {core}: {errno}; two cores are needed"))
    })
}

/// Gives this process and its later children precedence over other work of the machine, as long as the value lives.
///
/// The kernel groups processes by session and shares the cores between groups, so a nice value alone weighs only within
/// one's own group; the group itself has a second one.
#[derive(Debug)]
pub(crate) struct Boost(());

/// The nice value of this session's group.
const GROUP_NICE: &str = "/proc/self/autogroup";

impl Boost {
    /// Errors: not allowed to raise priorities.
    pub(crate) fn new() -> io::Result<Boost> {
        rustix::process::nice(-19)
            .map_err(|errno| io::Error::other(format!("cannot raise the priority: {errno}")))?;
        if Path::new(GROUP_NICE).exists() {
            std::fs::write(GROUP_NICE, "-19")?;
        }
        Ok(Boost(()))
    }
}

impl Drop for Boost {
    fn drop(&mut self) {
        // The group may outlive this process; if it cannot be put back, it ends with its session.
        let _ = std::fs::write(GROUP_NICE, "0");
    }
}

/// A temporary directory that is removed with its owner.
#[derive(Debug)]
pub(crate) struct ScratchDir(pub(crate) PathBuf);

impl ScratchDir {
    /// Makes a directory of this process for `purpose`.
    pub(crate) fn new(purpose: &str) -> io::Result<ScratchDir> {
        let path = std::env::temp_dir().join(format!("flick-bench-{purpose}-{}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(ScratchDir(path))
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        // A directory that is left behind in the temporary one does no harm.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The root of the repository this program was built from.
pub(crate) fn workspace() -> PathBuf {
    let bench = Path::new(env!("CARGO_MANIFEST_DIR"));
    bench.parent().unwrap_or(bench).to_path_buf()
}

/// Returns a loopback address whose port was free a moment ago.
pub(crate) fn free_addr() -> io::Result<SocketAddr> {
    TcpListener::bind(("127.0.0.1", 0))?.local_addr()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{CpuInterval, CpuTimes, parse_cpu_ticks};

    #[test]
    fn an_interval_is_divided_by_ticks() {
        let times = |ms, user_ticks, system_ticks| CpuTimes {
            total: Duration::from_millis(ms),
            user_ticks,
            system_ticks,
        };
        let expected = CpuInterval { user: Duration::from_millis(25), system: Duration::from_millis(75) };
        assert_eq!(times(150, 11, 23).since(&times(50, 10, 20)), expected);
        let none = CpuInterval { user: Duration::ZERO, system: Duration::ZERO };
        assert_eq!(times(50, 10, 20).since(&times(50, 10, 20)), none);
    }

    #[test]
    fn ticks_are_found_behind_any_name() {
        let stat = "42 (a (odd) name) S 1 42 42 0 -1 4194560 120 0 0 0 17 25 0 0 20 0 1 0";
        assert_eq!(parse_cpu_ticks(stat), Some((17, 25)));
        assert_eq!(parse_cpu_ticks("42 (cut) S 1"), None);
    }
}
