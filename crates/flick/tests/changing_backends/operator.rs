//! Changes of backends at run time: `flick backend` against a service before origins that say who they are.

use super::*;

/// A balancer by the path of a request.
const BY_PATH: &str = "use http

proc ByPath: (request/response client, [response/request] backends)
  | backends => client
  | client => go(backends)

fun go: ([-/request] backends, req: request) -> ()
  req => backends[hash(req.path) mod len(backends)]
";

/// Runs `flick backend` at a service; its output.
fn backend(service: &Service, arguments: &[&str]) -> String {
    let admin = service.admin_address().to_string();
    let (status, stdout, stderr) = common::run(&[&["backend", &admin], arguments].concat());
    assert_eq!(status, 0, "{arguments:?}: {stderr}");
    stdout
}

fn start(program: &str, origins: &[SocketAddr], extra: &[&str]) -> Service {
    let list: Vec<String> = origins.iter().map(ToString::to_string).collect();
    let connect = format!("backends={}", list.join(","));
    let fixed = ["run", program, "--listen", "client=127.0.0.1:0", "--admin", "0", "--connect", &connect];
    Service::start(&[&fixed[..], &["--workers", "2"], extra].concat())
}

#[test]
fn backend_is_drained_and_put_into_maintenance_at_run_time() {
    let origins = origins(3);
    let service = start(BALANCER, &origins, &[]);
    let second = origins[1].to_string();
    check(&service, &[2, 3, 4], &[]);
    for action in [&["drain", &second][..], &["maint", &second], &["weight", &second, "0"]] {
        let said = backend(&service, action);
        assert!(said.contains("a restart undoes this: `backend_state_file` is not set"), "{said}");
        check(&service, &[2, 4], &[3]);
        let said = backend(&service, &["reset", &second]);
        assert!(said.ends_with("as configured\n"), "nothing is left that a restart undoes: {said}");
        check(&service, &[2, 3, 4], &[2, 4]);
    }
    backend(&service, &["maint", &second]);
    check(&service, &[2, 4], &[3]);
    // A reload keeps it, and so do all generations that come.
    let admin = service.admin_address().to_string();
    let (status, _, stderr) = common::run(&["reload", &admin]);
    assert_eq!(status, 0, "{stderr}");
    stays(&service, &[2, 4]);
    let (_, metrics) = common::service::seen(service.admin_address(), "/metrics");
    let sample = format!("channel=\"backends\",backend=\"{second}\",mode=\"maint\"}} 1");
    assert!(metrics.contains(&sample), "{metrics}");
    let shown = backend(&service, &[]);
    assert!(shown.contains(&format!("[1] {second} maint weight=1")) && shown.lines().count() == 3, "{shown}");
    backend(&service, &["ready", &second]);
    check(&service, &[2, 3, 4], &[2, 4]);
    let (status, _, stderr) = common::run(&["backend", &admin, "drain", "127.0.0.1:1"]);
    assert!(status == 1 && stderr.contains("no list has the backend `127.0.0.1:1`"), "{stderr}");
    let log = service.drained();
    assert_eq!(log.matches("backend is in maintenance").count(), 2, "once for all workers: {log}");
}

#[test]
fn list_did_not_show_backups_and_health() {
    let origins = origins(2);
    let free = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("the loopback has a free port");
    let dead = free.local_addr().expect("a bound socket has an address");
    drop(free);
    let connect = format!("backends={},{dead},{} backup", origins[0], origins[1]);
    let fixed = ["run", BALANCER, "--listen", "client=127.0.0.1:0", "--admin", "0", "--connect", &connect];
    let checks = ["--workers", "2", "--health-check-interval", "20ms"];
    let service = Service::start(&[&fixed[..], &checks].concat());
    let expected = [
        format!("[0] {} ready weight=1, up\n", origins[0]),
        format!("[1] {dead} ready weight=1, ejected by 2 of 2\n"),
        format!("[2] {} ready weight=1 backup, up\n", origins[1]),
    ];
    crate::common::wait::until("the dead backend to be ejected", || {
        let shown = backend(&service, &[]);
        expected.iter().all(|line| shown.contains(line)).then_some(())
    });
    service.drained();
}

