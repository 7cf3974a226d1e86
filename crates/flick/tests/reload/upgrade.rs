//! Upgrades of a process that has given up what it had at its start, and by a binary that is not what it should be.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Resource, Rlimit};

use super::common::peers::signal;
use super::common::process::OwnedPid;
use super::common::service::Service;
use super::common::{self, Scratch, wait};
use super::inflight::Origin;
use super::{Changing, balancer, connect, figure, get, load, process_in};

/// A copy of the tool beside a program, in a directory where everybody may pass, unlike the target directory perhaps.
struct Copied(PathBuf);

impl Copied {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("flick-{test}-{}", std::process::id()));
        // Left over from a run that was killed, if it exists at all.
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a directory for temporary files");
        let made = Self(path);
        std::fs::copy(common::flick().get_program(), made.tool()).expect("the tool is a file");
        made.program(&balancer(0));
        made
    }

    fn tool(&self) -> PathBuf {
        self.0.join("flick")
    }

    fn program(&self, text: &str) -> PathBuf {
        self.write("balancer.flick", text, 0o644)
    }

    fn write(&self, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).expect("the directory is ours");
        allow(&path, mode);
        path
    }

    /// Runs the balancer.
    fn start(&self, extra: &[&str]) -> Service {
        let mut command = Command::new(self.tool());
        command.env_remove("FLICK_LOG").env("NO_COLOR", "1").current_dir(&self.0);
        let connect = format!("backends={}", load::origin());
        command.args(["run", "balancer.flick", "--listen", "client=127.0.0.1:0", "--connect", &connect]);
        command.args(["--workers", "1"]).args(extra);
        Service::start_as(command)
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        // What cannot be removed lies among temporary files anyway.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn allow(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("it is ours");
}

/// A port of loopback that only root may take.
fn low_port() -> u16 {
    let is_free = |port: &u16| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok();
    (600..1024).find(is_free).expect("one of them is free")
}

/// Upgrades a service that is not root any more and could not open its admin endpoint again.
fn check_of_a_user(test: &str, admin: impl FnOnce(&Path) -> String) {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let copied = Copied::new(test);
    let closed = copied.0.join("closed");
    std::fs::create_dir(&closed).expect("the directory is ours");
    allow(&closed, 0o700);
    let token = copied.write("closed/token", "token-of-root-only\n", 0o600);
    let (token, at) = (token.display().to_string(), admin(&closed));
    let user = ["--user", "65534:65534", "--admin", &at, "--admin-token-file", &token];
    let mut first = copied.start(&user);
    let asks = |what: &str| common::run(&[what, &at, "--token-file", &token]);
    let (status, stdout, error) = asks("upgrade");
    assert_eq!(status, 0, "{at}: {error}");
    let second = stdout.trim().strip_prefix("process ").and_then(|pid| pid.parse().ok());
    let second = OwnedPid(second.expect("it says which"));
    assert_eq!(first.gone().code(), Some(0));
    // The new one answers, and goes on answering when the next cannot start.
    copied.program("nothing that compiles");
    let (status, _, error) = asks("upgrade");
    assert!(status == 1 && error.contains("balancer.flick"), "{at}: {error}");
    copied.program(&balancer(1));
    let (status, _, error) = asks("reload");
    assert_eq!(status, 0, "{at}: {error}");
    assert_eq!(get(&mut connect(first.address), "/version"), Ok("version 1".to_owned()));
    common::peers::signal(second.0, "TERM");
    wait::until("the second process to end", || (!second.is_there()).then_some(()));
}

#[test]
fn upgrade_keeps_an_admin_socket_that_the_user_may_not_create() {
    check_of_a_user("upgrade-user", |closed| format!("unix:{}", closed.join("admin").display()));
}

#[test]
fn upgrade_keeps_an_admin_port_that_the_user_may_not_bind() {
    check_of_a_user("upgrade-port", |_| format!("127.0.0.1:{}", low_port()));
}

#[test]
fn exit_signal_interrupts_the_wait_for_a_new_process() {
    let copied = Copied::new("upgrade-stalls");
    let service = copied.start(&["--sandbox", "off", "--admin", "0"]);
    // Written under another name, so that it is never started incomplete.
    let stalls = copied.write("stalls", "#!/bin/sh\n: > started\nexec sleep 100\n", 0o755);
    std::fs::rename(stalls, copied.tool()).expect("the directory is ours");
    service.signal("USR2");
    wait::until("the new process", || copied.0.join("started").exists().then_some(()));
    assert_eq!(
        figure(service.admin_address(), "flick_config_generation"),
        1,
        "the admin endpoint answers meanwhile"
    );
    let log = service.drained();
    assert!(
        log.contains("the upgrade failed")
            && log.contains("must exit and no longer waits")
            && log.contains("drained"),
        "{log}"
    );
}

