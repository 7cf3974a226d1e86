//! Two services that talk through shared memory, under load: one of them is reloaded, upgraded or stopped.

use std::net::SocketAddr;
use std::process::Stdio;

use super::common::process::OwnedPid;
use super::common::service::Service;
use super::common::{self, Scratch, wait};
use super::load::{Http, Load, get};
use super::{FAILED_RELOADS, RELOADS_TOTAL, balancer, connect, figure, load};

/// A service at `shm:NAME` before an origin server, and a service that clients reach by TCP before it.
struct Chain {
    scratch: Scratch,
    back: Service,
    front: Service,
}

impl Chain {
    fn start(test: &str, front_options: &[&str]) -> Self {
        let scratch = Scratch::new(test);
        scratch.write("back.flick", &balancer(0));
        scratch.write("front.flick", &balancer(0));
        let name = format!("{test}-{}", std::process::id());
        let back = start_back(&scratch, &name, &[]);
        let front = start_front(&scratch, &format!("shm:{name}"), front_options);
        Self { scratch, back, front }
    }

    /// Requests a page of the origin through both services.
    fn page(&self) -> Result<String, String> {
        get(&mut connect(self.front.address), "/page")
    }

    fn expect_page(&self) {
        assert_eq!(self.page(), Ok(load::PAGE.to_owned()));
    }
}

fn start_back(scratch: &Scratch, name: &str, more: &[&str]) -> Service {
    let program = scratch.path().join("back.flick").display().to_string();
    let (listen, connect) =
        (format!("client=127.0.0.1:0,shm:{name}"), format!("backends={}", load::origin()));
    // Idle connections through shared memory stay with their process that long.
    let options = ["--admin", "0", "--workers", "2", "--old-generation-timeout", "1s"];
    let args = ["run", &program, "--listen", &listen, "--connect", &connect];
    Service::start(&[&args[..], &options, more].concat())
}

fn start_front(scratch: &Scratch, backends: &str, options: &[&str]) -> Service {
    let program = scratch.path().join("front.flick").display().to_string();
    let connect = format!("backends={backends}");
    let args = ["run", &program, "--listen", "client=127.0.0.1:0", "--connect", &connect, "--admin", "0"];
    Service::start(&[&args[..], options].concat())
}

pub(super) fn reload(service: &Service, program: &std::path::Path, version: usize) {
    std::fs::write(program, balancer(version)).expect("the directory is the test's");
    let admin = service.admin_address();
    let before = figure(admin, RELOADS_TOTAL);
    service.signal("HUP");
    wait::until("the reload", || {
        assert_eq!(figure(admin, FAILED_RELOADS), 0, "a reload failed");
        (figure(admin, RELOADS_TOTAL) > before).then_some(())
    });
}

/// Upgrades a service; the process that follows.
pub(super) fn upgrade(admin: SocketAddr) -> OwnedPid {
    let (status, stdout, error) = common::run(&["upgrade", &admin.to_string()]);
    assert_eq!(status, 0, "{error}");
    let second = stdout.trim().strip_prefix("process ").and_then(|pid| pid.parse().ok());
    OwnedPid(second.expect("it says which"))
}

/// Stops a process, and waits until all its threads have stopped.
pub(super) fn stop(service: &Service) {
    common::peers::signal(service.pid(), "STOP");
    let is_stopped = |thread: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" T"))
    };
    wait::until("the process to stop", || {
        let threads = std::fs::read_dir(format!("/proc/{}/task", service.pid())).ok()?;
        threads.flatten().all(is_stopped).then_some(())
    });
}

pub(super) fn terminate(process: &OwnedPid) {
    common::peers::signal(process.0, "TERM");
    wait::until("the process to end", || (!process.is_there()).then_some(()));
}

#[test]
fn services_that_changed_their_user_did_not_connect_through_shared_memory() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let scratch = Scratch::new("shm-user");
    scratch.write("back.flick", &balancer(0));
    scratch.write("front.flick", &balancer(0));
    let (name, user) = (format!("shm-user-{}", std::process::id()), ["--user", "65534:65534"]);
    let _back = start_back(&scratch, &name, &user);
    let front = start_front(&scratch, &format!("shm:{name}"), &user);
    wait::until("a page through shared memory", || {
        let page = get(&mut connect(front.address), "/page");
        (page.as_deref() == Ok(load::PAGE)).then_some(())
    });
}

