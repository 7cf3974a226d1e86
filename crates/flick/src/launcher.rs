//! The launcher: a process outside of the sandbox that starts the new process of an upgrade.
//! Promises: a sandboxed service can start no program; the launcher starts one program only, with the arguments and the
//! user of the service, and exits with the service. One that does not answer in time is killed.
//! Not here: what the new process is handed (`hot_restart.rs`).
//!
//! | from | message | meaning |
//! |---|---|---|
//! | service | `start` + descriptor | start the program with this standard input |
//! | launcher | `started PID` or `failed REASON` | the answer |
//! | service | `status` | ask how the program that was started last has ended |
//! | launcher | `ended STATUS` or `running` | the answer |
//! | service | `kill` | kill the program that was started last |

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::Args;
use flick_net::fd_channel::FdChannel;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use tracing::warn;

use crate::failure::{Failure, Outcome};
use crate::hot_restart;
use crate::sandbox::{SandboxMode, is_root};
use crate::settings::{Settings, deprecated};
use crate::sys::HeldSignals;

/// Longest time that the launcher takes to start a program.
const START_TIME_MAX: Duration = Duration::from_secs(10);
/// Longest time until a program whose standard input is closed has ended. The kernel closes files of a process first.
const END_TIME_MAX: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// Most programs that the launcher has started and that still run: the new process of an upgrade, and stalled ones.
const STARTED_MAX: usize = 4;
/// Name of its process.
const PROCESS_NAME: &std::ffi::CStr = c"flick-launcher";

/// The launcher, seen from the service.
#[derive(Debug)]
pub struct Launcher {
    channel: FdChannel,
    process: Child,
    /// It has ended before the service.
    has_ended: bool,
}

impl Launcher {
    /// Starts the launcher; call it before this process is sandboxed. `None`: this sandbox starts no programs, or the
    /// path of this binary is unknown.
    ///
    /// Errors: the process cannot be started.
    pub fn start(settings: &Settings) -> Result<Option<Self>, Failure> {
        let failed = |error: std::io::Error| {
            Failure::failed(format!("cannot start the process that starts upgrades: {error}"))
        };
        let Some(binary) = std::env::current_exe().ok().filter(|_| settings.sandbox != SandboxMode::Strict)
        else {
            return Ok(None);
        };
        let (near, far) = FdChannel::pair().map_err(failed)?;
        let mut command = Command::new("/proc/self/exe");
        command.arg0("flick").arg("launcher").arg(binary).args(std::env::args_os().skip(1));
        command.stdin(Stdio::from(far.into_fd()));
        if let Some((user, group)) = settings.user.as_ref().filter(|_| is_root()).map(|user| user.ids()) {
            command.uid(user).gid(group);
        }
        let process = command.spawn().map_err(failed)?;
        near.set_timeout(Some(START_TIME_MAX)).map_err(failed)?;
        Ok(Some(Self { channel: near, process, has_ended: false }))
    }

