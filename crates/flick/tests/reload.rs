//! Reloads and hot restarts with connected clients: no client is rejected, no response is lost, a failed one changes
//! nothing.

mod common;
#[path = "reload/inflight.rs"]
mod inflight;
#[path = "reload/kills.rs"]
mod kills;
#[path = "reload/load.rs"]
mod load;
#[path = "reload/lowered.rs"]
mod lowered;
#[path = "reload/memory.rs"]
mod memory;
#[path = "reload/settings.rs"]
mod settings;
#[path = "reload/shared_memory.rs"]
mod shared_memory;
#[path = "reload/upgrade.rs"]
mod upgrade;
#[path = "reload/upgraded_connections.rs"]
mod upgraded_connections;

use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::process::{OwnedPid, held};
use common::service::{self, Service};
use common::{Scratch, wait};
use load::{Http, Load, get};

/// Reloads per test; `FLICK_RELOADS` overrides it.
const RELOADS: usize = 10;

/// Growth of memory that counts as none: pages of tables are touched as they are used.
const GROWTH_KB_MAX: u64 = 48_000;

fn reloads() -> usize {
    std::env::var("FLICK_RELOADS").ok().and_then(|count| count.parse().ok()).unwrap_or(RELOADS)
}

/// A balancer that answers `/version` itself, and counts requests for `/asked` in a dictionary.
fn balancer(version: usize) -> String {
    format!(
        r#"
use http

global asked: dict<string<8>, int> max 100 entries
global all: counter

proc Balancer: (request/response client, [response/request] backends)
  | backends => client
  | client => to_one(client, backends)

fun to_one: (-/response client, [-/request] backends, req: request) -> ()
  count(all)
  if req.path == "/version": reply_with("version {version}") => client
  else if req.path == "/asked":
    let n = update asked["x"] from old: (old else 0) + 1
    reply_with(str(n)) => client
  else: req => backends[round_robin(backends)]

fun reply_with: (text: string<40>) -> (response)
  response{{status = 200, reason = "OK", headers = [("content-type", "text/plain")], body = raw(text)}}
"#
    )
}

/// A running balancer whose program can be changed.
struct Changing {
    scratch: Scratch,
    program: PathBuf,
    service: Service,
}

impl Changing {
    fn start(test: &str, extra: &[&str]) -> Self {
        Self::start_before(test, load::origin(), &balancer(0), extra)
    }

    fn start_before(test: &str, origin: SocketAddr, text: &str, extra: &[&str]) -> Self {
        let scratch = Scratch::new(test);
        let program = scratch.write("balancer.flick", text);
        let connect = format!("backends={origin}");
        let path = program.to_str().expect("the path is UTF-8");
        let args = ["run", path, "--listen", "client=127.0.0.1:0", "--connect", &connect, "--admin", "0"];
        let service = Service::start(&[&args[..], extra].concat());
        Self { scratch, program, service }
    }

    fn address(&self) -> SocketAddr {
        self.service.address
    }

    /// Writes a program, and requests a reload.
    fn write(&self, text: &str) {
        self.scratch.write("balancer.flick", text);
        self.service.signal("HUP");
    }

    /// The sum of a metric.
    fn figure(&self, name: &str) -> u64 {
        figure(self.service.admin_address(), name)
    }
}

/// Metrics of reloads.
const RELOADS_TOTAL: &str = "flick_config_reloads_total{result=\"success\"}";
const FAILED_RELOADS: &str = "flick_config_reloads_total{result=\"failure\"}";

/// The sum of a metric; with labels, the one series.
fn figure(admin: SocketAddr, name: &str) -> u64 {
    let (_, text) = service::seen(admin, "/metrics");
    let of_name = |line: &&str| {
        line.strip_prefix(name).is_some_and(|rest| rest.starts_with('{') || rest.starts_with(' '))
    };
    let values = text.lines().filter(of_name).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    values.sum::<f64>() as u64
}

fn connect(address: SocketAddr) -> TcpStream {
    common::client::connect(address)
}

