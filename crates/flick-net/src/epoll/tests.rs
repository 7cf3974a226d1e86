//! A listener that the system refuses to register is reported, and registered later.

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use flick_buffers::{Pool, PoolConfig};
use rustix::event::epoll;
use rustix::io::Errno;

use super::driver::EpollDriver;
use super::token::EpollToken;
use crate::address::Endpoint;
use crate::driver::{Driver, DriverEvent, DriverLimits, ListenerId};

/// Longest wait for what takes microseconds.
const TEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Registers a listener that does not accept, without events. So a second registration is refused, as one is for which
/// there is no memory, until this one is taken back.
fn refuse_registration(driver: &EpollDriver, listener: ListenerId, on: bool) {
    let socket = &driver.listeners.get(listener).expect("it is open").socket;
    let changed = if on {
        epoll::add(&driver.epoll, socket, EpollToken::Listener(listener.0).pack(), epoll::EventFlags::empty())
    } else {
        epoll::delete(&driver.epoll, socket)
    };
    changed.expect("this registration is not refused");
}

/// Returns a driver with a listener, at that address, whose registration was refused.
fn driver_that_is_refused() -> (EpollDriver, Pool, ListenerId, SocketAddr) {
    let mut driver = EpollDriver::new(DriverLimits::FEW).expect("epoll");
    let pool = Pool::new(PoolConfig { small_count: 8, large_count: 16, huge_count: 0 });
    let any: Endpoint = "127.0.0.1:0".parse().expect("an address");
    let listener = driver.listen(&any).expect("loopback");
    let Endpoint::Tcp(at) = driver.local_addr(listener).expect("it listens") else { panic!("not by TCP") };
    driver.accept(listener, false);
    refuse_registration(&driver, listener, true);
    driver.accept(listener, true);
    (driver, pool, listener, at)
}

/// Polls until something is reported.
fn first_event(driver: &mut EpollDriver, pool: &Pool) -> DriverEvent {
    let (mut events, end) = (Vec::with_capacity(64), Instant::now() + TEST_TIMEOUT);
    loop {
        assert!(Instant::now() < end, "nothing is reported");
        driver.poll(pool, Some(Duration::from_millis(1)), &mut events).expect("a poll does not fail");
        if let Some(event) = events.pop() {
            return event;
        }
    }
}

#[test]
fn listener_whose_registration_was_refused_once_accepted_no_more() {
    let (mut driver, pool, listener, at) = driver_that_is_refused();
    assert_eq!(driver.poll_timeout(&pool, None), Some(Duration::ZERO), "there is something to report");
    let event = first_event(&mut driver, &pool);
    let errno = Errno::EXIST.raw_os_error();
    let is_it = matches!(event, DriverEvent::AcceptFailed { listener: of, errno: found }
        if of == listener && found == errno);
    assert!(is_it, "{event:?}");
    assert_eq!(driver.poll_timeout(&pool, None), None, "it is reported once");
    refuse_registration(&driver, listener, false);
    driver.accept(listener, true);
    let _peer = TcpStream::connect(at).expect("it listens");
    let event = first_event(&mut driver, &pool);
    assert!(matches!(event, DriverEvent::Accepted { .. }), "{event:?}");
}

#[test]
fn refused_listener_that_is_closed_is_not_reported() {
    let (mut driver, pool, listener, _) = driver_that_is_refused();
    driver.close_listener(listener);
    let mut events = Vec::with_capacity(64);
    driver.poll(&pool, Some(Duration::ZERO), &mut events).expect("a poll does not fail");
    assert!(events.is_empty(), "{events:?}");
}