#[test]
fn backend_change_during_an_upgrade_succeeded_and_was_lost() {
    let copied = Copied::new("upgrade-change");
    let service = copied.start(&["--sandbox", "off", "--admin", "0"]);
    let admin = service.admin_address().to_string();
    let (_, listed, _) = common::run(&["backend", &admin]);
    let backend = listed.split_whitespace().find(|word| word.starts_with("127.0.0.1:"));
    let backend = backend.expect("it has one").to_owned();
    let waits = "#!/bin/sh\n: > started\nuntil [ -e go ]; do sleep 0.01; done\n";
    let waits = copied.write("waits", waits, 0o755);
    std::fs::rename(waits, copied.tool()).expect("the directory is ours");
    service.signal("USR2");
    wait::until("the new process", || copied.0.join("started").exists().then_some(()));
    let drain = || common::run(&["backend", &admin, "drain", &backend]);
    let (status, output, error) = drain();
    assert!(status == 1 && error.contains("an upgrade is in progress"), "{output}{error}");
    // The new process ends, and this one goes on.
    copied.write("go", "", 0o644);
    wait::until("changes to be accepted again", || (drain().0 == 0).then_some(()));
    service.drained();
}

#[test]
fn new_process_that_could_not_start_had_accepted_clients() {
    let scratch = Scratch::new("upgrade-accepts");
    let program = scratch.write("balancer.flick", &balancer(0));
    let taken = TcpListener::bind(("127.0.0.1", 0)).expect("the loopback has a free port");
    let taken = taken.local_addr().map(|at| (taken, at.to_string())).expect("it is bound");
    // The workers of some rounds would be late.
    for _ in 0..10 {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("the loopback has a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let shared = listener.try_clone().expect("descriptors are left");
        let _client = connect(address);
        // An inherited socket, as systemd and an old process pass one on.
        let script = "LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" \"$@\" 3<&0 </dev/null";
        let mut command = Command::new("sh");
        command.args(["-c", script]).arg(common::flick().get_program()).arg("run").arg(&program);
        command.args(["--workers", "1", "--admin", &taken.1, "--listen", &format!("client={address}")]);
        command.args(["--connect", &format!("backends={}", load::origin())]);
        command.stdin(Stdio::from(OwnedFd::from(listener))).env_remove("FLICK_LOG");
        let (status, _, error) = common::captured(command.output().expect("the tool starts"));
        assert!(status == 1 && error.contains("admin"), "{status}: {error}");
        shared.set_nonblocking(true).expect("a socket may be non-blocking");
        assert!(shared.accept().is_ok(), "the client waits for the process that serves");
    }
}

#[test]
fn upgrade_did_not_say_how_the_new_process_ended() {
    let copied = Copied::new("upgrade-ends");
    let service = copied.start(&["--sandbox", "off", "--admin", "0"]);
    let admin = service.admin_address().to_string();
    for (script, status) in [("exit 3", "exit status: 3"), ("kill -KILL $$", "signal: 9 (SIGKILL)")] {
        let ends = copied.write("ends", &format!("#!/bin/sh\n{script}\n"), 0o755);
        std::fs::rename(ends, copied.tool()).expect("the directory is ours");
        let (code, _, error) = common::run(&["upgrade", &admin]);
        let expected = format!("the new process exited before it was ready ({status}); see its log");
        assert!(code == 1 && error.contains(&expected), "{error}");
    }
    assert_eq!(get(&mut connect(service.address), "/version"), Ok("version 0".to_owned()));
    service.drained();
}

#[test]
fn failed_upgrade_keeps_socket_files() {
    let scratch = Scratch::new("upgrade-file");
    scratch.write("balancer.flick", &balancer(0));
    let (path, admin) = (scratch.path().join("socket"), scratch.path().join("admin"));
    let origin = load::origin();
    let service = |name: &str, at: &str| {
        format!(
            "[[service]]\nname = \"{name}\"\nprogram = \"balancer.flick\"\nlisten = {{ client = \"{at}\" }}\n\
             connect = {{ backends = [\"{origin}\"] }}\n"
        )
    };
    let at = format!("unix:{}", path.display());
    let text = format!("workers = 1\n{}{}", service("first", "127.0.0.1:0"), service("second", &at));
    let settings = scratch.write("flick.toml", &text).display().to_string();
    let admin_at = format!("unix:{}", admin.display());
    let mut first = Service::start(&["run", "--config", &settings, "--admin", &admin_at]);
    let (one, other) = (UnixStream::connect(&path), UnixStream::connect(&admin));
    assert!(one.is_ok() && other.is_ok(), "{one:?} {other:?}");
    scratch.write("balancer.flick", "nothing that compiles");
    let (status, _, error) = common::run(&["upgrade", &admin_at]);
    assert!(status == 1 && error.contains("balancer.flick"), "{error}");
    let (one, other) = (UnixStream::connect(&path), UnixStream::connect(&admin));
    assert!(one.is_ok() && other.is_ok(), "{one:?} {other:?}");
    // A new process that starts owns the files and removes them at its end.
    scratch.write("balancer.flick", &balancer(1));
    let (status, stdout, error) = common::run(&["upgrade", &admin_at]);
    assert_eq!(status, 0, "{error}");
    let second = stdout.trim().strip_prefix("process ").and_then(|pid| pid.parse().ok());
    let second = OwnedPid(second.expect("it says which"));
    assert_eq!(first.gone().code(), Some(0));
    let (one, other) = (UnixStream::connect(&path), UnixStream::connect(&admin));
    assert!(one.is_ok() && other.is_ok(), "{one:?} {other:?}");
    common::peers::signal(second.0, "TERM");
    wait::until("the second process to end", || (!second.is_there()).then_some(()));
    assert!(!path.exists() && !admin.exists(), "no process listens there");
}

#[test]
fn client_of_a_process_before_the_last_was_reset_by_upgrades() {
    let (scratch, origin) = (Scratch::new("upgrade-chain"), Origin::start());
    let program = scratch.write("balancer.flick", &balancer(0)).display().to_string();
    let admin = format!("unix:{}", scratch.path().join("admin").display());
    let backends = format!("backends={}", origin.address);
    let args = ["run", &program, "--listen", "client=127.0.0.1:0", "--connect", &backends, "--admin", &admin];
    let mut first = Service::start(&[&args[..], &["--workers", "1"]].concat());
    let mut client = connect(first.address);
    origin.ask_late(&mut client, "");
    // While one process starts, the one before the last has time to end.
    let upgraded = (1..=3).map(|version| {
        scratch.write("balancer.flick", &balancer(version));
        let (status, output, error) = common::run(&["upgrade", &admin]);
        assert_eq!(status, 0, "{error}");
        OwnedPid(process_in(&output))
    });
    let [second, third, last] = &upgraded.collect::<Vec<_>>()[..] else {
        panic!("there were three upgrades")
    };
    origin.go.send(()).expect("the server runs");
    assert_eq!(load::reply(&mut client), Ok("0 bytes".to_owned()), "the first process answers");
    wait::until("the client to migrate", || {
        (get(&mut client, "/version").expect("it is answered") == "version 3").then_some(())
    });
    assert_eq!(first.gone().code(), Some(0));
    wait::until("the processes between to end", || (!second.is_there() && !third.is_there()).then_some(()));
    assert_eq!(get(&mut client, "/version"), Ok("version 3".to_owned()));
    common::peers::signal(last.0, "TERM");
    wait::until("the last process to end", || (!last.is_there()).then_some(()));
}

#[test]
fn exit_signal_to_a_new_process_reset_the_clients_of_the_old_one() {
    for io in ["epoll", "auto"] {
        let (scratch, origin) = (Scratch::new("upgrade-exit"), Origin::start());
        let program = scratch.write("balancer.flick", &balancer(0)).display().to_string();
        let admin = format!("unix:{}", scratch.path().join("admin").display());
        let backends = format!("backends={}", origin.address);
        let args = ["run", &program, "--listen", "client=127.0.0.1:0", "--connect", &backends];
        let extra = ["--admin", &admin, "--workers", "1", "--io", io];
        let mut first = Service::start(&[&args[..], &extra].concat());
        let (mut busy, mut idle) = (connect(first.address), connect(first.address));
        origin.ask_late(&mut busy, "");
        assert_eq!(get(&mut idle, "/version"), Ok("version 0".to_owned()));
        scratch.write("balancer.flick", &balancer(1));
        let (status, output, error) = common::run(&["upgrade", &admin]);
        assert_eq!(status, 0, "{error}");
        let second = OwnedPid(process_in(&output));
        wait::until("the idle client to migrate", || {
            (get(&mut idle, "/version").expect("it is answered") == "version 1").then_some(())
        });
        // The old process does not read it: the client is to migrate.
        busy.write_all(b"GET /version HTTP/1.1\r\nHost: here\r\n\r\n").expect("its socket is open");
        common::peers::signal(second.0, "TERM");
        assert_eq!(idle.read(&mut [0]).expect("it is closed in good order"), 0, "{io}");
        origin.go.send(()).expect("the server runs");
        let mut replies = String::new();
        let read = busy.read_to_string(&mut replies);
        assert!(read.is_ok() && replies.contains("0 bytes"), "{io}: {read:?} behind {replies:?}");
        assert!(replies.ends_with("version 0"), "{io}: the old process answers both: {replies:?}");
        assert_eq!(replies.to_lowercase().matches("connection: close").count(), 1, "{io}: {replies:?}");
        assert_eq!(first.gone().code(), Some(0));
        wait::until("the new process to end", || (!second.is_there()).then_some(()));
    }
}

#[test]
fn new_process_at_the_limit_of_descriptors_left_clients_without_an_answer() {
    const CLIENTS: usize = 400;
    const LIMIT: u64 = 150;
    let changing = Changing::start("upgrade-limit", &["--workers", "1", "--max-connections", "1000"]);
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| connect(changing.address())).collect();
    for client in &mut clients {
        assert_eq!(get(client, "/version"), Ok("version 0".to_owned()));
    }
    let (service, admin) = (&changing.service, changing.service.admin_address().to_string());
    let launcher = launcher_of(service.pid());
    let limit = Rlimit { current: Some(LIMIT), maximum: Some(LIMIT) };
    rustix::process::prlimit(Pid::from_raw(launcher), Resource::Nofile, limit).expect("it is of this user");
    let (status, output, error) = common::run(&["upgrade", &admin]);
    assert_eq!(status, 0, "{error}");
    let second = OwnedPid(process_in(&output));
    let stdin = std::fs::read_link(format!("/proc/{}/fd/0", second.0)).expect("it runs");
    assert_eq!(stdin, Path::new("/dev/null"), "a copy of the channel hides its end");
    for client in &mut clients {
        // One that the new process could not take is closed.
        let _ = client.write_all(b"GET /version HTTP/1.1\r\nHost: here\r\n\r\n");
        let answer = client.read(&mut [0]);
        let is_silent = answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
        assert!(!is_silent, "neither an answer nor an end");
    }
    let Changing { service: mut first, .. } = changing;
    assert_eq!(first.gone().code(), Some(0));
    common::peers::signal(second.0, "TERM");
    wait::until("the new process to end", || (!second.is_there()).then_some(()));
}