/// Reloads repeatedly under load.
fn check_under_load(test: &str, io: &str) {
    let changing = Changing::start(test, &["--io", io, "--workers", "2"]);
    let (address, pid) = (changing.address(), changing.service.pid());
    let mut idle: Vec<TcpStream> = (0..10).map(|_| connect(address)).collect();
    let load = Load::start(address, 6, 2, || Http);
    let (reloads, mut settled) = (reloads(), None);
    for version in 1..=reloads {
        changing.write(&balancer(version));
        wait::until("the reload", || (changing.figure(RELOADS_TOTAL) >= version as u64).then_some(()));
        let mut stream = connect(address);
        assert_eq!(get(&mut stream, "/version"), Ok(format!("version {version}")), "a new client");
        let client = &mut idle[version % 10];
        wait::until("an idle client to migrate", || {
            let text = get(client, "/version").expect("a response");
            (text == format!("version {version}")).then_some(())
        });
        load.check();
        if version == reloads.min(100) / 2 {
            settled = Some(held(pid));
        }
    }
    let asked = load.stop();
    assert!(asked > reloads as u64, "{asked} requests are no load");
    wait::until("the older generations to end", || {
        (changing.figure("flick_draining_generations") == 0).then_some(())
    });
    assert_eq!(changing.figure(FAILED_RELOADS), 0);
    let (kb, files) = held(pid);
    let (kb_before, files_before) = settled.expect("it was measured half way");
    println!(
        "{io}: {reloads} reloads, {asked} requests; memory {kb_before} kB, at the end {kb} kB; descriptors {files_before}, {files}"
    );
    assert!(kb < kb_before + GROWTH_KB_MAX, "{kb_before} kB have become {kb} kB");
    assert!(files < files_before + 60, "{files_before} descriptors have become {files}");
    assert!(changing.figure("flick_requests_total") >= asked, "counters continue over reloads");
    drop(idle);
    changing.service.drained();
}

#[test]
fn reloads_under_load_lose_nothing_epoll() {
    check_under_load("reload-epoll", "epoll");
}

#[test]
fn reloads_under_load_lose_nothing_uring() {
    check_under_load("reload-uring", "auto");
}

#[test]
fn reload_of_a_wrong_program_changes_nothing() {
    let changing = Changing::start("reload-wrong", &["--workers", "1"]);
    let mut stream = connect(changing.address());
    assert_eq!(get(&mut stream, "/version"), Ok("version 0".to_owned()));
    changing.write("proc Wrong: (nothing/nothing client)\n");
    wait::until("the failed reload", || (changing.figure(FAILED_RELOADS) == 1).then_some(()));
    assert_eq!(get(&mut stream, "/version"), Ok("version 0".to_owned()));
    assert_eq!(get(&mut connect(changing.address()), "/page"), Ok(load::PAGE.to_owned()));
    assert_eq!(changing.figure("flick_config_generation"), 1);
    drop(stream);
    assert!(changing.program.exists());
    let log = changing.service.drained();
    assert!(log.contains("the reload failed") && log.contains("error"), "{log}");
}

#[test]
fn reload_of_a_program_with_too_much_work_changes_nothing() {
    let changing = Changing::start("reload-work", &["--workers", "1"]);
    let mut stream = connect(changing.address());
    assert_eq!(get(&mut stream, "/version"), Ok("version 0".to_owned()));
    // Each round searches the path: all rounds take more than the default `max_message_work`.
    let scans = "fold _i in 0..1000, n = 0: n + (if contains(req.path, \"abc\"): 1 else: 0)";
    let counted = format!("  let scans = {scans}\n  count(all, max(scans, 1))\n");
    let costly = balancer(1).replace("  count(all)\n", &counted);
    assert_ne!(costly, balancer(1));
    changing.write(&costly);
    wait::until("the failed reload", || (changing.figure(FAILED_RELOADS) == 1).then_some(()));
    assert_eq!(get(&mut stream, "/version"), Ok("version 0".to_owned()));
    assert_eq!(get(&mut connect(changing.address()), "/version"), Ok("version 0".to_owned()), "a new client");
    assert_eq!(changing.figure("flick_config_generation"), 1);
    let (status, _, error) = common::run(&["reload", &changing.service.admin_address().to_string()]);
    assert!(status == 1 && error.contains("E0309") && error.contains("too much work"), "{status} {error}");
    changing.write(&balancer(2));
    wait::until("the reload", || (changing.figure("flick_config_generation") == 2).then_some(()));
    assert_eq!(get(&mut connect(changing.address()), "/version"), Ok("version 2".to_owned()));
    drop(stream);
    let log = changing.service.drained();
    assert!(log.contains("the reload failed") && log.contains("E0309"), "{log}");
}

