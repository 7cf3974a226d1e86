//! Lists of backends that come from a file or from name servers and change while the service runs: `flick run` before
//! origins that say who they are, and a name server of the test's own.

mod common;
#[path = "changing_backends/operator.rs"]
mod operator;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::http::{self, Backend, numbered};
use common::process::OwnedPid;
use common::service::Service;
use common::wait;
use common::{Scratch, client, peers};
use domain::base::iana::Rcode;
use domain::base::{Message, MessageBuilder, Name, Rtype, Ttl};
use domain::rdata::{A, Aaaa, Ns, Srv};

const BALANCER: &str = "examples/http_balancer/round_robin.flick";

/// Origins at `127.0.0.2`, `127.0.0.3`, ... with one port; each answers with the last number of its address.
fn origins(count: u8) -> Vec<SocketAddr> {
    let start = |last: u8, port| {
        Backend::start_at(SocketAddr::from(([127, 0, 0, last], port)), numbered, usize::from(last))
    };
    wait::until("a port that is free everywhere", || {
        let first = start(2, 0)?;
        let port = first.address.port();
        let others = (1..count).map(|at| start(2 + at, port)).collect::<Option<Vec<Backend>>>()?;
        Some([first].iter().chain(&others).map(|backend| backend.address).collect())
    })
}

/// Sends one request and returns the last number of the address that answers, or the status if it is an error.
fn ask(service: SocketAddr) -> u16 {
    let (status, body) = http::exchange(&mut client::connect(service), "/").expect("a reply");
    let who = String::from_utf8_lossy(&body).parse();
    if status == 200 { who.expect("an origin says who it is") } else { status }
}

/// Waits until twelve requests in a row are answered by these, so often by each. The service has one worker.
fn shares(service: &Service, expected: &[(u16, usize)]) {
    wait::until(&format!("answers by weight, {expected:?}"), || {
        let seen: Vec<u16> = (0..12).map(|_| ask(service.address)).collect();
        let had = |who| seen.iter().filter(|other| **other == who).count();
        expected.iter().all(|(who, count)| had(*who) == *count).then_some(())
    });
}

/// Waits until requests are answered by exactly these. Until then, others in `borne` may answer.
fn check(service: &Service, expected: &[u16], borne: &[u16]) {
    let expected: BTreeSet<u16> = expected.iter().copied().collect();
    wait::until(&format!("answers of {expected:?} only"), || {
        let seen: BTreeSet<u16> = (0..12).map(|_| ask(service.address)).collect();
        assert!(
            seen.iter().all(|who| expected.contains(who) || borne.contains(who)),
            "{seen:?}: neither {expected:?} nor {borne:?}"
        );
        (seen == expected).then_some(())
    });
}

/// Expects that only these answer, for longer than a change takes to apply.
fn stays(service: &Service, expected: &[u16]) {
    let _: Option<()> = wait::within(Duration::from_secs(2), || {
        assert!(expected.contains(&ask(service.address)), "what is wrong changes nothing");
        None
    });
}

#[test]
fn changed_file_is_followed_and_a_malformed_one_is_not() {
    let origins = origins(3);
    let scratch = Scratch::new("changing-file");
    let list = |text: &str| scratch.write("list", text);
    let path = list(&format!("# one\n{}\n", origins[0]));
    let connect = format!("backends=file:{}", path.display());
    let service = Service::start(&["run", BALANCER, "--listen", "client=127.0.0.1:0", "--connect", &connect]);
    check(&service, &[2], &[]);
    list(&format!("{}\n{}\n{}\n", origins[0], origins[1], origins[2]));
    check(&service, &[2, 3, 4], &[]);
    list(&format!("{}\n", origins[2]));
    check(&service, &[4], &[2, 3]);
    list("localhost:80\n");
    list(&format!("{}\nnot an address\n", origins[0]));
    stays(&service, &[4]);
    list("# empty\n");
    check(&service, &[502], &[4]);
    list(&format!("{}\n", origins[1]));
    check(&service, &[3], &[502]);
    service.signal("HUP");
    list(&format!("{}\n", origins[0]));
    check(&service, &[2], &[3]);
    list(&format!("{}\n", origins[2]));
    check(&service, &[4], &[2]);
    let log = service.drained();
    assert!(log.contains("backend list not updated"), "{log}");
    assert!(log.contains("/list:"), "the line is named: {log}");
}

