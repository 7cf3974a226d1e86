//! The chains that are compared: how their processes are started, joined and ended.

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, pipe};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::cli::ChainArgs;
use crate::process::{Children, ScratchDir, free_addr, workspace};

/// Longest wait until a process listens.
const LISTEN_WAIT_MAX: Duration = Duration::from_secs(10);
/// Pause between two attempts to connect.
const LISTEN_PAUSE: Duration = Duration::from_millis(5);

/// A chain of filters that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChainKind {
    FlickRings,
    FlickPipes,
    FlickTcp,
    FlickOneProcess,
    HandPipes,
    HandTcp,
    BufferedPipes,
    BufferedTcp,
}

impl ChainKind {
    pub(super) const ALL: &[ChainKind] = &[
        ChainKind::FlickRings,
        ChainKind::FlickPipes,
        ChainKind::FlickTcp,
        ChainKind::FlickOneProcess,
        ChainKind::HandPipes,
        ChainKind::HandTcp,
        ChainKind::BufferedPipes,
        ChainKind::BufferedTcp,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            ChainKind::FlickRings => "flick, shared memory",
            ChainKind::FlickPipes => "flick, pipes",
            ChainKind::FlickTcp => "flick, TCP",
            ChainKind::FlickOneProcess => "flick, one process",
            ChainKind::HandPipes => "by hand, packet by packet, pipes",
            ChainKind::HandTcp => "by hand, packet by packet, TCP",
            ChainKind::BufferedPipes => "by hand, 64 KiB at a time, pipes",
            ChainKind::BufferedTcp => "by hand, 64 KiB at a time, TCP",
        }
    }

    /// Whether a chain of `length` filters is joined as the name says: the ends of all chains are pipes, so that one
    /// filter uses no TCP.
    pub(super) fn has_joint(self, length: usize) -> bool {
        length > 1 || !matches!(self, ChainKind::FlickTcp | ChainKind::HandTcp | ChainKind::BufferedTcp)
    }

    /// Divides the number of records, so that a round of each side takes about as long.
    pub(super) fn slowness(self) -> usize {
        if matches!(self, ChainKind::HandPipes | ChainKind::HandTcp) { 10 } else { 1 }
    }
}

/// The processes of a chain.
pub(super) struct Chain {
    processes: Children,
    ends: Option<(PipeWriter, PipeReader)>,
    /// Servers do not end with their input.
    ends_with_input: bool,
    /// File of their logs, and how many of them must say there that they use shared memory.
    log: PathBuf,
    joints_expected: usize,
}

impl Chain {
    /// Starts all processes of a chain.
    pub(super) fn start(
        args: &ChainArgs,
        side: ChainKind,
        length: usize,
        scratch: &ScratchDir,
    ) -> io::Result<Chain> {
        let ((stdin, to), (from, stdout)) = (pipe()?, pipe()?);
        let ends_with_input = side != ChainKind::FlickTcp;
        let log = scratch.0.join("log");
        std::fs::write(&log, "")?;
        let mut chain = Chain {
            processes: Children::default(),
            ends: Some((to, from)),
            ends_with_input,
            log,
            joints_expected: 0,
        };
        match side {
            ChainKind::FlickTcp => chain.start_servers(args, length, stdin.into(), stdout.into())?,
            ChainKind::FlickOneProcess => {
                let mut command = flick(args, whole_chain(length, scratch)?, "stdin:", "stdout:");
                chain.add(command.stdin(stdin).stdout(stdout))?;
            }
            _ => chain.start_filters(args, side, length, stdin.into(), stdout.into())?,
        }
        Ok(chain)
    }

    /// Starts filters from the last to the first, so that the reader of a pipe is there before its writer looks for it.
    fn start_filters(
        &mut self,
        args: &ChainArgs,
        side: ChainKind,
        length: usize,
        stdin: OwnedFd,
        stdout: OwnedFd,
    ) -> io::Result<()> {
        let (mut inputs, mut outputs) = (vec![stdin], Vec::new());
        for _ in 1..length {
            let (input, output) = joint(matches!(side, ChainKind::HandTcp | ChainKind::BufferedTcp))?;
            inputs.push(input);
            outputs.push(output);
        }
        outputs.push(stdout);
        for (position, (input, output)) in inputs.into_iter().zip(outputs).enumerate().rev() {
            self.add(filter(args, side, position)?.stdin(input).stdout(output))?;
        }
        self.joints_expected = if side == ChainKind::FlickRings { length - 1 } else { 0 };
        Ok(())
    }