#[test]
fn reload_keeps_state_with_the_same_declaration() {
    let changing = Changing::start("reload-state", &["--workers", "1"]);
    let asked = |expected: &str| {
        assert_eq!(get(&mut connect(changing.address()), "/asked"), Ok(expected.to_owned()));
    };
    asked("1");
    asked("2");
    let before = changing.figure("all_total");
    changing.write(&balancer(1));
    wait::until("the reload", || (changing.figure("flick_config_generation") == 2).then_some(()));
    asked("3");
    assert_eq!((before, changing.figure("all_total")), (2, 3));
    changing.write(&balancer(2).replace("max 100 entries", "max 200 entries"));
    wait::until("the reload", || (changing.figure("flick_config_generation") == 3).then_some(()));
    asked("1");
    assert_eq!(changing.figure("all_total"), 4);
    let log = changing.service.drained();
    assert!(log.contains("declaration changed") && log.contains("asked"), "{log}");
}

#[test]
fn flick_reload_prints_the_result() {
    let changing = Changing::start("reload-asked", &["--workers", "1"]);
    let at = changing.service.admin_address().to_string();
    changing.scratch.write("balancer.flick", &balancer(1));
    let (status, output, _) = common::run(&["reload", &at]);
    assert_eq!((status, output.trim_end()), (0, "generation 2; 1 service; `Balancer`: program changed"));
    assert_eq!(get(&mut connect(changing.address()), "/version"), Ok("version 1".to_owned()));
    changing.scratch.write("balancer.flick", &balancer(2).replace("count(all)", "count(none)"));
    let (status, _, error) = common::run(&["reload", &at]);
    assert!(status == 1 && error.contains("`none`") && error.contains("balancer.flick:"), "{error}");
    assert_eq!(get(&mut connect(changing.address()), "/version"), Ok("version 1".to_owned()));
    changing.service.drained();
}

#[test]
fn watch_reloads_a_changed_program() {
    let changing = Changing::start("reload-watch", &["--workers", "1", "--watch"]);
    let mut stream = connect(changing.address());
    assert_eq!(get(&mut stream, "/version"), Ok("version 0".to_owned()));
    changing.scratch.write("balancer.flick", &balancer(17));
    wait::until("the new version", || {
        (get(&mut stream, "/version") == Ok("version 17".to_owned())).then_some(())
    });
    drop(stream);
    changing.service.drained();
}

#[test]
fn watch_includes_the_program_of_a_failed_reload() {
    let scratch = Scratch::new("reload-watch-new");
    scratch.write("0.flick", &balancer(0));
    let settings = |program: &str| {
        let origin = load::origin();
        format!(
            "workers = 1\n[[service]]\nprogram = \"{program}\"\nlisten = {{ client = \"127.0.0.1:0\" }}\n\
             connect = {{ backends = [\"{origin}\"] }}\n"
        )
    };
    let file = scratch.write("flick.toml", &settings("0.flick"));
    let file = file.to_str().expect("the path is UTF-8");
    let service = Service::start(&["run", "--config", file, "--watch", "--admin", "0"]);
    scratch.write("1.flick", "nothing that compiles");
    scratch.write("flick.toml", &settings("1.flick"));
    let failed = || figure(service.admin_address(), FAILED_RELOADS);
    wait::until("a reload that fails", || (failed() > 0).then_some(()));
    scratch.write("1.flick", &balancer(1));
    wait::until("the new version", || {
        (get(&mut connect(service.address), "/version") == Ok("version 1".to_owned())).then_some(())
    });
    service.drained();
}

/// The process id that `flick upgrade` prints.
fn process_in(output: &str) -> u32 {
    let pid = output.trim().strip_prefix("process ").and_then(|pid| pid.parse().ok());
    pid.unwrap_or_else(|| panic!("`flick upgrade` prints a process id: {output}"))
}