/// A balancer whose clients have something of their own from their first request on: they stay where they are.
const STICKY: &str = "use http

proc Sticky: (request/response client, [response/request] backends)
  local seen := 0
  | backends => client
  | client => go(backends)

fun go: ([-/request] backends, req: request) -> ()
  seen := seen + 1
  req => backends[round_robin(backends)]
";

#[test]
fn old_generation_follows_backend_lists() {
    let origins = origins(2);
    let scratch = Scratch::new("changing-older");
    let program = scratch.write("sticky.flick", STICKY);
    let list = scratch.write("list", &format!("{}\n", origins[0]));
    let (program, connect) = (program.display().to_string(), format!("backends=file:{}", list.display()));
    let fixed = ["--listen", "client=127.0.0.1:0", "--admin", "0", "--connect", &connect];
    let service = Service::start(&[&["run", program.as_str()], &fixed[..]].concat());
    let mut stays = client::connect(service.address);
    let mut asks = move || {
        let (status, body) = http::exchange(&mut stays, "/").expect("a reply");
        (status, String::from_utf8_lossy(&body).into_owned())
    };
    assert_eq!(asks(), (200, "2".to_owned()));
    let (status, _, error) = common::run(&["reload", &service.admin_address().to_string()]);
    assert_eq!(status, 0, "{error}");
    assert_eq!(asks(), (200, "2".to_owned()));
    scratch.write("list", &format!("{}\n", origins[1]));
    wait::until("the new list", || (asks() == (200, "3".to_owned())).then_some(()));
    service.drained();
}

/// The connection was said to be one to the backend that has its number in the list now.
#[test]
fn connection_to_a_removed_backend_was_listed_as_one_to_another() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let (silent_address, origins) = (silent.local_addr().expect("it is bound"), origins(1));
    let scratch = Scratch::new("changing-listed");
    let list = scratch.write("list", &format!("{silent_address}\n"));
    let connect = format!("backends=file:{}", list.display());
    let fixed = ["run", BALANCER, "--listen", "client=127.0.0.1:0", "--admin", "0", "--connect", &connect];
    let service = Service::start(&[&fixed[..], &["--workers", "1"]].concat());
    let mut waits = client::connect(service.address);
    waits.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("the service reads");
    let busy = || {
        let (_, text) = common::service::seen(service.admin_address(), "/api/sessions");
        let all: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let conns = all["backend_connections"].as_array().expect("a list").iter();
        let busy = conns.filter(|conn| conn["inflight"] == 1).map(|conn| conn["backend"].to_string());
        busy.collect::<Vec<_>>()
    };
    let expected = vec![format!("\"{silent_address}\"")];
    wait::until("the request", || (busy() == expected).then_some(()));
    scratch.write("list", &format!("{}\n", origins[0]));
    // The backend that answers has the first number now.
    wait::until("the new list", || {
        let (_, text) = common::service::seen(service.admin_address(), "/metrics");
        text.contains(&origins[0].to_string()).then_some(())
    });
    check(&service, &[2], &[502]);
    assert_eq!(busy(), expected, "the request is at the backend that was removed");
    drop((waits, silent));
    service.drained();
}

#[test]
fn reload_keeps_the_slow_start_of_a_backend() {
    const ASKED: usize = 600;
    let origins = origins(2);
    let scratch = Scratch::new("changing-slow");
    let list = scratch.write("list", &format!("{}\n", origins[0]));
    let connect = format!("backends=file:{}", list.display());
    let fixed = ["run", BALANCER, "--listen", "client=127.0.0.1:0", "--admin", "0", "--connect", &connect];
    let service = Service::start(&[&fixed[..], &["--workers", "1", "--slow-start", "1h"]].concat());
    scratch.write("list", &format!("{}\n{}\n", origins[0], origins[1]));
    wait::until("the new backend", || {
        let (_, text) = common::service::seen(service.admin_address(), "/metrics");
        text.contains(&origins[1].to_string()).then_some(())
    });
    // One of 20, drawn at random: 60 of 600 come up once in 10^7 runs; 300 without slow start.
    let of_new = || (0..ASKED).filter(|_| ask(service.address) == 3).count();
    let before = of_new();
    assert!(before < ASKED / 10, "{before} of {ASKED} have just begun");
    let (status, _, error) = common::run(&["reload", &service.admin_address().to_string()]);
    assert_eq!(status, 0, "{error}");
    let behind = of_new();
    assert!(behind < ASKED / 10, "{behind} of {ASKED} behind the reload");
    service.drained();
}

