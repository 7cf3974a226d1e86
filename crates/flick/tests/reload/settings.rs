//! Reloads that change settings: services that are added and removed, and notifications to systemd.

use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};

use super::common::peers::{Memcached, free_address};
use super::common::process::OwnedPid;
use super::common::service::Service;
use super::common::{self, Scratch, wait};
use super::load::{self, Asks, Load, get};
use super::{FAILED_RELOADS, balancer, connect, figure, process_in, reloads};
use flick_load::binary::{Opcode, Status};

/// A table of `flick.toml`.
fn entry(name: &str, program: &str, at: SocketAddr, origin: SocketAddr) -> String {
    format!(
        "[[service]]\nname = \"{name}\"\nprogram = \"{program}\"\nlisten = {{ client = \"{at}\" }}\n\
         connect = {{ backends = [\"{origin}\"] }}\n\n"
    )
}

#[test]
fn reload_adds_and_removes_services() {
    let scratch = Scratch::new("reload-services");
    for version in 0..3 {
        scratch.write(&format!("{version}.flick"), &balancer(version));
    }
    let origin = load::origin();
    let [stays, goes, comes] = std::array::from_fn(|_| free_address());
    let head = "workers = 1\n[admin]\nlisten = \"127.0.0.1:0\"\n\n";
    let of = |name: &str, version: usize, at| entry(name, &format!("{version}.flick"), at, origin);
    let first = format!("{head}{}{}", of("stays", 0, stays), of("goes", 1, goes));
    let settings = scratch.write("flick.toml", &first);
    let service = Service::start(&["run", "--config", settings.to_str().expect("the path is UTF-8")]);
    let asks =
        |at: SocketAddr, version: &str| assert_eq!(get(&mut connect(at), "/version"), Ok(version.to_owned()));
    wait::until("both services", || TcpStream::connect(goes).ok());
    asks(stays, "version 0");
    asks(goes, "version 1");
    let mut leaving = connect(goes);
    assert_eq!(get(&mut leaving, "/version"), Ok("version 1".to_owned()));
    let load = Load::start(stays, 2, 1, || load::Http);
    let second = format!("{head}{}{}", of("stays", 0, stays), of("comes", 2, comes));
    scratch.write("flick.toml", &second);
    service.signal("HUP");
    wait::until("the reload", || {
        (figure(service.admin_address(), "flick_config_generation") == 2).then_some(())
    });
    asks(comes, "version 2");
    asks(stays, "version 0");
    wait::until("the service that went to refuse", || TcpStream::connect(goes).is_err().then_some(()));
    // Its client is idle: it is let go as by a drain.
    assert_eq!(leaving.read(&mut [0]).expect("it ends in good order"), 0, "no service has this client");
    scratch.write("flick.toml", &first);
    service.signal("HUP");
    wait::until("the way back", || {
        (figure(service.admin_address(), "flick_config_generation") == 3).then_some(())
    });
    asks(goes, "version 1");
    wait::until("the other to refuse", || TcpStream::connect(comes).is_err().then_some(()));
    assert!(load.stop() > 0);
    service.drained();
}

/// A service that is renamed under the same address, and clients of it.
struct Renamed {
    scratch: Scratch,
    origin: SocketAddr,
    at: SocketAddr,
    service: Service,
    kept: Vec<TcpStream>,
}

impl Renamed {
    fn start(test: &str) -> Self {
        let (scratch, origin, at) = (Scratch::new(test), load::origin(), free_address());
        scratch.write("0.flick", &balancer(0));
        let settings = Self::write(&scratch, "web", at, origin);
        let service = Service::start(&["run", "--config", settings.to_str().expect("the path is UTF-8")]);
        let kept = (0..3).map(|_| connect(at)).collect();
        let mut renamed = Self { scratch, origin, at, service, kept };
        renamed.ask("web");
        renamed
    }

    fn write(scratch: &Scratch, name: &str, at: SocketAddr, origin: SocketAddr) -> std::path::PathBuf {
        let head = "workers = 1\n[admin]\nlisten = \"127.0.0.1:0\"\n\n";
        scratch.write("flick.toml", &format!("{head}{}", entry(name, "0.flick", at, origin)))
    }

    fn rename(&self, name: &str) {
        Self::write(&self.scratch, name, self.at, self.origin);
    }

    /// All clients and two new ones are served.
    fn ask(&mut self, name: &str) {
        let mut all = [connect(self.at), connect(self.at)];
        for client in self.kept.iter_mut().chain(&mut all) {
            assert_eq!(get(client, "/version"), Ok("version 0".to_owned()), "as {name}");
        }
    }
}