/// Upgrades per test; `FLICK_UPGRADES` overrides it.
const UPGRADES: usize = 3;

#[test]
fn hot_restarts_under_load_lose_nothing() {
    let upgrades =
        std::env::var("FLICK_UPGRADES").ok().and_then(|count| count.parse().ok()).unwrap_or(UPGRADES);
    let scratch = Scratch::new("upgrade");
    let program = scratch.write("balancer.flick", &balancer(0));
    let admin = format!("unix:{}", scratch.path().join("admin").display());
    let connect_to = format!("backends={}", load::origin());
    let path = program.to_str().expect("the path is UTF-8");
    let args = [
        "run",
        path,
        "--listen",
        "client=127.0.0.1:0",
        "--connect",
        &connect_to,
        "--admin",
        &admin,
        "--workers",
        "1",
    ];
    let first = Service::start(&args);
    let address = first.address;
    let mut idle = connect(address);
    assert_eq!(get(&mut idle, "/version"), Ok("version 0".to_owned()));
    let load = Load::start(address, 3, 1, || Http);
    let mut current = OwnedPid(first.pid());
    for version in 1..=upgrades {
        scratch.write("balancer.flick", &balancer(version));
        let (status, output, error) = common::run(&["upgrade", &admin]);
        assert_eq!(status, 0, "{error}");
        let pid = process_in(&output);
        let before = std::mem::replace(&mut current, OwnedPid(pid));
        wait::until("the idle client to migrate", || {
            let text = get(&mut idle, "/version").expect("a response");
            (text == format!("version {version}")).then_some(())
        });
        if version > 1 {
            wait::until("the process before to end", || (!before.is_there()).then_some(()));
        }
        std::mem::forget(before);
        load.check();
    }
    // A new process that cannot start changes nothing.
    scratch.write("balancer.flick", "nothing that compiles");
    let (status, _, error) = common::run(&["upgrade", &admin]);
    assert!(status == 1 && error.contains("balancer.flick"), "{error}");
    assert_eq!(get(&mut connect(address), "/version"), Ok(format!("version {upgrades}")));
    let asked = load.stop();
    println!("{upgrades} upgrades, {asked} requests");
    drop(idle);
    common::peers::signal(current.0, "TERM");
    wait::until("the last process to end", || (!current.is_there()).then_some(()));
    let (status, log) = first.ended();
    assert_eq!(status.code(), Some(0), "{log}");
    // The kernel closes what io_uring still holds of an ended process later.
    wait::until("the listening socket to be closed", || TcpStream::connect(address).is_err().then_some(()));
}

#[test]
fn signals_do_not_interrupt_an_upgrade() {
    let scratch = Scratch::new("upgrade-signals");
    let program = scratch.write("balancer.flick", &balancer(0));
    let admin = format!("unix:{}", scratch.path().join("admin").display());
    let connect_to = format!("backends={}", load::origin());
    let path = program.to_str().expect("the path is UTF-8");
    let mut args = vec!["run", path, "--listen", "client=127.0.0.1:0", "--connect", &connect_to];
    args.extend(["--admin", &admin, "--workers", "1"]);
    let mut first = Service::start(&args);
    let (pid, is_over) = (first.pid(), AtomicBool::new(false));
    let (status, output, error) = std::thread::scope(|scope| {
        // The signal of log rotation. The process exists until it is waited for.
        scope.spawn(|| {
            // A hundred per second: each signal is sent by a process of its own.
            while !is_over.load(Ordering::Relaxed) {
                common::peers::signal(pid, "USR1");
                std::thread::park_timeout(Duration::from_millis(10));
            }
        });
        let outcome = common::run(&["upgrade", &admin]);
        is_over.store(true, Ordering::Relaxed);
        outcome
    });
    assert_eq!(status, 0, "{error}");
    let _second = OwnedPid(process_in(&output));
    assert_eq!(get(&mut connect(first.address), "/version"), Ok("version 0".to_owned()));
    assert_eq!(first.gone().code(), Some(0));
}