#[test]
fn weights_in_a_file_apply() {
    let origins = origins(2);
    let scratch = Scratch::new("changing-weights");
    let list = |text: &str| scratch.write("list", text);
    let path = list(&format!("{} weight=3 # three of four\n{}\n", origins[0], origins[1]));
    let connect = format!("backends=file:{}", path.display());
    let args = ["run", BALANCER, "--listen", "client=127.0.0.1:0", "--workers", "1", "--connect", &connect];
    let service = Service::start(&args);
    shares(&service, &[(2, 9), (3, 3)]);
    list(&format!("{}\n{} weight=2\n", origins[0], origins[1]));
    shares(&service, &[(2, 4), (3, 8)]);
    list(&format!("{}\n{} weight=none\n", origins[0], origins[1]));
    stays(&service, &[2, 3]);
    shares(&service, &[(2, 4), (3, 8)]);
    // No server listens at the first.
    list(&format!("{}\n{} backup\n", peers::free_address(), origins[1]));
    check(&service, &[3], &[2, 502]);
    list(&format!("{} backup\n{}\n", origins[1], origins[0]));
    check(&service, &[2], &[3]);
    let log = service.drained();
    assert!(log.contains("unknown parameter `weight=none`"), "{log}");

    let connect = format!("backends={} weight=5,{}", origins[0], origins[1]);
    let args = ["run", BALANCER, "--listen", "client=127.0.0.1:0", "--workers", "1", "--connect", &connect];
    let service = Service::start(&args);
    shares(&service, &[(2, 10), (3, 2)]);
    service.drained();
}

