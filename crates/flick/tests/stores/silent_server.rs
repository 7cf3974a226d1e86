//! `flick load` and signals, with a server that accepts connections and says nothing.

use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Stdio};

use super::common::{captured, flick, peers};

fn silent_server() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("a bound address");
    (listener, address)
}

fn load(url: &str, extra: &[&str]) -> Child {
    let mut command = flick();
    command.args([&["load", url], extra].concat()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the tool starts")
}

/// Waits until the load has connected to see whether the server is there, and has written to another connection.
fn await_bytes(listener: &TcpListener) -> [TcpStream; 2] {
    let probe = listener.accept().expect("the load looks for its server").0;
    let mut stream = listener.accept().expect("the load connects").0;
    assert!(stream.read(&mut [0]).expect("the load writes") > 0);
    [probe, stream]
}

#[test]
fn signal_ends_the_writing_of_keys() {
    for (scheme, signal, expected) in [("memcached", "TERM", 143), ("redis", "INT", 130)] {
        let (listener, address) = silent_server();
        let load = load(&format!("{scheme}://{address}"), &[]);
        let _open = await_bytes(&listener);
        peers::signal(load.id(), signal);
        let (status, stdout, stderr) = captured(load.wait_with_output().expect("our own child"));
        assert_eq!((status, stdout.as_str(), stderr.as_str()), (expected, "", ""), "{signal}");
    }
}

#[test]
fn second_signal_ends_a_load_that_waits_for_its_agents() {
    let (listener, address) = silent_server();
    let load = load(&format!("http://{address}"), &["--agents", &address.to_string()]);
    let _open = await_bytes(&listener);
    peers::signal(load.id(), "TERM");
    peers::signal(load.id(), "INT");
    let (status, stdout, stderr) = captured(load.wait_with_output().expect("our own child"));
    // Either of them may be handled first.
    assert!([130, 143].contains(&status), "{status}: {stderr}");
    assert_eq!((stdout.as_str(), stderr.as_str()), ("", ""));
}