#[test]
fn reload_that_renamed_a_service_stopped_its_port() {
    let mut renamed = Renamed::start("reload-renamed");
    for name in ["shop", "store"] {
        let generation = figure(renamed.service.admin_address(), "flick_config_generation");
        renamed.rename(name);
        renamed.service.signal("HUP");
        wait::until("the reload", || {
            (figure(renamed.service.admin_address(), "flick_config_generation") > generation).then_some(())
        });
        renamed.ask(name);
        // One that has moved leaves, and is counted out where it is counted.
        renamed.kept.pop();
        renamed.ask(name);
    }
    renamed.service.drained();
}

#[test]
fn upgrade_that_renamed_a_service_closed_its_clients() {
    let mut renamed = Renamed::start("upgrade-renamed");
    renamed.rename("shop");
    let (status, stdout, error) = common::run(&["upgrade", &renamed.service.admin_address().to_string()]);
    assert_eq!(status, 0, "{error}");
    let _second = OwnedPid(process_in(&stdout));
    assert_eq!(renamed.service.gone().code(), Some(0));
    renamed.ask("shop");
}

#[test]
fn reload_reads_a_file_that_was_added_to_an_included_directory() {
    let scratch = Scratch::new("reload-include");
    std::fs::create_dir(scratch.path().join("services")).expect("a directory for temporary files");
    for version in 0..2 {
        scratch.write(&format!("{version}.flick"), &balancer(version));
    }
    let origin = load::origin();
    let [stays, comes] = std::array::from_fn(|_| free_address());
    let head = "include = \"services/*.toml\"\nworkers = 1\n[admin]\nlisten = \"127.0.0.1:0\"\n";
    let settings =
        scratch.write("flick.toml", &format!("{head}{}", entry("stays", "0.flick", stays, origin)));
    let service = Service::start(&["run", "--config", settings.to_str().expect("the path is UTF-8")]);
    scratch.write("services/comes.toml", &entry("comes", "../1.flick", comes, origin));
    service.signal("HUP");
    wait::until("the reload", || {
        (figure(service.admin_address(), "flick_config_generation") == 2).then_some(())
    });
    assert_eq!(get(&mut connect(comes), "/version"), Ok("version 1".to_owned()));
    assert_eq!(get(&mut connect(stays), "/version"), Ok("version 0".to_owned()));
    service.drained();
}

#[test]
fn reload_with_an_address_in_use_changes_nothing() {
    let scratch = Scratch::new("reload-taken");
    scratch.write("0.flick", &balancer(0));
    let origin = load::origin();
    let other = TcpListener::bind(("127.0.0.1", 0)).expect("the loopback has a free port");
    let (at, taken) = (free_address(), other.local_addr().expect("a bound socket has an address"));
    let head = "workers = 1\n[admin]\nlisten = \"127.0.0.1:0\"\n\n";
    let settings = scratch.write("flick.toml", &format!("{head}{}", entry("a", "0.flick", at, origin)));
    let service = Service::start(&["run", "--config", settings.to_str().expect("the path is UTF-8")]);
    let load = Load::start(at, 2, 1, || load::Http);
    let both = format!("{head}{}{}", entry("a", "0.flick", at, origin), entry("b", "0.flick", taken, origin));
    scratch.write("flick.toml", &both);
    service.signal("HUP");
    let admin = service.admin_address();
    wait::until("the refusal", || (figure(admin, FAILED_RELOADS) == 1).then_some(()));
    assert_eq!(
        (figure(admin, "flick_config_generation"), figure(admin, "flick_draining_generations")),
        (1, 0)
    );
    assert!(load.stop() > 0);
    let log = service.drained();
    assert!(log.contains(&taken.port().to_string()) && log.contains("the reload failed"), "{log}");
}

/// Asks a memcached proxy for what this client has put there.
struct Tagged;

impl Asks for Tagged {
    fn ask(&mut self, stream: &mut TcpStream, number: u64) -> Result<(), String> {
        let (key, value) = (format!("key {number}").replace(' ', "-"), format!("value of {number}"));
        let opaque = number as u32;
        let set = common::client::ask(stream, Opcode::Set, opaque, key.as_bytes(), value.as_bytes());
        let got = common::client::ask(stream, Opcode::Get, opaque, key.as_bytes(), b"");
        let is_right = set.is(Status::NoError) && got.is(Status::NoError) && got.value == value.as_bytes();
        let is_own = set.opaque == opaque && got.opaque == opaque;
        if is_right && is_own { Ok(()) } else { Err(format!("unexpected replies {set:?} and {got:?}")) }
    }
}

#[test]
fn reload_of_a_memcached_proxy_loses_no_reply() {
    let backends = Memcached::several(2);
    let addresses = common::peers::addresses(&backends);
    let service = Service::proxy(&addresses, &["--workers", "2", "--admin", "0"]);
    let load = Load::start(service.address, 4, 1, || Tagged);
    for generation in 2..reloads() as u64 + 2 {
        service.signal("HUP");
        let admin = service.admin_address();
        wait::until("the reload", || (figure(admin, "flick_config_generation") == generation).then_some(()));
        load.check();
    }
    assert!(load.stop() > reloads() as u64);
    service.drained();
}

