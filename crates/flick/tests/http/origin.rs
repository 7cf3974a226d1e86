//! A server that writes down every byte it gets and answers each request with what it asked for.
//! Promises: what it got is read by the letter of RFC 9112; it never guesses.
#![allow(dead_code, reason = "each test program uses its part")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use flick_testkit::http::strict::{self, HttpMessage, Trouble};

use crate::common::wait::WAIT_MAX;

/// Bytes of one read.
const READ_BYTES: usize = 64 * 1024;

/// All that came, by connection.
type Record = Arc<Mutex<Vec<Vec<u8>>>>;

/// A running origin.
pub struct Origin {
    /// Address that it listens on.
    pub address: SocketAddr,
    record: Record,
}

impl Origin {
    /// Starts one. It lives as long as the test's process.
    pub fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("the loopback has a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let record = Record::default();
        let shared = Arc::clone(&record);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || serve(stream, &shared));
            }
        });
        Self { address, record }
    }

    /// The bytes of all connections so far.
    pub fn seen(&self) -> Vec<Vec<u8>> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The requests that it got, as `METHOD target`, in the order of each connection. Panics on bytes that are no
    /// request; an incomplete last request is marked.
    pub fn requests(&self) -> (Vec<String>, usize) {
        let (mut whole, mut cut) = (Vec::new(), 0);
        for bytes in self.seen() {
            let mut rest = bytes.as_slice();
            while !rest.is_empty() {
                match strict::request(rest) {
                    Ok(message) => {
                        assert_eq!(hop_by_hop(&message), None, "it goes no further than one connection");
                        whole.push(asked(&message));
                        rest = &rest[message.next..];
                    }
                    Err(Trouble::Short) => {
                        cut += 1;
                        break;
                    }
                    Err(trouble) => panic!("{trouble:?} reached the origin: {}", rest.escape_ascii()),
                }
            }
        }
        (whole, cut)
    }
}

/// `METHOD target` of a request.
pub fn asked(message: &HttpMessage<'_>) -> String {
    let line = String::from_utf8_lossy(message.line);
    line.rsplit_once(' ').map_or(String::new(), |(asked, _)| asked.to_owned())
}

/// A field that concerns one connection only, in a message that asks for no upgrade.
fn hop_by_hop<'m>(message: &HttpMessage<'m>) -> Option<&'m [u8]> {
    if message.has_token("connection", "upgrade") {
        return None;
    }
    let names = ["connection", "keep-alive", "proxy-connection", "te", "upgrade"];
    let mut fields = message.fields.iter();
    fields
        .find(|(name, _)| names.iter().any(|hop| name.eq_ignore_ascii_case(hop.as_bytes())))
        .map(|field| field.0)
}

fn serve(mut stream: TcpStream, record: &Record) {
    let index = {
        let mut record = record.lock().unwrap_or_else(PoisonError::into_inner);
        record.push(Vec::new());
        record.len() - 1
    };
    // A peer that resets is an end like any other.
    let _ = stream.set_read_timeout(Some(WAIT_MAX));
    let (mut pending, mut piece) = (Vec::new(), vec![0; READ_BYTES]);
    loop {
        let len = match stream.read(&mut piece) {
            Ok(0) | Err(_) => return,
            Ok(len) => len,
        };
        record.lock().unwrap_or_else(PoisonError::into_inner)[index].extend(&piece[..len]);
        pending.extend(&piece[..len]);
        while let Ok(message) = strict::request(&pending) {
            let answer = answer(&message);
            let next = message.next;
            pending.drain(..next);
            if stream.write_all(&answer).is_err() {
                return;
            }
        }
    }
}

fn answer(message: &HttpMessage<'_>) -> Vec<u8> {
    let asked = asked(message);
    let status = if asked.starts_with("CONNECT ") { "405 Not Here" } else { "200 OK" };
    let mut reply = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", asked.len()).into_bytes();
    if !asked.starts_with("HEAD ") {
        reply.extend(asked.bytes());
    }
    reply
}