/// Answers of the name server.
#[derive(Clone, Default)]
struct Zone {
    /// Last numbers of the addresses of `origin.test` and `other.test`.
    addresses: Vec<u8>,
    /// Targets of `_http._tcp.test`: priority, weight, port, name.
    targets: Vec<(u16, u16, u16, &'static str)>,
    /// It refuses to answer.
    fails: bool,
    /// It fails to look this kind up.
    fails_for: Option<Rtype>,
    /// It does not answer questions of this kind.
    silent_for: Option<Rtype>,
    /// It fails to look this name up.
    fails_name: Option<&'static str>,
    /// It refers to other name servers.
    refers: bool,
    /// `origin.test` has an IPv6 address.
    has_ipv6: bool,
    /// There is no such name.
    is_gone: bool,
    /// Answers over UDP are cut.
    cuts: bool,
    /// It does not answer.
    is_silent: bool,
    /// Questions since this was said.
    asked: usize,
}

impl Zone {
    /// The answer to a question; an empty one is not sent.
    fn answer(&mut self, question: &[u8], over_udp: bool) -> Vec<u8> {
        self.asked += 1;
        let message = Message::from_octets(question).expect("a question");
        let asked = message.sole_question().expect("one question");
        if self.is_silent || self.silent_for == Some(asked.qtype()) {
            return Vec::new();
        }
        let fails_name = self.fails_name.is_some_and(|name| asked.qname().to_string() == name);
        let fails = self.fails || self.fails_for == Some(asked.qtype()) || fails_name;
        let code = match (fails, self.is_gone) {
            (true, _) => Rcode::SERVFAIL,
            (_, true) => Rcode::NXDOMAIN,
            _ => Rcode::NOERROR,
        };
        let mut answer = MessageBuilder::new_vec().start_answer(&message, code).expect("room");
        let (owner, ttl) = (*asked.qname(), Ttl::from_secs(1));
        if self.cuts && over_udp {
            answer.header_mut().set_tc(true);
            return answer.finish();
        }
        if self.refers {
            let mut authority = answer.authority();
            let server: Name<Vec<u8>> = "a.root-servers.net.".parse().expect("a name");
            authority.push((owner, ttl, Ns::new(server))).expect("room");
            return authority.finish();
        }
        if code == Rcode::NOERROR && asked.qtype() == Rtype::A {
            // `other.test` is at the last address only, `origin.test` at the others then.
            let (name, last) = (owner.to_string(), self.addresses.len().saturating_sub(1));
            let is_one = |at: usize| match name.as_str() {
                "nothing.test" => false,
                "other.test" => at == last,
                _ => at != last || !self.targets.iter().any(|target| target.3 == "other.test."),
            };
            let addresses =
                self.addresses.iter().enumerate().filter(|(at, _)| is_one(*at)).map(|(_, last)| last);
            for last in addresses {
                let a = A::from_octets(127, 0, 0, *last);
                answer.push((owner, ttl, a)).expect("room");
            }
        }
        if code == Rcode::NOERROR && asked.qtype() == Rtype::AAAA && self.has_ipv6 {
            answer.push((owner, ttl, Aaaa::new(Ipv6Addr::LOCALHOST))).expect("room");
        }
        if code == Rcode::NOERROR && asked.qtype() == Rtype::SRV {
            for (priority, weight, port, name) in &self.targets {
                let target: Name<Vec<u8>> = name.parse().expect("a name");
                answer.push((owner, ttl, Srv::new(*priority, *weight, *port, target))).expect("room");
            }
        }
        answer.finish()
    }
}

/// A name server on loopback, over UDP and TCP.
fn name_server(zone: &Arc<Mutex<Zone>>) -> SocketAddr {
    let (udp, tcp) = wait::until("a port for both", || {
        let udp = UdpSocket::bind("127.0.0.1:0").ok()?;
        let tcp = TcpListener::bind(udp.local_addr().ok()?).ok()?;
        Some((udp, tcp))
    });
    let at = udp.local_addr().expect("it is bound");
    let (of_udp, of_tcp) = (Arc::clone(zone), Arc::clone(zone));
    std::thread::spawn(move || {
        let mut bytes = [0; 512];
        while let Ok((len, from)) = udp.recv_from(&mut bytes) {
            let answer = of_udp.lock().expect("no holder panics").answer(&bytes[..len], true);
            if !answer.is_empty() {
                udp.send_to(&answer, from).expect("loopback takes it");
            }
        }
    });
    std::thread::spawn(move || {
        for mut stream in tcp.incoming().flatten() {
            let mut len = [0; 2];
            stream.read_exact(&mut len).expect("a length");
            let mut bytes = vec![0; usize::from(u16::from_be_bytes(len))];
            stream.read_exact(&mut bytes).expect("a question");
            let answer = of_tcp.lock().expect("no holder panics").answer(&bytes, false);
            let len = u16::try_from(answer.len()).expect("short").to_be_bytes();
            stream.write_all(&[&len, answer.as_slice()].concat()).expect("it reads");
        }
    });
    at
}

/// A balancer before `source`, which asks a name server of this zone.
fn balancer(source: &str, zone: &Arc<Mutex<Zone>>) -> Service {
    balancer_with(source, zone, &[])
}

/// The same with further arguments.
fn balancer_with(source: &str, zone: &Arc<Mutex<Zone>>, extra: &[&str]) -> Service {
    let (connect, resolver) = (format!("backends={source}"), name_server(zone).to_string());
    let listen = ["--listen", "client=127.0.0.1:0", "--connect", &connect, "--resolver", &resolver];
    Service::start(&[&["run", BALANCER, "--workers", "1"][..], &listen, extra].concat())
}

#[test]
fn name_is_resolved_again_after_its_ttl() {
    let origins = origins(3);
    let zone = Arc::new(Mutex::new(Zone { addresses: vec![2], ..Zone::default() }));
    let say = |to: Zone| *zone.lock().expect("no holder panics") = to;
    let service = balancer(&format!("dns:origin.test:{}", origins[0].port()), &zone);
    check(&service, &[2], &[]);
    say(Zone { addresses: vec![4, 3], ..Zone::default() });
    check(&service, &[3, 4], &[2]);
    say(Zone { fails: true, ..Zone::default() });
    stays(&service, &[3, 4]);
    say(Zone { addresses: vec![2], cuts: true, ..Zone::default() });
    check(&service, &[2], &[3, 4]);
    say(Zone { is_gone: true, ..Zone::default() });
    check(&service, &[502], &[2]);
    say(Zone { addresses: vec![3], ..Zone::default() });
    check(&service, &[3], &[502]);
    let log = service.drained();
    assert!(log.contains("response code SERVFAIL"), "{log}");
    let empty: Vec<&str> = log.lines().filter(|line| line.contains("backend list is empty")).collect();
    assert!(empty.len() == 1 && empty[0].contains("the name does not exist or has no records"), "{log}");
}

#[test]
fn name_that_does_not_exist_is_logged_at_the_start() {
    let zone = Arc::new(Mutex::new(Zone { is_gone: true, ..Zone::default() }));
    let log = balancer("dns:origin.test:80", &zone).drained();
    assert!(log.contains("WARN") && log.contains("backend list is empty"), "{log}");
}

#[test]
fn srv_priorities_and_weights_apply() {
    let origins = origins(2);
    let port = origins[0].port();
    let first = Zone {
        addresses: vec![2],
        targets: vec![(20, 0, 1, "nothing.test."), (10, 0, port, "origin.test.")],
        ..Zone::default()
    };
    let zone = Arc::new(Mutex::new(first));
    let service = balancer("srv:_http._tcp.test", &zone);
    check(&service, &[2], &[]);
    let targets = vec![(10, 0, port, "origin.test.")];
    *zone.lock().expect("no holder panics") = Zone { addresses: vec![3], targets, ..Zone::default() };
    check(&service, &[3], &[2]);
    let targets = vec![(10, 30, port, "origin.test."), (10, 10, port, "other.test.")];
    *zone.lock().expect("no holder panics") = Zone { addresses: vec![2, 3], targets, ..Zone::default() };
    shares(&service, &[(2, 9), (3, 3)]);
    let targets = vec![(10, 0, 1, "other.test."), (20, 0, port, "origin.test.")];
    *zone.lock().expect("no holder panics") = Zone { addresses: vec![2, 3], targets, ..Zone::default() };
    check(&service, &[2], &[3, 502]);
    service.drained();
}

#[test]
fn service_starts_without_its_name_server() {
    let origins = origins(1);
    assert_eq!(origins[0].ip(), IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)));
    let zone = Arc::new(Mutex::new(Zone { fails: true, ..Zone::default() }));
    let service = balancer(&format!("dns:origin.test:{}", origins[0].port()), &zone);
    check(&service, &[502], &[]);
    *zone.lock().expect("no holder panics") = Zone { addresses: vec![2], ..Zone::default() };
    check(&service, &[2], &[502]);
    service.drained();
}

