//! Listing 1 between real clients and real memcached servers, none of them ours.

mod common;

use std::path::PathBuf;
use std::process::Command;

use common::peers::{Memcached, addresses, output};
use common::service::Service;

const TOOLS: &str = "libmemcached-tools";
/// The client from PyPI, as tested.
const PYTHON_CLIENT: &str = "python-binary-memcached==0.31.4";
/// Tests of `memccapable -b`.
const CAPABILITIES: usize = 27;

/// Runs `memccapable -b`; names of the tests that passed and that failed.
fn capabilities(service: &Service) -> (Vec<String>, Vec<String>) {
    let port = service.address.port().to_string();
    let output =
        output(Command::new("memccapable").args(["-h", "127.0.0.1", "-p", &port, "-b", "-t", "5"]), TOOLS);
    let (_, stdout, stderr) = common::captured(output);
    let (mut passed, mut failed) = (Vec::new(), Vec::new());
    // It prints the verdict `[FAIL]` on stderr, so that a test which failed has none on its line.
    for line in stdout.split("binary ").skip(1) {
        let name = line.split_whitespace().next().unwrap_or_default().to_owned();
        if line.contains("[pass]") { passed.push(name) } else { failed.push(name) }
    }
    assert_eq!(passed.len() + failed.len(), CAPABILITIES, "memccapable ends early:\n{stdout}\n{stderr}");
    (passed, failed)
}

#[test]
fn memccapable_with_one_backend() {
    let server = Memcached::start();
    for io in ["epoll", "auto"] {
        let service = Service::proxy(&[server.address], &["--io", io]);
        let (passed, failed) = capabilities(&service);
        assert_eq!((passed.len(), failed.as_slice()), (CAPABILITIES, [].as_slice()), "with --io {io}");
        service.drained();
    }
}

/// Tests of `memccapable -b` that cannot pass for a pool behind one address, whatever the proxy: a request without a
/// key goes to one backend, and the key that is read afterwards may lie on another.
const NOT_FOR_A_POOL: &[&str] = &["flush", "flushq"];

/// The tests of `memccapable -b` whose requests all carry a key or concern the connection.
const FOR_A_POOL: &[&str] = &[
    "noop", "quit", "quitq", "set", "setq", "add", "addq", "replace", "replaceq", "delete", "deleteq", "get",
    "getq", "getk", "getkq", "incr", "incrq", "decr", "decrq", "version", "append", "appendq", "prepend",
    "prependq", "stat",
];

const _: () = assert!(FOR_A_POOL.len() + NOT_FOR_A_POOL.len() == CAPABILITIES);

/// One by one: `flush` asks its one backend to forget everything two seconds later, and as it gives up before that,
/// in a run of all tests that would strike whichever comes next.
#[test]
fn memccapable_with_four_backends() {
    let servers = Memcached::several(4);
    let service = Service::proxy(&addresses(&servers), &["--workers", "2"]);
    let port = service.address.port().to_string();
    for name in FOR_A_POOL {
        let name = format!("binary {name}");
        let mut memccapable = Command::new("memccapable");
        memccapable.args(["-h", "127.0.0.1", "-p", &port, "-b", "-t", "5", "-v", "-T", &name]);
        let (status, stdout, stderr) = common::captured(output(&mut memccapable, TOOLS));
        assert!(status == 0 && stdout.contains("[pass]"), "`{name}`:\n{stdout}\n{stderr}");
    }
    service.drained();
}

#[test]
fn memcslap_with_128_threads() {
    const THREADS: u64 = 128;
    const REQUESTS: u64 = 200;
    let servers = Memcached::several(2);
    let service = Service::proxy(&addresses(&servers), &["--workers", "2"]);
    for test in ["set", "get"] {
        let (concurrency, requests) = (THREADS.to_string(), REQUESTS.to_string());
        let mut memcslap = Command::new("memcslap");
        memcslap.arg("-s").arg(service.address.to_string());
        memcslap.args(["--binary", "-c", &concurrency, "-e", &requests, "-t", test]);
        let (status, stdout, stderr) = common::captured(output(&mut memcslap, TOOLS));
        assert_eq!(status, 0, "memcslap -t {test}:\n{stdout}\n{stderr}");
        let done = format!("{} keys by  {THREADS} threads", THREADS * REQUESTS);
        assert!(stdout.contains(&done), "memcslap -t {test} does not say `{done}`:\n{stdout}");
        assert!(!stderr.to_lowercase().contains("error"), "{stderr}");
    }
    let log = service.drained();
    let figure = |name: &str| -> u64 {
        let text = log.split(&format!("{name}=")).nth(1).and_then(|rest| rest.split_whitespace().next());
        text.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("no `{name}` in\n{log}"))
    };
    assert!(figure("requests") >= 2 * THREADS * REQUESTS, "{log}");
}

/// The Python of an environment with the client in it, made in the target directory once.
fn python() -> PathBuf {
    let home = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("python");
    let python = home.join("bin/python3");
    let has_client =
        || Command::new(&python).args(["-c", "import bmemcached"]).output().is_ok_and(|o| o.status.success());
    if !has_client() {
        let home = home.to_str().expect("the target directory is UTF-8");
        let made = output(Command::new("python3").args(["-m", "venv", "--clear", home]), "python3-venv");
        let (status, stdout, stderr) = common::captured(made);
        assert_eq!(status, 0, "python3 -m venv (Debian package python3-venv):\n{stdout}\n{stderr}");
        let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", PYTHON_CLIENT];
        let (status, stdout, stderr) =
            common::captured(output(Command::new(&python).args(pip), "python3-venv"));
        assert_eq!(status, 0, "pip install {PYTHON_CLIENT}:\n{stdout}\n{stderr}");
    }
    python
}

/// Runs the Python client against Listing 1 with N backends.
fn check_python(python: &PathBuf, backends: usize) {
    let servers = Memcached::several(backends);
    let service = Service::proxy(&addresses(&servers), &["--workers", "2"]);
    let script = common::root().join("tests/clients/bmemcached_client.py");
    let mut client = Command::new(python);
    client.arg(script).arg(service.address.to_string());
    let (status, stdout, stderr) = common::captured(output(&mut client, "python3-venv"));
    assert_eq!(status, 0, "with {backends} backends:\n{stdout}\n{stderr}");
    assert!(stdout.starts_with("ok "), "{stdout}");
    service.drained();
}

#[test]
fn python_client_with_the_proxy() {
    let python = python();
    check_python(&python, 1);
    check_python(&python, 4);
}