/// Receives the next message to systemd and returns it.
fn notification(systemd: &UnixDatagram) -> String {
    let mut bytes = [0; 1024];
    let length = systemd.recv(&mut bytes).expect("a notification");
    String::from_utf8_lossy(&bytes[..length]).into_owned()
}

#[test]
fn systemd_socket_activation_and_notifications() {
    let scratch = Scratch::new("systemd");
    let program = scratch.write("balancer.flick", &balancer(0));
    let notify = scratch.path().join("notify");
    let systemd = UnixDatagram::bind(&notify).expect("the directory can be written");
    systemd.set_read_timeout(Some(wait::WAIT_MAX)).expect("the time is not zero");
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("the loopback has a free port");
    let address = listener.local_addr().expect("a bound socket has an address");
    // As systemd does: the socket is descriptor 3, and the number of the process that gets it is its own.
    let mut command = Command::new("sh");
    let script = "LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" \"$@\" 3<&0 </dev/null";
    let args = ["--workers", "1", "--listen"];
    command.args(["-c", script, env!("CARGO_BIN_EXE_flick"), "run"]).arg(&program).args(args);
    command.arg(format!("client={address}")).arg("--connect").arg(format!("backends={}", load::origin()));
    command.stdin(Stdio::from(OwnedFd::from(listener))).env("NOTIFY_SOCKET", &notify);
    command.current_dir(common::root()).env("NO_COLOR", "1").env_remove("FLICK_LOG");
    // A client that comes before the service is there waits in the socket's queue.
    let mut early = connect(address);
    let service = Service::start_as(command);
    let ready = notification(&systemd);
    assert!(ready.contains("READY=1") && ready.contains(&format!("MAINPID={}", service.pid())), "{ready}");
    assert_eq!(service.address, address);
    assert_eq!(get(&mut early, "/version"), Ok("version 0".to_owned()));
    scratch.write("balancer.flick", &balancer(1));
    service.signal("HUP");
    let reloading = notification(&systemd);
    assert!(reloading.contains("RELOADING=1") && reloading.contains("MONOTONIC_USEC="), "{reloading}");
    assert!(notification(&systemd).contains("READY=1"), "the reload is over");
    assert_eq!(get(&mut connect(address), "/version"), Ok("version 1".to_owned()));
    drop(early);
    service.signal("TERM");
    assert!(notification(&systemd).contains("STOPPING=1"));
    let (status, log) = service.ended();
    assert_eq!(status.code(), Some(0), "{log}");
}

#[test]
fn systemd_watchdog_gets_keep_alive_messages() {
    let scratch = Scratch::new("systemd-watchdog");
    let program = scratch.write("balancer.flick", &balancer(0)).display().to_string();
    let notify = scratch.path().join("notify");
    let systemd = UnixDatagram::bind(&notify).expect("the directory can be written");
    systemd.set_read_timeout(Some(wait::WAIT_MAX)).expect("the time is not zero");
    let connect = format!("backends={}", load::origin());
    for (pid, is_own) in [("$$", true), ("1", false)] {
        let mut command = Command::new("sh");
        let script = format!("WATCHDOG_PID={pid} exec \"$0\" \"$@\"");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_flick"), "run", &program]);
        command.args(["--workers", "1", "--listen", "client=127.0.0.1:0", "--connect", &connect]);
        command.env("NOTIFY_SOCKET", &notify).env("WATCHDOG_USEC", "400000");
        command.current_dir(common::root()).env("NO_COLOR", "1").env_remove("FLICK_LOG");
        let service = Service::start_as(command);
        assert!(notification(&systemd).contains("READY=1"));
        if is_own {
            assert_eq!([(); 3].map(|()| notification(&systemd)), ["WATCHDOG=1\n"; 3]);
        }
        service.signal("TERM");
        // The messages of a process that systemd does not watch go from `READY=1` to `STOPPING=1`.
        let others =
            std::iter::from_fn(|| Some(notification(&systemd)).filter(|text| !text.contains("STOPPING=1")));
        let others: Vec<String> = others.collect();
        assert!(others.iter().all(|text| is_own && text == "WATCHDOG=1\n"), "{others:?}");
        let (status, log) = service.ended();
        assert_eq!(status.code(), Some(0), "{log}");
    }
}

/// Whether a process has handlers of its own for a signal.
fn catches(pid: u32, signal: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    caught
        .and_then(|caught| u64::from_str_radix(caught.trim(), 16).ok())
        .is_some_and(|caught| caught >> (signal - 1) & 1 == 1)
}