#[test]
fn upgrade_needs_the_name_server() {
    let origins = origins(1);
    let zone = Arc::new(Mutex::new(Zone { addresses: vec![2], ..Zone::default() }));
    let scratch = Scratch::new("changing-upgrade");
    let admin = format!("unix:{}", scratch.path().join("admin").display());
    let source = format!("dns:origin.test:{}", origins[0].port());
    let mut service = balancer_with(&source, &zone, &["--admin", &admin]);
    check(&service, &[2], &[]);
    *zone.lock().expect("no holder panics") = Zone { fails: true, ..Zone::default() };
    let (status, _, error) = common::run(&["upgrade", &admin]);
    assert!(status == 1 && error.contains("response code SERVFAIL"), "{error}");
    stays(&service, &[2]);
    *zone.lock().expect("no holder panics") = Zone { addresses: vec![2], ..Zone::default() };
    let (status, stdout, error) = common::run(&["upgrade", &admin]);
    assert_eq!(status, 0, "{error}");
    let second = stdout.trim().strip_prefix("process ").and_then(|pid| pid.parse().ok());
    let _second = OwnedPid(second.expect("it says which"));
    assert_eq!(service.gone().code(), Some(0));
    check(&service, &[2], &[]);
}

#[test]
fn reload_keeps_the_backends_of_a_failed_lookup() {
    let origins = origins(2);
    let zone = Arc::new(Mutex::new(Zone { addresses: vec![2], ..Zone::default() }));
    let say = |to: Zone| *zone.lock().expect("no holder panics") = to;
    let scratch = Scratch::new("changing-reload");
    let program = common::root().join(BALANCER).display().to_string();
    let write = |name: &str| {
        let source = format!("dns:{name}:{}", origins[0].port());
        let text = format!(
            "workers = 1\n[admin]\nlisten = \"127.0.0.1:0\"\n[[service]]\nprogram = \"{program}\"\n\
             listen = {{ client = \"127.0.0.1:0\" }}\nconnect = {{ backends = [\"{source}\"] }}\n"
        );
        scratch.write("flick.toml", &text).display().to_string()
    };
    let (settings, resolver) = (write("origin.test"), name_server(&zone).to_string());
    let service = Service::start(&["run", "--config", &settings, "--resolver", &resolver]);
    let admin = service.admin_address().to_string();
    check(&service, &[2], &[]);
    say(Zone { fails: true, ..Zone::default() });
    let (status, stdout, error) = common::run(&["reload", &admin]);
    assert!(
        status == 0 && stdout.contains("keeps its old contents") && stdout.contains("SERVFAIL"),
        "{stdout}{error}"
    );
    stays(&service, &[2]);
    // A new name without an answer fails the reload.
    write("other.test");
    let (status, _, error) = common::run(&["reload", &admin]);
    assert!(status == 1 && error.contains("`other.test`") && error.contains("SERVFAIL"), "{error}");
    stays(&service, &[2]);
    // The service that began with the former list goes on asking.
    say(Zone { addresses: vec![3], ..Zone::default() });
    check(&service, &[3], &[2]);
    let log = service.drained();
    assert!(log.contains("keeps its old contents"), "{log}");
}