    /// Starts the program with this standard input, and returns its process id.
    ///
    /// Errors: why it has not started.
    pub fn launch(&self, stdin: OwnedFd) -> Result<u32, String> {
        let gone = |error: String| {
            format!("the process that starts upgrades does not answer: {error}; restart flick instead")
        };
        let failed = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::WouldBlock => {
                let (pid, waited_s) = (self.process.id(), START_TIME_MAX.as_secs());
                gone(format!("process {pid} has said nothing for {waited_s} seconds and was killed"))
            }
            _ => gone(error.to_string()),
        };
        let answer = self.ask("start", Some(stdin.as_fd())).map_err(failed)?;
        let text = answer.ok_or_else(|| gone("it has exited".to_owned()))?;
        match text.split_once(' ') {
            Some(("started", pid)) => pid.parse().map_err(|_| gone(format!("it says `{text}`"))),
            Some(("failed", reason)) => Err(reason.to_owned()),
            _ => Err(gone(format!("it says `{text}`"))),
        }
    }

    /// Returns the exit status, or the signal, of the program that was started last, for a message. `None`: it has not
    /// ended, or the launcher does not know.
    pub fn exit_status(&self) -> Option<String> {
        let answer = self.ask("status", None).ok()??;
        answer.strip_prefix("ended ").map(str::to_owned)
    }

    /// Sends a request and returns the answer; `None`: the launcher has exited.
    ///
    /// Errors: `WouldBlock` if there is no answer in time. The launcher is killed then: it would follow the request
    /// later, and its answer would be taken for the answer to the next request.
    fn ask(&self, request: &str, fd: Option<BorrowedFd<'_>>) -> std::io::Result<Option<String>> {
        let answer = self.channel.send(request, fd).and_then(|()| self.channel.receive());
        if answer.is_err() {
            self.channel.shut_down();
            if !self.has_ended {
                // It is our child, so that no other process has its id. Killing one that has exited fails.
                let _ = kill_process(Pid::from_child(&self.process), Signal::KILL);
            }
        }
        Ok(answer?.map(|answer| answer.text))
    }

    /// Kills the program that was started last.
    pub fn kill(&self) {
        if let Err(error) = self.channel.send("kill", None) {
            warn!(%error, "cannot kill the new process");
        }
    }

    /// Whether the launcher has ended since the last call.
    pub fn has_just_ended(&mut self) -> bool {
        let had_ended = self.has_ended;
        self.has_ended = had_ended || matches!(self.process.try_wait(), Ok(Some(_)));
        self.has_ended && !had_ended
    }

    /// Waits until the launcher has exited. The program that it has started goes on.
    pub fn finish(self) {
        let Self { channel, mut process, has_ended: _ } = self;
        drop(channel);
        // It exits when the channel is closed.
        let _ = process.wait();
    }
}

/// Start the new process of an upgrade on behalf of a service; used by flick itself.
#[derive(Debug, Args)]
pub struct LauncherCommand {
    /// The binary.
    program: PathBuf,
    /// Its arguments.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<std::ffi::OsString>,
}

impl LauncherCommand {
    /// Serves the process at the other end of standard input until that exits.
    pub fn run(self, held: Option<HeldSignals>) -> Outcome {
        let failed = |error: std::io::Error| Failure::failed(format!("the launcher fails: {error}"));
        // These are for the service, and may be sent to all processes of flick: by a terminal, or by systemd, which
        // stops the whole control group. The launcher exits with the service. A handler does not outlive `execve`; an
        // ignored signal would be ignored by the new process.
        for signal in [SIGHUP, SIGUSR1, SIGUSR2, SIGTERM, SIGINT] {
            signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false))).map_err(failed)?;
        }
        drop(held);
        rustix::thread::set_name(PROCESS_NAME).map_err(|error| failed(error.into()))?;
        let channel = FdChannel::from_fd(std::io::stdin().as_fd().try_clone_to_owned().map_err(failed)?);
        self.serve(&channel).map_err(failed)
    }

    /// Answers messages until the other end is closed. Errors: an answer cannot be sent.
    fn serve(&self, channel: &FdChannel) -> std::io::Result<()> {
        let mut started = Vec::new();
        while let Ok(Some(message)) = channel.receive() {
            match (message.text.as_str(), message.fd) {
                ("start", Some(stdin)) => {
                    let answer = match self.start(stdin, &mut started) {
                        Ok(pid) => format!("started {pid}"),
                        Err(error) => format!("failed cannot start {}: {error}", self.program.display()),
                    };
                    channel.send(&answer, None)?;
                }
                ("status", _) => {
                    let ended = started.last_mut().and_then(wait_for_end);
                    let answer = ended.map_or("running".to_owned(), |status| format!("ended {status}"));
                    channel.send(&answer, None)?;
                }
                _ => started.pop().into_iter().for_each(kill),
            }
        }
        Ok(())
    }

    /// Starts the program. The earlier ones belong to upgrades that failed, so no process needs their ids any more.
    ///
    /// Errors: it cannot be started; too many still run.
    fn start(&self, stdin: OwnedFd, started: &mut Vec<Child>) -> std::io::Result<u32> {
        started.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        if started.len() >= STARTED_MAX {
            let running = format!("{STARTED_MAX} processes of earlier upgrades still run");
            return Err(std::io::Error::other(running));
        }
        let child = self.spawn(stdin)?;
        let pid = child.id();
        started.push(child);
        Ok(pid)
    }

    fn spawn(&self, stdin: OwnedFd) -> std::io::Result<Child> {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).stdin(Stdio::from(stdin)).env(hot_restart::VARIABLE, "1");
        command.env_remove("LISTEN_PID").env_remove("LISTEN_FDS");
        command.env_remove(deprecated::HOT_RESTART_VARIABLE).spawn()
    }
}

