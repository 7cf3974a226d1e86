//! Programs of Debian in every pair: client and server plain, one of them accelerated, both. What the client prints,
//! sums over all bytes that it has got among it, is the same; only where both are accelerated do the server's bytes go
//! through rings. Programs that cannot move say why.
//! Each program is a file in `pairs/`, with the functions `setup`, `server` and `client`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, geteuid, kill_process, kill_process_group};
use serde_json::Value;

use super::moving::state_of;
use super::{Setting, free_address, run};
use crate::common::wait;

/// Rounds of accelerated clients until the monitor has paired enough in time: one or two, on a quiet machine.
const ROUNDS_MAX: u32 = 20;
/// Longest wait for the end of calls of a server before it is ended.
const REST_MAX: Duration = Duration::from_secs(2);
/// The user of servers that refuse to run as root.
const USER: &str = "www-data";

/// Pairs whose programs make code as they run, and may.
const MAKES_CODE: [&str; 2] = ["node-jit", "java-jit"];

/// Expectation of a program whose peers are accelerated as it is.
enum Expected {
    /// Programs of this name send and receive this number of bytes through rings, or more.
    Moves(&'static str, u64),
    /// Programs of this name send and receive none, for this reason.
    Stays(&'static str, &'static str),
}

use Expected::{Moves, Stays};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Accelerated,
    Plain,
}

/// A program's script, and where its processes run.
struct Pair {
    setting: Setting,
    name: &'static str,
    as_user: bool,
}

/// A server that runs.
struct Server {
    child: Child,
    side: Side,
    ports: [String; 2],
}

impl Pair {
    fn new(name: &'static str, is_refused_to_root: bool) -> Self {
        let pair = Self {
            setting: Setting::new(&format!("pair-{name}")),
            name,
            as_user: is_refused_to_root && geteuid().is_root(),
        };
        for side in [Side::Accelerated, Side::Plain] {
            std::fs::create_dir(pair.directory(side)).expect("writable");
        }
        if pair.as_user {
            let mut chown = Command::new("chown");
            let (status, _, stderr) = run({
                chown.args(["-R", USER]).arg(pair.setting.scratch.path());
                chown
            });
            assert_eq!((status, stderr.as_str()), (0, ""));
        }
        pair
    }

    fn directory(&self, side: Side) -> PathBuf {
        self.setting.path(if side == Side::Accelerated { "accelerated" } else { "plain" })
    }

    /// A command of the user that the programs have.
    fn of_user(&self, command: Command) -> Command {
        if !self.as_user {
            return command;
        }
        let mut other = Command::new("setpriv");
        other.args([&format!("--reuid={USER}"), &format!("--regid={USER}"), "--clear-groups"]);
        other.arg(command.get_program()).args(command.get_args());
        other.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        other
    }

    /// A function of the script, for the server of a side.
    fn script(&self, function: &str, side: Side, server: (Side, &[String; 2])) -> Command {
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/accel/pairs");
        let text = format!("set -eu; . {}; {function}", scripts.join(format!("{}.sh", self.name)).display());
        let arguments = ["setsid", "--wait", "bash", "-o", "pipefail", "-c", &text];
        let mut command = if side == Side::Accelerated {
            let mut command = self.setting.accel(&["--verify", "--move"]);
            command.args(MAKES_CODE.contains(&self.name).then_some("--jit")).arg("--").args(arguments);
            command
        } else {
            let mut command = Command::new(arguments[0]);
            command.args(&arguments[1..]);
            command
        };
        let (directory, [port, second_port]) = (self.directory(server.0), server.1);
        command.env("dir", &directory).env("port", port).env("second_port", second_port);
        command.env("scripts", scripts).env("HOME", &directory);
        let mut command = self.of_user(command);
        command.current_dir(directory).stdin(Stdio::null());
        command
    }

    /// Runs a function of the script that not every script has.
    fn optional(&self, function: &str, server: (Side, &[String; 2])) -> Result<(), String> {
        let call = format!("if [ -n \"$(type -t {function})\" ]; then {function}; fi");
        let (status, stdout, stderr) = run(self.script(&call, Side::Plain, server));
        if status == 0 { Ok(()) } else { Err(format!("{}: {stdout}{stderr}", self.name)) }
    }

    /// Starts a server, and waits until it serves connections: `ready` is for those that accept before.
    fn start(&self, side: Side) -> Server {
        let ports = [(); 2].map(|()| free_address().port().to_string());
        self.optional("setup", (side, &ports)).expect("the server is set up");
        let mut command = self.script("server", side, (side, &ports));
        let mut child = command.stdout(Stdio::null()).spawn().expect("bash starts");
        wait::until("the server to accept", || {
            assert!(child.try_wait().expect("our own child").is_none(), "{} ended", self.name);
            std::net::TcpStream::connect(format!("127.0.0.1:{}", ports[0])).ok()
        });
        wait::until("the server to be ready", || self.optional("ready", (side, &ports)).ok());
        Server { child, side, ports }
    }

