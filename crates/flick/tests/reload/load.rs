//! Load for a service that is reloaded: clients that keep their connections, clients that come for one request, and a
//! server behind the service.
//! Promises: every reply is read and judged; the first that is wrong is kept with what it was.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::common::http::{self, Backend};
use crate::common::wait::WAIT_MAX;

/// Requests of a client between two pauses.
const BURST: u64 = 8;
/// The time a client leaves to others then: clients that never pause take most of two cores from the reloads.
const PAUSE: Duration = Duration::from_millis(10);

/// Asks over one connection; what a reply must be is the caller's.
pub trait Asks: Send + 'static {
    /// One request and its reply. Errors: what is wrong with it.
    fn ask(&mut self, stream: &mut TcpStream, number: u64) -> Result<(), String>;
}

/// Clients at work until they are stopped.
pub struct Load {
    is_over: Arc<AtomicBool>,
    asked: Arc<AtomicU64>,
    wrong: Arc<Mutex<Option<String>>>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts clients that keep their connection, and clients that make a new one for each request.
    pub fn start<A: Asks>(address: SocketAddr, keeping: usize, coming: usize, asks: fn() -> A) -> Self {
        let mut load = Self {
            is_over: Arc::default(),
            asked: Arc::default(),
            wrong: Arc::default(),
            threads: Vec::new(),
        };
        for client in 0..keeping + coming {
            let (is_over, asked, wrong) =
                (Arc::clone(&load.is_over), Arc::clone(&load.asked), Arc::clone(&load.wrong));
            let keeps = client < keeping;
            load.threads.push(std::thread::spawn(move || {
                let (mut asks, mut stream, mut number) = (asks(), None, client as u64);
                while !is_over.load(Ordering::Relaxed) {
                    number += 1_000;
                    let outcome = connected(&mut stream, address).and_then(|stream| asks.ask(stream, number));
                    if let Err(error) = outcome {
                        let what = if keeps { "a client that stays" } else { "a client that comes" };
                        let text = format!("{what}, request {number}: {error}");
                        wrong.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(text);
                        return;
                    }
                    asked.fetch_add(1, Ordering::Relaxed);
                    if (number / 1_000).is_multiple_of(BURST) {
                        std::thread::sleep(PAUSE);
                    }
                    if !keeps {
                        stream = None;
                    }
                }
            }));
        }
        load
    }

    /// Requests so far that were answered rightly. Panics when one was not.
    pub fn check(&self) -> u64 {
        if let Some(wrong) = &*self.wrong.lock().unwrap_or_else(PoisonError::into_inner) {
            panic!("after {} good replies: {wrong}", self.asked.load(Ordering::Relaxed));
        }
        self.asked.load(Ordering::Relaxed)
    }

    /// Ends it. The number of requests, all of them answered rightly.
    pub fn stop(mut self) -> u64 {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().expect("a client does not panic");
        }
        self.check()
    }
}

fn connected(kept: &mut Option<TcpStream>, address: SocketAddr) -> Result<&mut TcpStream, String> {
    if kept.is_none() {
        let stream = TcpStream::connect(address).map_err(|error| format!("cannot connect: {error}"))?;
        let set = stream.set_read_timeout(Some(WAIT_MAX)).and_then(|()| stream.set_nodelay(true));
        set.map_err(|error| format!("cannot be set up: {error}"))?;
        *kept = Some(stream);
    }
    kept.as_mut().ok_or_else(|| "there is no connection".to_owned())
}

/// Asks over HTTP, in turn the service itself and the server behind it.
pub struct Http;

impl Asks for Http {
    fn ask(&mut self, stream: &mut TcpStream, number: u64) -> Result<(), String> {
        let is_own = number.is_multiple_of(3);
        let body = get(stream, if is_own { "/version" } else { "/page" })?;
        let is_right = if is_own { body.starts_with("version ") } else { body == PAGE };
        if is_right { Ok(()) } else { Err(format!("answered {body:?}")) }
    }
}

/// Body of the responses of the server behind the service.
pub const PAGE: &str = "a page";

/// Asks for a path; the body of the reply. Errors: there is no whole reply, or not 200.
pub fn get(stream: &mut TcpStream, path: &str) -> Result<String, String> {
    good(http::exchange(stream, path))
}

/// Reads one reply; its body. Errors: there is no whole reply, or not 200.
pub fn reply(stream: &mut TcpStream) -> Result<String, String> {
    good(http::reply(stream))
}

fn good(reply: io::Result<(u16, Vec<u8>)>) -> Result<String, String> {
    let (status, body) = reply.map_err(|error| format!("no reply: {error}"))?;
    let body = String::from_utf8_lossy(&body).into_owned();
    if status == 200 { Ok(body) } else { Err(format!("answered {status} with {body:?}")) }
}

/// A server behind the service: answers every request with [`PAGE`].
pub fn origin() -> SocketAddr {
    let page = |_: &str, _: usize| PAGE.as_bytes().to_vec();
    Backend::start_at(SocketAddr::from(([127, 0, 0, 1], 0)), page, 0).expect("port 0 is free").address
}