    /// Starts servers from the last to the first, each when the one behind it listens.
    fn start_servers(
        &mut self,
        args: &ChainArgs,
        length: usize,
        stdin: OwnedFd,
        stdout: OwnedFd,
    ) -> io::Result<()> {
        let (mut stdin, mut stdout) = (Some(stdin), Some(stdout));
        let mut next = "stdout:".to_owned();
        for position in (0..length).rev() {
            let listen = if position == 0 { None } else { Some(free_addr()?) };
            let from = listen.map_or_else(|| "stdin:".to_owned(), |addr| addr.to_string());
            let mut command = flick(args, program(position), &from, &next);
            command.arg("--no-cpu-affinity");
            let input = if position == 0 {
                stdin.take().map_or_else(Stdio::null, Stdio::from)
            } else {
                Stdio::null()
            };
            let output = stdout.take().map_or_else(Stdio::null, Stdio::from);
            self.add(command.stdin(input).stdout(output))?;
            if let Some(addr) = listen {
                await_listening(addr)?;
                next = addr.to_string();
            }
        }
        Ok(())
    }

    fn add(&mut self, command: &mut Command) -> io::Result<()> {
        command.stderr(File::options().append(true).open(&self.log)?);
        self.processes.start(command)
    }

    /// Returns the two ends.
    pub(super) fn ends(&mut self) -> io::Result<(PipeWriter, PipeReader)> {
        self.ends.take().ok_or_else(|| io::Error::other("the ends of a chain are taken once"))
    }

    /// Waits until all processes have ended with success, behind the end of the input.
    pub(super) fn finish(self) -> io::Result<()> {
        if !self.ends_with_input {
            return Ok(());
        }
        self.processes.finish()?;
        let joints = std::fs::read_to_string(&self.log)?.matches("using shared memory").count();
        if joints < self.joints_expected {
            return Err(io::Error::other("some filters have not found each other, and used the pipe"));
        }
        Ok(())
    }
}

/// Two ends that join two processes, by a pipe or a connection: the one that is read, and the one that is written to.
pub(crate) fn joint(uses_tcp: bool) -> io::Result<(OwnedFd, OwnedFd)> {
    if !uses_tcp {
        let (reader, writer) = pipe()?;
        return Ok((reader.into(), writer.into()));
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let writer = TcpStream::connect(listener.local_addr()?)?;
    let (reader, _) = listener.accept()?;
    Ok((reader.into(), writer.into()))
}

fn await_listening(addr: SocketAddr) -> io::Result<()> {
    let deadline = Instant::now() + LISTEN_WAIT_MAX;
    while TcpStream::connect(addr).is_err() {
        if Instant::now() > deadline {
            return Err(io::Error::other(format!("no filter listens on {addr}")));
        }
        std::thread::sleep(LISTEN_PAUSE);
    }
    Ok(())
}

/// The command of one filter between standard input and standard output.
fn filter(args: &ChainArgs, side: ChainKind, position: usize) -> io::Result<Command> {
    let mut command = match side {
        ChainKind::FlickRings | ChainKind::FlickPipes | ChainKind::FlickTcp | ChainKind::FlickOneProcess => {
            flick(args, program(position), "stdin:", "stdout:")
        }
        ChainKind::HandPipes | ChainKind::HandTcp | ChainKind::BufferedPipes | ChainKind::BufferedTcp => {
            let mut command = Command::new(std::env::current_exe()?);
            command.arg("packet-filter").args(edits(position).then_some("--edit"));
            command.args(
                matches!(side, ChainKind::BufferedPipes | ChainKind::BufferedTcp).then_some("--buffered"),
            );
            command
        }
    };
    if side == ChainKind::FlickPipes {
        command.args(["--shm", "off"]);
    }
    Ok(command)
}

fn flick(args: &ChainArgs, program: PathBuf, from: &str, to: &str) -> Command {
    let mut command = args.run.flick.run(&program);
    command.args(["--listen", &format!("capture={from}"), "--connect", &format!("next={to}")]);
    command
}

/// Whether the filter at a position edits; the others count.
fn edits(position: usize) -> bool {
    position.is_multiple_of(2)
}

fn program(position: usize) -> PathBuf {
    let name = if edits(position) { "packet_edit" } else { "packet_counter" };
    workspace().join("examples").join(name).join(format!("{name}.flick"))
}

/// Writes a program that does what the whole chain does.
fn whole_chain(length: usize, scratch: &ScratchDir) -> io::Result<PathBuf> {
    let steps: Vec<&str> =
        (0..length).map(|position| if edits(position) { "edit()" } else { "count_packet()" }).collect();
    let text = format!(
        "use pcap_ipv4\n\nglobal packets: counter\nglobal edited: counter\n\ntype record: record\n  is_header : bool\n  \
         has_ttl   : bool\n  ttl       : uint8\n\nproc Chain: (record/- capture, -/record next)\n  | capture => {} => \
         next\n\nfun edit: (r: record) -> (record)\n  if r.is_header or not r.has_ttl: r\n  else:\n    count(edited)\n    \
         r with ttl = 64\n\nfun count_packet: (r: record) -> (record)\n  if not r.is_header:\n    count(packets)\n  r\n",
        steps.join(" => ")
    );
    let grammar = workspace().join("examples/packet_edit/pcap_ipv4.flick");
    std::fs::copy(grammar, scratch.0.join("pcap_ipv4.flick"))?;
    let path = scratch.0.join(format!("chain_{length}.flick"));
    std::fs::write(&path, text)?;
    Ok(path)
}