#[test]
fn failed_aaaa_lookup_keeps_a_records() {
    let origins = origins(2);
    let zone =
        |addresses: &[u8], fails_for| Zone { addresses: addresses.to_vec(), fails_for, ..Zone::default() };
    let held = Arc::new(Mutex::new(zone(&[2], Some(Rtype::AAAA))));
    let say = |to: Zone| *held.lock().expect("no holder panics") = to;
    let service = balancer(&format!("dns:origin.test:{}", origins[0].port()), &held);
    check(&service, &[2], &[]);
    say(zone(&[3], Some(Rtype::AAAA)));
    check(&service, &[3], &[2]);
    // Nothing of the kind that is left is no answer, and what was there stays.
    say(zone(&[2], Some(Rtype::A)));
    stays(&service, &[3]);
    let log = service.drained();
    assert!(
        log.contains("AAAA records of `origin.test`") && log.contains("A records of `origin.test`"),
        "{log}"
    );
}

#[test]
fn unanswered_aaaa_questions_left_a_service_without_backends() {
    let port = origins(2)[0].port();
    let targets = vec![(10, 0, port, "origin.test."), (10, 0, port, "other.test.")];
    let zone = Zone { addresses: vec![2, 3], targets, silent_for: Some(Rtype::AAAA), ..Zone::default() };
    let held = Arc::new(Mutex::new(zone));
    let named = balancer(&format!("dns:origin.test:{port}"), &held);
    check(&named, &[2], &[502]);
    let listed = balancer("srv:_http._tcp.test", &held);
    check(&listed, &[2, 3], &[502]);
    let log = named.drained() + &listed.drained();
    assert!(log.contains("AAAA records of `origin.test`") && log.contains("no response within"), "{log}");
}

#[test]
fn referral_of_a_name_server_emptied_a_list() {
    let origins = origins(1);
    let zone = Arc::new(Mutex::new(Zone { addresses: vec![2], ..Zone::default() }));
    let service = balancer(&format!("dns:origin.test:{}", origins[0].port()), &zone);
    check(&service, &[2], &[]);
    zone.lock().expect("no holder panics").refers = true;
    stays(&service, &[2]);
    let log = service.drained();
    assert!(log.contains("it refers to other name servers"), "{log}");
}

#[test]
fn one_target_that_could_not_be_resolved_froze_the_list() {
    let port = origins(3)[0].port();
    let targets = vec![(10, 0, port, "origin.test."), (10, 0, port, "other.test.")];
    let zone = |addresses: &[u8], fails_name| Zone {
        addresses: addresses.to_vec(),
        targets: targets.clone(),
        fails_name,
        ..Zone::default()
    };
    let held = Arc::new(Mutex::new(zone(&[2, 3], Some("other.test"))));
    let service = balancer("srv:_http._tcp.test", &held);
    check(&service, &[2], &[]);
    let say = |to: Zone| *held.lock().expect("no holder panics") = to;
    say(zone(&[2, 3], None));
    check(&service, &[2, 3], &[]);
    // What may be addresses of a target that fails stays, beside the new ones of others.
    say(zone(&[2, 4, 3], Some("other.test")));
    check(&service, &[2, 3, 4], &[]);
    say(zone(&[2, 3], Some("origin.test")));
    check(&service, &[2, 3, 4], &[]);
    say(Zone { fails_for: Some(Rtype::A), ..zone(&[], None) });
    stays(&service, &[2, 3, 4]);
    let log = service.drained();
    assert!(log.contains("part of a lookup failed") && log.contains("`other.test`"), "{log}");
}