fn check_reloads(test: &str, io: &str) {
    let mut chain = Chain::start(test, &["--io", io, "--workers", "2", "--old-generation-timeout", "1s"]);
    let load = Load::start(chain.front.address, 6, 2, || Http);
    for version in 1..=3 {
        reload(&chain.back, &chain.scratch.path().join("back.flick"), version);
        load.check();
        reload(&chain.front, &chain.scratch.path().join("front.flick"), version);
        chain.expect_page();
        load.check();
    }
    let back = upgrade(chain.back.admin_address());
    assert_eq!(chain.back.gone().code(), Some(0));
    chain.expect_page();
    load.check();
    let front = upgrade(chain.front.admin_address());
    assert_eq!(chain.front.gone().code(), Some(0));
    chain.expect_page();
    assert!(load.stop() > 100, "that is a load");
    terminate(&front);
    terminate(&back);
}

#[test]
fn reloads_and_upgrades_lost_no_request_through_shared_memory_epoll() {
    check_reloads("shm-reload-epoll", "epoll");
}

#[test]
fn reloads_and_upgrades_lost_no_request_through_shared_memory_uring() {
    check_reloads("shm-reload-uring", "auto");
}

/// `flick load` connects through shared memory itself, as other programs with the client do.
#[test]
fn reload_and_upgrade_failed_connects_of_clients_through_shared_memory() {
    let scratch = Scratch::new("shm-clients");
    scratch.write("back.flick", &balancer(0));
    let name = format!("shm-clients-{}", std::process::id());
    let mut back = start_back(&scratch, &name, &[]);
    let url = format!("http://shm:{name}/page");
    let mut load = common::flick();
    load.args(["load", &url, "--connections", "8", "--rate", "500", "--warm-up", "0", "--duration", "60s"]);
    load.args(["--json"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let load = load.spawn().expect("the tool starts");
    for version in 1..=3 {
        // Connections of the load are there before the reload.
        wait::until("the load to connect", || {
            (figure(back.admin_address(), "flick_shm_connections") >= 8).then_some(())
        });
        reload(&back, &scratch.path().join("back.flick"), version);
    }
    let second = upgrade(back.admin_address());
    assert_eq!(back.gone().code(), Some(0));
    common::peers::signal(load.id(), "INT");
    let output = load.wait_with_output().expect("it is a child");
    let found = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{found}{}", String::from_utf8_lossy(&output.stderr));
    terminate(&second);
}

#[test]
fn stopped_process_held_other_connections() {
    let scratch = Scratch::new("shm-stopped");
    scratch.write("back.flick", &balancer(0));
    scratch.write("front.flick", &balancer(0));
    let names = ["a", "b"].map(|which| format!("shm-stopped-{which}-{}", std::process::id()));
    let backs = names.each_ref().map(|name| start_back(&scratch, name, &[]));
    let options = ["--workers", "1", "--response-timeout", "1s"];
    let front = start_front(&scratch, &format!("shm:{},shm:{}", names[0], names[1]), &options);
    for _ in 0..4 {
        assert_eq!(get(&mut connect(front.address), "/page"), Ok(load::PAGE.to_owned()));
    }
    stop(&backs[0]);
    let load = Load::start(front.address, 2, 0, || Version);
    let mut answered = 0;
    for _ in 0..6 {
        answered += usize::from(get(&mut connect(front.address), "/page").is_ok());
    }
    assert!(answered >= 3, "only {answered} of 6 requests were answered by the process that runs");
    assert!(load.stop() > 100, "the service itself answers all the time");
    common::peers::signal(backs[0].pid(), "CONT");
    wait::until("both to be used again", || {
        let all = (0..4).all(|_| get(&mut connect(front.address), "/page").is_ok());
        all.then_some(())
    });
}

/// Asks the service in front only.
struct Version;

impl load::Asks for Version {
    fn ask(&mut self, stream: &mut std::net::TcpStream, _: u64) -> Result<(), String> {
        get(stream, "/version").map(drop)
    }
}
