//! More clients than are let in, over real sockets: who is turned away, in which words, and who waits.

mod common;

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use common::client::connect;
use common::service::{Service, read_all};
use common::wait;
use rustix::net::{AddressFamily, SocketType};

/// The two kernel interfaces.
const IOS: [&str; 2] = ["epoll", "uring"];

fn page(extra: &[&str]) -> Service {
    let program = "examples/http_static/http_static.flick";
    let args = ["run", program, "--listen", "client=127.0.0.1:0", "--workers", "2"];
    Service::start(&[args.as_slice(), extra].concat())
}

/// Connects from that address of this machine.
fn connect_from(from: u8, to: SocketAddr) -> TcpStream {
    let socket =
        rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).expect("a descriptor is left");
    let from = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, from)), 0);
    rustix::net::bind(&socket, &from).expect("all of 127/8 is ours");
    rustix::net::connect(&socket, &to).expect("the service listens");
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(wait::WAIT_MAX)).expect("the time is not zero");
    stream
}

/// Asks for the page; the first line of the answer.
fn ask(stream: &mut TcpStream) -> String {
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("the service reads");
    let mut bytes = [0; 512];
    let mut text = String::new();
    while !text.contains("Hello from flick\n") && !text.contains(" 503 ") {
        let len = stream.read(&mut bytes).expect("an answer comes");
        assert!(len > 0, "the service closed behind {text:?}");
        text.push_str(&String::from_utf8_lossy(&bytes[..len]));
    }
    text.lines().next().unwrap_or("").to_owned()
}

#[test]
fn an_address_with_as_many_connections_as_it_may_is_told_so_and_harms_no_other() {
    for io in IOS {
        let service = page(&["--io", io, "--connections-per-address-max", "3"]);
        let mut present: Vec<TcpStream> = (0..3).map(|_| connect_from(1, service.address)).collect();
        present.iter_mut().for_each(|client| assert_eq!(ask(client), "HTTP/1.1 200 OK", "{io}"));
        for _ in 0..5 {
            // It has sent something already, as browsers do; the answer is not lost behind a reset.
            let mut fourth = connect_from(1, service.address);
            let _ = fourth.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            let answer = String::from_utf8_lossy(&read_all(&mut fourth)).into_owned();
            assert!(answer.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{io}: {answer}");
        }
        assert_eq!(ask(&mut connect_from(2, service.address)), "HTTP/1.1 200 OK", "{io}: another address");
        present.pop();
        wait::until("the place to be free", || {
            (ask(&mut connect_from(1, service.address)) == "HTTP/1.1 200 OK").then_some(())
        });
        present.iter_mut().for_each(|client| assert_eq!(ask(client), "HTTP/1.1 200 OK", "{io}"));
        drop(present);
        let log = service.drained();
        assert!(log.contains("sessions_over_address"), "{io}: {log}");
    }
}

#[test]
fn who_finds_no_place_is_told_in_the_words_of_the_protocol() {
    let service = page(&["--sessions-max", "1", "--overflow", "refuse"]);
    let mut first = connect(service.address);
    assert_eq!(ask(&mut first), "HTTP/1.1 200 OK");
    let answer = read_all(connect(service.address));
    assert!(answer.starts_with(b"HTTP/1.1 503 "), "{:?}", String::from_utf8_lossy(&answer));
    drop(first);
    service.drained();

    let program = "examples/key_value_server/key_value_server.flick";
    let args =
        ["run", program, "--listen", "client=127.0.0.1:0", "--sessions-max", "1", "--overflow", "refuse"];
    let service = Service::start(&args);
    let mut first = connect(service.address);
    first.write_all(b"get a\r\n").expect("the service reads");
    first.read_exact(&mut [0; 5]).expect("END comes");
    assert_eq!(read_all(connect(service.address)), b"SERVER_ERROR too busy\r\n");
    drop(first);
    service.drained();
}

#[test]
fn clients_beyond_the_rate_wait_and_are_all_served() {
    for io in IOS {
        let service = page(&["--io", io, "--accept-rate", "50"]);
        let begun = Instant::now();
        let mut clients: Vec<TcpStream> = (0..25).map(|_| connect(service.address)).collect();
        clients.iter_mut().for_each(|client| assert_eq!(ask(client), "HTTP/1.1 200 OK", "{io}"));
        // Five come at once, the other twenty 20 ms after one another.
        assert!(begun.elapsed() >= Duration::from_millis(390), "{io}: {:?}", begun.elapsed());
        drop(clients);
        let log = service.drained();
        assert!(log.contains("accept_waits"), "{io}: {log}");
    }
}
