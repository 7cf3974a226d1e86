//! Two services that are connected by TCP and use shared memory of their own accord, under load: one of them is
//! reloaded or upgraded.

use std::net::SocketAddr;

use super::common::service::Service;
use super::common::{Scratch, http, wait};
use super::load::{Http, Load, get};
use super::shared_memory::{reload, terminate, upgrade};
use super::{balancer, connect, figure, load};

const UPGRADED: &str = "flick_shm_upgraded_connections";
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

/// Asks for a page until connections of both services are upgraded.
pub(super) fn await_upgrade(front: SocketAddr, admins: [SocketAddr; 2], target: &str) {
    wait::until("an upgrade", || {
        // A service whose backend has just started may refuse a request.
        let _ = http::exchange(&mut connect(front), target);
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
        await_upgrade(
            chain.front.address,
            [chain.front.admin_address(), chain.back.admin_address()],
            "/page",
        );
    }
}

fn check_reloads(test: &str, io: &str) {
    let mut chain = Chain::start(test, &["--io", io, "--workers", "2", "--old-generation-timeout", "1s"]);
    let load = Load::start(chain.front.address, 6, 2, || Http);
    let admins = [chain.front.admin_address(), chain.back.admin_address()];
    await_upgrade(chain.front.address, admins, "/page");
    for version in 1..=3 {
        reload(&chain.back, &chain.scratch.path().join("back.flick"), version);
        load.check();
        reload(&chain.front, &chain.scratch.path().join("front.flick"), version);
        chain.expect_page();
        load.check();
        await_upgrade(chain.front.address, admins, "/page");
    }
    assert!(figure(admins[0], UPGRADES) >= 4 && figure(admins[1], UPGRADES) >= 4);
    let back = upgrade(admins[1]);
    assert_eq!(chain.back.gone().code(), Some(0));
    chain.expect_page();
    load.check();
    let front = upgrade(admins[0]);
    assert_eq!(chain.front.gone().code(), Some(0));
    chain.expect_page();
    await_upgrade(chain.front.address, admins, "/page");
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
