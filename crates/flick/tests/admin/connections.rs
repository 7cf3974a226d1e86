//! The list of connections: what carries the bytes of each, and the name by which `flick tap` knows it.

use std::net::SocketAddr;

use super::common::http::Backend;
use super::common::service::{Service, seen};
use super::common::{self, wait};

fn listed(service: &Service) -> serde_json::Value {
    let (status, text) = seen(service.admin_address(), "/api/sessions");
    assert_eq!(status, 200, "{text}");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn connections_are_listed_with_their_transport() {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let backend = Backend::start_at(any, |_, _| b"page".to_vec(), 0).expect("a free port");
    let program = common::root().join("examples/http_balancer/round_robin.flick");
    let name = format!("connections-{}", std::process::id());
    let listen = format!("client=127.0.0.1:0,shm:{name}");
    let connect = format!("backends={}", backend.address);
    let program = program.to_str().expect("a path of the repository");
    let args = ["run", program, "--listen", &listen, "--connect", &connect, "--workers", "1", "--admin", "0"];
    let service = Service::start(&[&args[..], &["--shm", "auto"]].concat());
    let mut tcp = common::client::connect(service.address);
    common::http::exchange(&mut tcp, "/").expect("a reply");
    let ring = common::client::on_ring(&name);
    let all = wait::until("both clients to be listed", || {
        let all = listed(&service);
        (all["sessions"].as_array()?.len() == 2).then_some(all)
    });
    let own = tcp.local_addr().expect("it is connected").to_string();
    let find = |client: &str| {
        let sessions = all["sessions"].as_array().expect("a list");
        sessions.iter().find(|session| session["client"] == client).cloned().expect("it is listed")
    };
    let carried = |client: &str| {
        let found = find(client);
        (found["transport"].clone(), found["plain_reason"].clone())
    };
    assert_eq!(carried(&own), ("tcp".into(), "not_asked".into()), "{all}");
    assert_eq!(carried("shm"), ("shm".into(), "".into()), "{all}");
    assert!(find("shm")["wake_ups"].is_u64(), "{all}");
    assert_ne!(find(&own)["id"], find("shm")["id"], "{all}");
    let upstream = &all["backend_connections"][0];
    assert_eq!(upstream["backend"], backend.address.to_string(), "{all}");
    assert_eq!((&upstream["channel"], &upstream["transport"]), (&"backends".into(), &"tcp".into()), "{all}");
    assert_eq!(upstream["plain_reason"], "few_exchanges", "{all}");
    let has_bytes = |name: &str| upstream[name].as_u64().is_some_and(|bytes| bytes > 20);
    assert!(has_bytes("bytes_in") && has_bytes("bytes_out"), "{all}");
    let admin = service.admin_address().to_string();
    let (status, shown, error) = common::run(&["top", &admin, "--once", "--connections"]);
    assert_eq!(status, 0, "{error}");
    assert!(shown.contains("Shared memory") && shown.contains("wake-ups/s"), "{shown}");
    assert!(shown.contains("Connections") && shown.contains(&format!("client {own}")), "{shown}");
    drop((tcp, ring));
    service.drained();
    backend.stop();
}