#[test]
fn sighup_during_the_start_is_handled_after_it() {
    const SIGHUP: u32 = 1;
    let scratch = Scratch::new("reload-early");
    let program = scratch.write("balancer.flick", &balancer(0));
    let mut command = common::flick();
    command.arg("run").arg(&program).args([
        "--workers",
        "1",
        "--admin",
        "0",
        "--listen",
        "client=127.0.0.1:0",
    ]);
    command.arg("--connect").arg(format!("backends={}", load::origin()));
    let service = Service::start_while(command, |pid| {
        // It catches the signal before it has read its program, and longer than that before it listens.
        wait::until("the process to be itself", || catches(pid, SIGHUP).then_some(()));
        common::peers::signal(pid, "HUP");
    });
    wait::until("the reload", || {
        (figure(service.admin_address(), "flick_config_generation") == 2).then_some(())
    });
    assert_eq!(get(&mut connect(service.address), "/version"), Ok("version 0".to_owned()));
    service.drained();
}

#[test]
fn reload_response_names_settings_that_need_a_restart() {
    let scratch = Scratch::new("reload-later");
    scratch.write("0.flick", &balancer(0));
    let (at, origin) = (free_address(), load::origin());
    let write = |head: &str| {
        let admin = "[admin]\nlisten = \"127.0.0.1:0\"\n\n";
        let text = format!("{head}{admin}{}", entry("a", "0.flick", at, origin));
        scratch.write("flick.toml", &text)
    };
    let settings = write("workers = 1\n");
    let service = Service::start(&["run", "--config", settings.to_str().expect("the path is UTF-8")]);
    let admin = service.admin_address().to_string();
    // The running process, not the last file, is what the settings are compared with.
    for (generation, head, notice) in [
        (2, "workers = 1\nlog = \"json\"\n", "services unchanged; `log` takes effect at the next start only"),
        (3, "workers = 1\nlog = \"json\"\n", "services unchanged; `log` takes effect at the next start only"),
        (4, "workers = 1\n", "services unchanged"),
        (5, "workers = 2\nwatchdog_timeout = \"9s\"\n", "`workers`, `watchdog_timeout` changed"),
        (6, "workers = 2\nwatchdog_timeout = \"9s\"\n", "services unchanged"),
    ] {
        write(head);
        let (status, stdout, _) = common::run(&["reload", &admin]);
        let expected = format!("generation {generation}; 1 service; {notice}");
        assert_eq!((status, stdout.trim_end()), (0, expected.as_str()));
    }
    service.drained();
}

#[test]
fn warning_about_open_files_is_not_repeated_by_a_reload() {
    let scratch = Scratch::new("reload-files");
    scratch.write("0.flick", &balancer(0));
    let text = format!(
        "workers = 1\n[admin]\nlisten = \"127.0.0.1:0\"\n\n{}",
        entry("a", "0.flick", free_address(), load::origin())
    );
    let settings = scratch.write("flick.toml", &text).display().to_string();
    let tool = common::flick().get_program().to_owned();
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "ulimit -n 256; exec \"$@\"", "sh"]).arg(tool).args(["run", "--config", &settings]);
    let service = Service::start_as(command);
    let admin = service.admin_address().to_string();
    for _ in 0..2 {
        let (status, _, stderr) = common::run(&["reload", &admin]);
        assert_eq!(status, 0, "{stderr}");
    }
    let log = service.drained();
    assert_eq!(log.matches("may need more open files").count(), 1, "{log}");
}

#[test]
fn reload_waited_for_the_writer_of_a_pipe() {
    let scratch = Scratch::new("reload-pipe");
    scratch.write("a.flick", &balancer(0));
    let head = "workers = 1\n[admin]\nlisten = \"127.0.0.1:0\"\n\n";
    let text = format!("{head}{}", entry("a", "a.flick", free_address(), load::origin()));
    let settings = scratch.write("flick.toml", &text);
    let service = Service::start(&["run", "--config", settings.to_str().expect("the path is UTF-8")]);
    let admin = service.admin_address().to_string();
    for file in ["flick.toml", "a.flick"] {
        let path = scratch.path().join(file);
        let kept = std::fs::read(&path).expect("it was written");
        std::fs::remove_file(&path).expect("it is there");
        let made = Command::new("mkfifo").arg(&path).status().expect("mkfifo is there");
        assert!(made.success());
        let (status, _, error) = common::run(&["reload", &admin]);
        assert!(status == 1 && error.contains("not a regular file"), "{file}: {error}");
        std::fs::remove_file(&path).expect("it is there");
        std::fs::write(&path, kept).expect("it is writable");
    }
    let (status, _, error) = common::run(&["reload", &admin]);
    assert_eq!(status, 0, "{error}");
    service.drained();
}