#[test]
fn ready_did_not_say_that_the_weight_of_a_backend_was_0() {
    let origins = origins(3);
    let service = start(BALANCER, &origins, &[]);
    let second = origins[1].to_string();
    let is_shown = |line: &str| {
        let shown = backend(&service, &[]);
        assert!(shown.contains(&format!("[1] {second} {line}, ")), "{line}: {shown}");
    };
    backend(&service, &["weight", &second, "0"]);
    is_shown("drain weight=0");
    let said = backend(&service, &["ready", &second]);
    let expected =
        format!("its weight is 0, so it stays drained: `flick backend ADMIN weight {second} N` sets");
    assert!(said.contains(&expected), "{said}");
    is_shown("drain weight=0");
    backend(&service, &["weight", &second, "3"]);
    is_shown("ready weight=3");
    let said = backend(&service, &["ready", &second]);
    assert!(!said.contains("its weight is 0"), "{said}");
}

#[test]
fn change_of_a_backend_moves_no_other_key() {
    let origins = origins(4);
    let scratch = Scratch::new("changing-keys");
    let program = scratch.write("by_path.flick", BY_PATH).display().to_string();
    let service = start(&program, &origins[..3], &[]);
    let owners = || -> Vec<u16> {
        let owner = |path: u32| {
            let asked = http::exchange(&mut client::connect(service.address), &format!("/{path}"));
            let (status, body) = asked.expect("a reply");
            if status == 200 {
                String::from_utf8_lossy(&body).parse().expect("an origin's number")
            } else {
                status
            }
        };
        (0..24).map(owner).collect()
    };
    let before =
        wait::until("all backends", || Some(owners()).filter(|owners| owners.iter().all(|who| *who < 5)));
    assert!([2, 3, 4].iter().all(|who| before.contains(who)), "{before:?}");
    let expect = |other: u16| {
        let expected: Vec<u16> = before.iter().map(|who| if *who == 3 { other } else { *who }).collect();
        wait::until(&format!("the keys of 3 at {other}"), || (owners() == expected).then_some(()));
    };
    let (second, fourth) = (origins[1].to_string(), origins[3].to_string());
    backend(&service, &["drain", &second]);
    expect(3);
    backend(&service, &["maint", &second]);
    expect(502);
    backend(&service, &["reset", &second]);
    expect(3);
    backend(&service, &["address", &second, &fourth]);
    expect(5);
    assert!(backend(&service, &[]).contains(&format!("[1] {second} at {fourth} ready")));
    service.drained();
}

#[test]
fn state_file_keeps_a_drained_backend_over_a_restart() {
    let origins = origins(2);
    let scratch = Scratch::new("changing-state");
    let state = scratch.path().join("backends.state").display().to_string();
    let extra = ["--backend-state-file", &state];
    let service = start(BALANCER, &origins, &extra);
    check(&service, &[2, 3], &[]);
    let said = backend(&service, &["drain", &origins[0].to_string()]);
    assert!(said.contains("drain") && !said.contains("restart"), "{said}");
    check(&service, &[3], &[2]);
    service.drained();
    let service = start(BALANCER, &origins, &extra);
    stays(&service, &[3]);
    backend(&service, &["reset", &origins[0].to_string()]);
    check(&service, &[2, 3], &[3]);
    service.drained();
    assert_eq!(std::fs::read_to_string(&state).expect("it is there"), "");
}

#[test]
fn log_says_once_for_all_workers_why_a_backend_is_down() {
    let gone = peers::free_address();
    let service = start(BALANCER, &[gone], &[]);
    wait::until("both workers to find out", || (ask(service.address) == 502).then_some(()));
    stays(&service, &[502]);
    let log = service.drained();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("backend is down")).collect();
    assert!(
        lines.len() == 1 && lines[0].contains(&format!("address={gone} why=connection refused")),
        "{log}"
    );
}
