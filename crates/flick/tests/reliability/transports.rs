//! IPv4, IPv6 and Unix sockets, on both sides of the proxy.

use std::net::{Ipv6Addr, SocketAddr};
use std::process::Command;

use flick_load::binary::Status;
use flick_load::store::EmbeddedStore;
use flick_net::Endpoint;

use crate::common::process::OwnedChild;
use crate::common::{Scratch, peers, wait};
use crate::machine;
use crate::proxy::{IOS, Proxy};
use crate::wire::{Client, get, key_on, set};

#[test]
fn ipv6_and_unix_sockets_work_end_to_end() {
    let _machine = machine::together();
    for io in IOS {
        let scratch = Scratch::new(&format!("transports-{io:?}"));
        let six = SocketAddr::from((Ipv6Addr::LOCALHOST, 0));
        let store = EmbeddedStore::start(six).expect("the loopback speaks IPv6");
        let server = UnixMemcached::start(&scratch);
        let backends = vec![Endpoint::Tcp(store.addr()), Endpoint::Unix(server.path.clone())];
        let socket = scratch.path().join("client.sock");
        let proxy = Proxy::start_at(backends, io, |config| {
            let four = SocketAddr::from(([127, 0, 0, 1], 0));
            config.workers = 2;
            config.listen[0].endpoints =
                vec![Endpoint::Tcp(four), Endpoint::Tcp(six), Endpoint::Unix(socket.clone())];
        });
        (0..2).for_each(|backend| proxy.until_backend(backend, 2));
        let endpoints = proxy.endpoints();
        assert_eq!(endpoints.len(), 3, "{endpoints:?}");
        let keys = [key_on(0, 2, "six"), key_on(1, 2, "unix")];
        for (round, endpoint) in endpoints.iter().enumerate() {
            let mut clients: Vec<Client> = (0..8).map(|_| Client::to(endpoint)).collect();
            for (opaque, client) in (0_u32..).zip(&mut clients) {
                for key in &keys {
                    let value = format!("{key} {round} {opaque} ").repeat(3_000);
                    let written = client.ask(&set(opaque, key, value.as_bytes()));
                    assert_eq!(written.outcome(), (Some(Status::NoError), opaque), "{io:?}, {endpoint}");
                    let read = client.ask(&get(opaque, key));
                    assert!(read.value() == value.as_bytes(), "{io:?}, {endpoint}");
                }
            }
        }
        // What one kind of client wrote, the others read.
        for endpoint in &endpoints {
            for key in &keys {
                let read = Client::to(endpoint).ask(&get(1, key));
                assert!(read.value().starts_with(format!("{key} 2 7 ").as_bytes()), "{io:?}, {endpoint}");
            }
        }
        drop(proxy);
        assert!(!socket.exists(), "{io:?}: the socket's file goes with its service");
    }
}

/// A memcached on a Unix socket; ended by its own handle.
struct UnixMemcached {
    _child: OwnedChild,
    path: std::path::PathBuf,
}

impl UnixMemcached {
    fn start(scratch: &Scratch) -> Self {
        let path = scratch.path().join("memcached.sock");
        let user = if rustix::process::geteuid().is_root() { &["-u", "root"][..] } else { &[] };
        let mut command = Command::new("memcached");
        command.arg("-s").arg(&path).args(["-a", "0666", "-m", "64"]).args(user);
        let child = OwnedChild(peers::spawn(&mut command, "memcached"));
        wait::until("memcached to listen", || std::os::unix::net::UnixStream::connect(&path).ok().map(drop));
        Self { _child: child, path }
    }
}