/// Returns how a process has ended; waits for that, but not long.
fn wait_for_end(child: &mut Child) -> Option<ExitStatus> {
    if let Ok(pidfd) = pidfd_open(Pid::from_child(child), PidfdFlags::empty()) {
        let mut polled = [PollFd::new(&pidfd, PollFlags::IN)];
        // After an error it counts as running, unless it has ended.
        let _ = rustix::io::retry_on_intr(|| poll(&mut polled, Some(&END_TIME_MAX)));
    }
    child.try_wait().ok().flatten()
}

/// Kills a process.
fn kill(mut child: Child) {
    // Killing a process that has exited fails; `wait` reaps it in any case.
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};
    use std::time::Duration;

    use super::{FdChannel, Launcher, LauncherCommand, STARTED_MAX};

    /// Starts a program that ends when its standard input does; the process and that input's other end.
    fn start(service: &FdChannel) -> Result<(u32, UnixStream), String> {
        let (near, far) = UnixStream::pair().expect("a pair of sockets");
        service.send("start", Some(far.as_fd())).expect("the launcher runs");
        let answer = service.receive().expect("it answers").expect("it runs").text;
        match answer.strip_prefix("started ") {
            Some(pid) => Ok((pid.parse().expect("a number"), near)),
            None => Err(answer),
        }
    }

    /// Runs a launcher of `cat` beside these steps.
    fn beside(steps: impl FnOnce(&FdChannel)) {
        let (service, launcher) = FdChannel::pair().expect("a pair of sockets");
        let command = LauncherCommand { program: "/bin/cat".into(), arguments: Vec::new() };
        std::thread::scope(|scope| {
            let serves = scope.spawn(move || command.serve(&launcher));
            steps(&service);
            drop(service);
            assert!(serves.join().expect("no panic").is_ok());
        });
    }

    fn is_there(pid: u32) -> bool {
        std::path::Path::new(&format!("/proc/{pid}")).exists()
    }

    #[test]
    fn programs_that_have_ended_stayed_as_zombies() {
        beside(|service| {
            let (first, input) = start(service).expect("it starts");
            drop(input);
            let has_ended = || {
                let status = std::fs::read_to_string(format!("/proc/{first}/stat")).expect("it is a zombie");
                status.contains(") Z ")
            };
            while !has_ended() {
                std::thread::yield_now();
            }
            let (second, _input) = start(service).expect("it starts");
            assert!(!is_there(first) && is_there(second));
            service.send("kill", None).expect("the launcher runs");
        });
    }

    #[test]
    fn starts_of_programs_had_no_limit() {
        beside(|service| {
            let running: Vec<_> = (0..STARTED_MAX).map(|_| start(service).expect("it starts")).collect();
            let error = start(service).expect_err("too many run");
            assert!(error.contains("4 processes of earlier upgrades still run"), "{error}");
            for _ in &running {
                service.send("kill", None).expect("the launcher runs");
            }
            let again = start(service).expect("they have ended");
            service.send("kill", None).expect("the launcher runs");
            drop((running, again));
        });
    }

    /// The answer that came too late was read as that of the next upgrade: another process was named and signalled.
    #[test]
    fn late_answer_was_taken_for_that_of_the_next_start() {
        let (near, late) = FdChannel::pair().expect("a pair of sockets");
        near.set_timeout(Some(Duration::from_millis(10))).expect("a socket");
        let mut command = Command::new("/bin/cat");
        let process = command.stdin(Stdio::piped()).spawn().expect("it starts");
        let mut launcher = Launcher { channel: near, process, has_ended: false };
        let input = || UnixStream::pair().expect("a pair of sockets").0.into();
        let error = launcher.launch(input()).expect_err("there is no answer");
        assert!(error.contains("has said nothing for"), "{error}");
        let asked = late.receive().expect("it is open").expect("a message");
        assert!(asked.text == "start" && asked.fd.is_some());
        // It fails if the channel is closed.
        let _ = late.send("started 1", None);
        let error = launcher.launch(input()).expect_err("process 1 is not its own");
        assert!(error.contains("does not answer"), "{error}");
        // What it has not read yet it must not start later.
        assert_eq!(launcher.process.wait().expect("our own child").signal(), Some(9));
    }
}
