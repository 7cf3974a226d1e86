//! Two services that are connected by TCP and use shared memory of their own accord, under load: one of them is
//! reloaded, upgraded, killed or stopped.

use std::io::Write;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::common::service::Service;
use super::common::{self, Scratch, http, wait};
use super::load::{Http, Load, get};
use super::shared_memory::{reload, stop, terminate, upgrade};
use super::{balancer, connect, figure, load};

const UPGRADED: &str = "flick_shm_upgraded_connections";
/// Longest time from a kill to the answer: the end of the process, which frees its memory first, and a busy machine.
const NOTICED_MAX: Duration = Duration::from_millis(250);
const UPGRADES: &str = "flick_shm_upgrades_total";

/// A service before an origin server, and a service that clients reach before it, all through TCP.
struct Chain {
    scratch: Scratch,
    back: Service,
    front: Service,
}

impl Chain {
    fn start(test: &str, options: &[&str]) -> Self {
        let scratch = Scratch::new(test);
        scratch.write("back.flick", &balancer(0));
        scratch.write("front.flick", &balancer(0));
        let back = start(&scratch, "back", "127.0.0.1:0", load::origin(), options);
        let front = start(&scratch, "front", "127.0.0.1:0", back.address, options);
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

fn start(scratch: &Scratch, name: &str, listen: &str, to: SocketAddr, options: &[&str]) -> Service {
    let program = scratch.path().join(format!("{name}.flick")).display().to_string();
    let (listen, connect) = (format!("client={listen}"), format!("backends={to}"));
    let args = ["run", &program, "--listen", &listen, "--connect", &connect, "--admin", "0", "--shm", "auto"];
    Service::start(&[&args[..], options].concat())
}

/// Asks until connections of both services are upgraded.
fn await_upgrade(front: SocketAddr, admins: [SocketAddr; 2]) {
    let mut client = connect(front);
    wait::until("an upgrade", || {
        assert_eq!(get(&mut client, "/page"), Ok(load::PAGE.to_owned()));
        admins.iter().all(|admin| figure(*admin, UPGRADED) > 0).then_some(())
    });
}

#[test]
fn services_that_changed_their_user_moved_no_connection() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    for io in ["epoll", "auto"] {
        let chain = Chain::start("upgraded-user", &["--io", io, "--user", "65534:65534"]);
        await_upgrade(chain.front.address, [chain.front.admin_address(), chain.back.admin_address()]);
    }
}

fn check_reloads(test: &str, io: &str) {
    let mut chain = Chain::start(test, &["--io", io, "--workers", "2", "--old-generation-timeout", "1s"]);
    let load = Load::start(chain.front.address, 6, 2, || Http);
    let admins = [chain.front.admin_address(), chain.back.admin_address()];
    await_upgrade(chain.front.address, admins);
    for version in 1..=3 {
        reload(&chain.back, &chain.scratch.path().join("back.flick"), version);
        load.check();
        reload(&chain.front, &chain.scratch.path().join("front.flick"), version);
        chain.expect_page();
        load.check();
        await_upgrade(chain.front.address, admins);
    }
    assert!(figure(admins[0], UPGRADES) >= 4 && figure(admins[1], UPGRADES) >= 4);
    let back = upgrade(admins[1]);
    assert_eq!(chain.back.gone().code(), Some(0));
    chain.expect_page();
    load.check();
    let front = upgrade(admins[0]);
    assert_eq!(chain.front.gone().code(), Some(0));
    chain.expect_page();
    await_upgrade(chain.front.address, admins);
    assert!(load.stop() > 100, "that is a load");
    terminate(&front);
    terminate(&back);
}

#[test]
fn reloads_and_upgrades_lost_no_request_of_upgraded_connections_epoll() {
    check_reloads("upgraded-reload-epoll", "epoll");
}

#[test]
fn reloads_and_upgrades_lost_no_request_of_upgraded_connections_uring() {
    check_reloads("upgraded-reload-uring", "auto");
}

#[test]
fn killed_process_was_not_noticed_through_an_upgraded_connection() {
    let mut chain = Chain::start("upgraded-killed", &["--workers", "1"]);
    let listen = chain.back.address.to_string();
    for _ in 0..5 {
        await_upgrade(chain.front.address, [chain.front.admin_address(), chain.back.admin_address()]);
        let mut client = connect(chain.front.address);
        // The request is in flight when the process ends.
        stop(&chain.back);
        client.write_all(b"GET /page HTTP/1.1\r\nHost: a\r\n\r\n").expect("the service reads");
        std::thread::sleep(Duration::from_millis(20));
        let begun = Instant::now();
        common::peers::signal(chain.back.pid(), "KILL");
        let (status, _) = http::reply(&mut client).expect("an answer");
        assert!(status == 502 || status == 503, "{status}");
        let took = begun.elapsed();
        println!("noticed after {took:?}");
        assert!(took < NOTICED_MAX, "noticed after {took:?}");
        chain.back.gone();
        chain.back = start(&chain.scratch, "back", &listen, load::origin(), &["--workers", "1"]);
        wait::until("the successor to be used", || chain.page().ok());
    }
}

#[test]
fn killed_process_in_front_left_its_connections_behind() {
    let mut chain = Chain::start("upgraded-front-killed", &["--workers", "1"]);
    for _ in 0..5 {
        let back = chain.back.admin_address();
        await_upgrade(chain.front.address, [chain.front.admin_address(), back]);
        common::peers::signal(chain.front.pid(), "KILL");
        chain.front.gone();
        wait::until("all connections to end", || {
            (figure(back, UPGRADED) == 0 && figure(back, "flick_client_connections") == 0).then_some(())
        });
        chain.front = start(&chain.scratch, "front", "127.0.0.1:0", chain.back.address, &["--workers", "1"]);
        chain.expect_page();
    }
}
