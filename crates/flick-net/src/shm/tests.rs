//! Tests of the transport's own clock; the contract of drivers (`tests/contract`) shows the rest.

use flick_buffers::{Pool, PoolConfig};
use flick_shm::pairing::{PairListener, PairPolicy};

use super::ShmTransport;
use crate::clock::monotonic_ns;
use crate::driver::{DriverEvent, DriverLimits};
use crate::event_sink::EventSink;

const LIMITS: DriverLimits =
    DriverLimits { conns_max: 0, shm_conns_max: 4, output_slices_max: 4, events_max: 8, receive_bytes: 4096 };

/// Begins a poll now; the events.
fn poll(transport: &mut ShmTransport) -> Vec<DriverEvent> {
    let pool = Pool::new(PoolConfig { small_count: 0, large_count: 1, huge_count: 0 });
    let mut events = Vec::with_capacity(LIMITS.events_max);
    transport.begin_poll(monotonic_ns());
    transport.take_news();
    transport.serve_all(&pool, &mut EventSink::new(&mut events, LIMITS.events_max));
    events
}

#[test]
fn first_connect_failed_when_the_last_poll_was_long_ago() {
    let name = format!("flick-net-clock-{}", std::process::id());
    let listener = PairListener::bind(&name, PairPolicy::SameUser).expect("the name is free");
    let mut transport = ShmTransport::new(&LIMITS).expect("an epoll");
    transport.begin_poll(0);
    transport.connect(&name).expect("the table has capacity");
    let events = poll(&mut transport);
    assert!(events.is_empty(), "the handshake has a second from the connect on: {events:?}");
    let (_peer, pair) = listener.accept().expect("it has connected");
    let mut pair = pair.expect("it offers a segment");
    let events = poll(&mut transport);
    assert!(events.is_empty(), "{events:?}");
    pair.accept(0, 4096).expect("memory").expect("slot 0 was opened");
    let events = poll(&mut transport);
    assert!(matches!(events[..], [DriverEvent::Connected { .. }]), "{events:?}");
}