/// The process that starts the new process of a service.
fn launcher_of(service: u32) -> i32 {
    let children = std::fs::read_to_string(format!("/proc/{service}/task/{service}/children"));
    let children = children.expect("the service runs");
    children.split_whitespace().next().and_then(|pid| pid.parse().ok()).expect("it has a launcher")
}

/// A script that rotates logs may send SIGUSR1 to all processes of flick, also to one that has just begun.
#[test]
fn log_rotation_ended_a_process_that_was_starting() {
    let (old_process, stdin) = UnixStream::pair().expect("the system has sockets");
    let mut command = common::flick();
    command.args(["run", common::PROXY]).env("FLICK_HOT_RESTART", "1");
    command.stdin(OwnedFd::from(stdin)).stderr(Stdio::null());
    let mut child = command.spawn().expect("the tool starts");
    // It waits for the sockets of the old process.
    let receives = libc::SYS_recvmsg.to_string();
    let call = format!("/proc/{}/syscall", child.id());
    wait::until("it to receive", || {
        let call = std::fs::read_to_string(&call).unwrap_or_default();
        (call.split_whitespace().next() == Some(&receives)).then_some(())
    });
    for name in ["USR1", "USR2", "HUP"] {
        signal(child.id(), name);
    }
    drop(old_process);
    let status = wait::until("its end", || child.try_wait().expect("our own child"));
    assert_eq!((status.code(), status.signal()), (Some(1), None));
}