#[test]
fn reload_while_aaaa_lookups_failed_dropped_their_backends() {
    let origins = origins(2);
    let zone = |fails_for| Zone { addresses: vec![2, 3], fails_for, ..Zone::default() };
    let held = Arc::new(Mutex::new(zone(None)));
    let admin = ["--admin", "127.0.0.1:0"];
    let service = balancer_with(&format!("dns:origin.test:{}", origins[0].port()), &held, &admin);
    check(&service, &[2, 3], &[]);
    // All addresses of the family that fails are those of the generation before.
    *held.lock().expect("no holder panics") = Zone { has_ipv6: true, ..zone(Some(Rtype::A)) };
    let (status, _, error) = common::run(&["reload", &service.admin_address().to_string()]);
    assert_eq!(status, 0, "{error}");
    // The address of the other family is one that nothing listens at.
    check(&service, &[2, 3], &[502]);
    service.drained();
}

/// A process of several services before a name, and its name server.
struct Named {
    zone: Arc<Mutex<Zone>>,
    service: Service,
    scratch: Scratch,
}

impl Named {
    fn start(test: &str, services: usize, environment: &[(&str, &std::path::Path)]) -> Self {
        let origin = origins(1)[0];
        let zone = Arc::new(Mutex::new(Zone { addresses: vec![2], ..Zone::default() }));
        let scratch = Scratch::new(test);
        let program = common::root().join(BALANCER).display().to_string();
        let one = |number: usize| {
            format!(
                "[[service]]\nname = \"s{number}\"\nprogram = \"{program}\"\nlisten = {{ client = \"127.0.0.1:0\" }}\n\
                 connect = {{ backends = [\"dns:origin.test:{}\"] }}\n",
                origin.port()
            )
        };
        let all: String = (0..services).map(one).collect();
        let head =
            format!("workers = 1\n[admin]\nlisten = \"unix:{}\"\n", scratch.path().join("admin").display());
        let settings = scratch.write("flick.toml", &(head + &all));
        let mut command = common::flick();
        command.args(["run", "--config"]).arg(settings).args(["--resolver", &name_server(&zone).to_string()]);
        command.envs(environment.iter().copied()).current_dir(common::root()).env_remove("FLICK_LOG");
        Self { zone, service: Service::start_as(command), scratch }
    }

    /// Has the name server answer nothing from now on.
    fn silence(&self) {
        *self.zone.lock().expect("no holder panics") = Zone { is_silent: true, ..Zone::default() };
    }

    fn asked(&self) -> usize {
        self.zone.lock().expect("no holder panics").asked
    }
}

#[test]
fn sigterm_during_a_reload_waited_for_all_lookups() {
    // Each waits two seconds.
    let named = Named::start("changing-exit", 6, &[]);
    named.silence();
    // The lookups of the lists are few beside those of a reload.
    named.service.signal("HUP");
    wait::until("lookups of the reload", || (named.asked() >= 2).then_some(()));
    named.service.signal("TERM");
    let start = std::time::Instant::now();
    let (status, log) = named.service.ended();
    assert!(status.success() && start.elapsed() < Duration::from_secs(5), "{:?}: {log}", start.elapsed());
    assert!(log.contains("the reload failed and changed nothing"), "{log}");
}

#[test]
fn upgrade_that_waited_for_name_servers_sent_no_keep_alive() {
    let scratch = Scratch::new("changing-keep-alive-of");
    let notify = scratch.path().join("notify");
    let systemd = std::os::unix::net::UnixDatagram::bind(&notify).expect("the directory can be written");
    let environment =
        [("NOTIFY_SOCKET", notify.as_path()), ("WATCHDOG_USEC", std::path::Path::new("1000000"))];
    let named = Named::start("changing-keep-alive", 2, &environment);
    named.silence();
    systemd.set_nonblocking(true).expect("it is a socket");
    let messages = || std::iter::from_fn(|| systemd.recv(&mut [0; 200]).ok()).count();
    messages();
    let start = std::time::Instant::now();
    let admin = format!("unix:{}", named.scratch.path().join("admin").display());
    let (status, _, error) = common::run(&["upgrade", &admin]);
    let (seconds, count) = (start.elapsed().as_secs() as usize, messages());
    assert!(
        status == 1 && seconds >= 2 && count * 2 >= seconds * 3,
        "{count} messages in {seconds} s: {error}"
    );
    named.service.drained();
}