    /// Runs a client, and returns its output.
    fn client(&self, side: Side, server: &Server) -> String {
        self.call("client", side, server)
    }

    /// Runs a function of the script, and returns its output.
    fn call(&self, function: &str, side: Side, server: &Server) -> String {
        let (status, stdout, stderr) = run(self.script(function, side, (server.side, &server.ports)));
        let pair = format!("{}: client {side:?}, server {:?}", self.name, server.side);
        assert!(status == 0 && !stdout.is_empty(), "{pair}: {stdout}{stderr}");
        stdout
    }

    /// The processes of a name that were accelerated.
    fn processes(&self, name: &str) -> Vec<Value> {
        let status = self.of_user(self.setting.accel(&["--status", "--json"]));
        let (status, stdout, stderr) = run(status);
        assert_eq!((status, stderr.as_str()), (0, ""));
        let processes: Vec<Value> = serde_json::from_str(&stdout).expect("the status is JSON");
        processes.into_iter().filter(|process| process["program"] == name).collect()
    }
}

impl Drop for Server {
    /// Ends all processes of its group, once they wait: where a signal's handler exits behind a call in the kernel and
    /// before its bytes are counted, the counts differ.
    fn drop(&mut self) {
        let _ = wait::within(REST_MAX, || is_at_rest(self.child.id()).then_some(()));
        // They may have ended by themselves.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}

/// The group of a process; 0 of the kernel's own, which `getpgid` of rustix refuses to return.
fn group_of(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split_whitespace().nth(2)?.parse().ok()
}

/// Whether all threads of a group of processes sleep or have ended.
fn is_at_rest(group: u32) -> bool {
    let numbers = |directory: &str| {
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
    };
    numbers("/proc")
        .filter(|pid| group_of(*pid) == Some(group))
        .flat_map(|pid| numbers(&format!("/proc/{pid}/task")))
        .all(|thread| state_of(thread).is_none_or(|state| "SZX".contains(state)))
}

/// A server in the background, which has written its number to a file.
struct Daemon {
    pid_file: PathBuf,
}

impl Daemon {
    fn pid_in(&self, suffix: &str) -> Option<Pid> {
        let text = std::fs::read_to_string(format!("{}{suffix}", self.pid_file.display())).ok()?;
        Pid::from_raw(text.trim().parse().ok()?)
    }

    fn send(&self, signal: Signal) {
        kill_process(self.pid_in("").expect("it runs"), signal).expect("it is ours");
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let Some(pid) = self.pid_in("") else { return };
        let _ = kill_process(pid, Signal::TERM);
        let ended = || rustix::process::test_kill_process(pid).is_err().then_some(());
        let _ = wait::within(wait::WAIT_MAX, ended);
    }
}

fn ring_bytes(processes: &[Value]) -> u64 {
    processes.iter().filter_map(|process| process["ring_bytes"].as_u64()).sum()
}

/// The reasons for which files of these processes are in the kernel.
fn reasons(processes: &[Value]) -> BTreeSet<String> {
    let files = processes.iter().filter_map(|process| process["files"].as_array()).flatten();
    let of_files = files.filter_map(|file| file["why_kernel"].as_str());
    let of_processes = processes.iter().filter_map(|process| process["not_followed"].as_array()).flatten();
    of_files.chain(of_processes.filter_map(Value::as_str)).map(str::to_owned).collect()
}

/// Runs a program's client and server in every pair.
fn check(name: &'static str, is_refused_to_root: bool, expected: &Expected) {
    let pair = Pair::new(name, is_refused_to_root);
    let [accelerated, plain] = [Side::Accelerated, Side::Plain].map(|side| pair.start(side));
    let printed = pair.client(Side::Plain, &plain);
    assert_eq!(pair.client(Side::Accelerated, &plain), printed, "{name}: the client is accelerated");
    drop(plain);
    assert_eq!(pair.client(Side::Plain, &accelerated), printed, "{name}: the server is accelerated");
    let (Moves(program, _) | Stays(program, _)) = expected;
    assert!(!pair.processes(program).is_empty(), "{name}: no process is seen");
    let mut seen = BTreeSet::new();
    for round in 1..=ROUNDS_MAX {
        let output = std::thread::scope(|scope| {
            let client = scope.spawn(|| pair.client(Side::Accelerated, &accelerated));
            if let Stays(_, why) = expected {
                // Only files that are open have reasons.
                wait::until("the client's end", || {
                    if !seen.iter().any(|one: &String| one.contains(why)) {
                        seen.extend(reasons(&pair.processes(program)));
                    }
                    client.is_finished().then_some(())
                });
            }
            client.join().expect("the client is right")
        });
        assert_eq!(output, printed, "{name}: both are accelerated");
        let bytes = ring_bytes(&pair.processes(program));
        println!("{name}: {bytes} bytes by rings after round {round}; {seen:?}");
        match expected {
            Moves(_, bytes_min) if bytes < *bytes_min => {
                let why = reasons(&pair.processes(program));
                assert!(round < ROUNDS_MAX, "{name}: {bytes} bytes went through rings; {why:?}");
            }
            Stays(_, why) => {
                assert_eq!(bytes, 0, "{name}");
                if seen.iter().any(|one| one.contains(why)) {
                    break;
                }
                assert!(round < ROUNDS_MAX, "{name}: {seen:?}");
            }
            Moves(..) => break,
        }
    }
    drop(accelerated);
    for process in pair.processes(program) {
        assert_eq!(process["method"], "patched-text", "{process}");
        assert_eq!(process["closed"]["different"], 0, "{process}");
    }
}

macro_rules! pairs {
    ($($test:ident: $name:literal, $user:expr, $expected:expr;)*) => {
        $(#[test]
        fn $test() {
            check($name, $user, &$expected);
        })*
    };
}

const GENERATES: &str = "makes code as it runs; `--jit` says";
/// Other users' processes cannot look into a server of ssh.
const FILES_STAY: &str = "its files stay";

pairs! {
    nginx_in_every_pair: "nginx", false, Moves("nginx", 100_000);
    wrk_in_every_pair: "wrk", false, Moves("wrk", 1_000_000);
    haproxy_in_every_pair: "haproxy", false, Moves("haproxy", 100_000);
    redis_in_every_pair: "redis", false, Moves("redis-server", 100_000);
    memcached_in_every_pair: "memcached", false, Moves("memcached", 100_000);
    postgres_in_every_pair: "postgres", true, Moves("postgres", 100_000);
    apache_prefork_in_every_pair: "apache", true, Moves("apache2", 100_000);
    apache_event_in_every_pair: "apache-event", true, Moves("apache2", 100_000);
    php_fpm_in_every_pair: "php-fpm", false, Moves("php-fpm8.2", 100_000);
    python_http_in_every_pair: "python-http", false, Moves("python3", 1_000);
    python_asyncio_in_every_pair: "python-asyncio", false, Moves("python3", 100_000);
    node_in_every_pair: "node", false, Stays("node", GENERATES);
    node_whose_code_may_move_in_every_pair: "node-jit", false, Moves("node", 100_000);
    java_whose_code_may_move_in_every_pair: "java-jit", false, Moves("java", 100_000);
    java_in_every_pair: "java", false, Stays("java", GENERATES);
    iperf3_in_every_pair: "iperf3", false, Moves("iperf3", 50_000);
    sockperf_in_every_pair: "sockperf", false, Moves("sockperf", 100_000);
    openssl_in_every_pair: "openssl", false, Moves("openssl", 10_000);
    ssh_in_every_pair: "ssh", false, Stays("ssh", FILES_STAY);
}

/// A reload replaces the workers, an upgrade the program, which has the connections of neither.
#[test]
fn nginx_is_reloaded_and_upgraded_while_it_answers() {
    let pair = Pair::new("nginx", false);
    let server = pair.start(Side::Accelerated);
    assert_eq!(pair.call("daemon", Side::Accelerated, &server), "started\n");
    let daemon = Daemon { pid_file: pair.directory(Side::Accelerated).join("daemon.pid") };
    let printed = pair.call("load", Side::Plain, &server);
    let mut bytes = 0;
    for step in ["before", "reload", "upgrade", "after"] {
        for round in 1.. {
            let output = std::thread::scope(|scope| {
                let client = scope.spawn(|| pair.call("load", Side::Accelerated, &server));
                match step {
                    "reload" if round == 1 => daemon.send(Signal::HUP),
                    "upgrade" if round == 1 => {
                        let master = daemon.pid_in("").expect("it runs");
                        daemon.send(Signal::USR2);
                        wait::until("the new program", || {
                            daemon.pid_in(".oldbin").and(daemon.pid_in("")).filter(|pid| *pid != master)
                        });
                        kill_process(master, Signal::QUIT).expect("it is ours");
                    }
                    _ => {}
                }
                client.join().expect("the client is right")
            });
            assert_eq!(output, printed, "{step}");
            let now = ring_bytes(&pair.processes("nginx"));
            if now > bytes {
                bytes = now;
                break;
            }
            assert!(round < ROUNDS_MAX, "{step}: nothing went through rings");
        }
    }
}
