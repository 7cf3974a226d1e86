//! The core alone: what it asks a driver to do, without any socket.

use flick_buffers::{BufClass, Pool, PoolConfig, Slice};

use super::report::FaultReport;
use super::{Conns, Then};
use crate::driver::{DriverEvent, DriverLimits, Handle};
use crate::event_sink::EventSink;
use crate::fault::ConnFault;
use crate::limits::{FLUSH_NS_MAX, LINGER_BYTES_MAX, LINGER_NS_MAX};

const LIMITS: DriverLimits = DriverLimits {
    conns_max: 4,
    shm_conns_max: 0,
    output_slices_max: 4,
    events_max: 8,
    receive_bytes: 16384,
};

struct Fixture {
    conns: Conns<()>,
    pool: Pool,
}

impl Fixture {
    fn new() -> Fixture {
        let pool = Pool::new(PoolConfig { small_count: 8, large_count: 0, huge_count: 0 });
        Fixture { conns: Conns::new(&LIMITS, LIMITS.conns_max), pool }
    }

    fn open() -> (Fixture, Handle) {
        let mut fixture = Fixture::new();
        let conn = fixture.conns.insert((), true);
        (fixture, conn)
    }

    fn bytes(&self, count: u32) -> Slice {
        let buf = self.pool.alloc(BufClass::Small).expect("the pool has a buffer");
        buf.append(&vec![7; count as usize]);
        buf.slice(0..count)
    }

    fn send(&mut self, conn: Handle, count: u32) {
        self.conns.send(conn, self.bytes(count)).expect("the slab has a node");
    }

    /// The kernel takes `bytes` bytes.
    fn sent(&mut self, conn: Handle, bytes: usize) -> Then {
        self.conns.consume(conn.index, bytes);
        self.conns.sent(conn.index, 0)
    }

    /// The events that a poll with enough capacity reports.
    fn reports(&mut self, conn: Handle) -> Vec<DriverEvent> {
        let mut events = Vec::new();
        let mut sink = EventSink::new(&mut events, LIMITS.events_max);
        self.conns.report_progress(conn.index, &mut sink);
        self.conns.report_end(conn.index, &mut sink);
        self.conns.report_fault(conn.index, &mut sink);
        events
    }
}

#[test]
fn close_flushes_then_lingers_until_the_peer_ends() {
    let (mut fixture, conn) = Fixture::open();
    fixture.send(conn, 100);
    assert_eq!(fixture.conns.close(conn, 0), Then::Nothing);
    assert!(fixture.conns.is_flushing() && fixture.conns.backlog_bytes(conn) == 0);
    assert_eq!(fixture.sent(conn, 60), Then::Nothing);
    assert_eq!(fixture.sent(conn, 40), Then::Linger);
    assert!(!fixture.conns.is_flushing());
    assert!(!fixture.conns.discard(conn.index, LINGER_BYTES_MAX) && fixture.conns.discard_end(conn.index));
}

#[test]
fn lingering_ends_after_a_time_or_a_number_of_bytes() {
    let (mut fixture, conn) = Fixture::open();
    assert_eq!(fixture.conns.close(conn, 0), Then::Linger);
    assert_eq!(fixture.conns.expired_lingerer(LINGER_NS_MAX - 1), None);
    assert!(fixture.conns.discard(conn.index, LINGER_BYTES_MAX + 1));
    assert_eq!(fixture.conns.expired_lingerer(LINGER_NS_MAX), Some(conn.index));
    assert_eq!(fixture.conns.oldest_lingerer(), None);
}

#[test]
fn close_after_the_end_of_the_stream_needs_no_lingering() {
    let (mut fixture, conn) = Fixture::open();
    fixture.conns.set_receiving(conn, true);
    fixture.conns.end_input(conn.index);
    assert!(matches!(fixture.reports(conn)[..], [DriverEvent::Eof { .. }]));
    assert_eq!(fixture.conns.close(conn, 0), Then::Close);
}

#[test]
fn close_of_a_connection_that_expects_no_input_does_not_linger() {
    let (mut fixture, conn) = Fixture::open();
    fixture.send(conn, 100);
    assert!(fixture.conns.expect_no_input(conn, 0));
    assert_eq!(fixture.conns.close(conn, 0), Then::Nothing);
    assert_eq!(fixture.sent(conn, 100), Then::Close);
    assert_eq!(fixture.conns.expired_flusher(LINGER_NS_MAX), None);
}

#[test]
fn connection_that_expects_no_input_flushed_forever_if_its_peer_never_read() {
    let (mut fixture, conn) = Fixture::open();
    fixture.send(conn, 100);
    assert!(fixture.conns.expect_no_input(conn, 0));
    assert_eq!(fixture.conns.close(conn, 0), Then::Nothing);
    assert_eq!(fixture.sent(conn, 60), Then::Nothing);
    assert_eq!(fixture.conns.linger_deadline_ns(), Some(LINGER_NS_MAX));
    assert_eq!(fixture.conns.expired_flusher(LINGER_NS_MAX - 1), None);
    assert_eq!(fixture.conns.oldest_lingerer(), None, "a slot that is needed cuts no reply short");
    assert_eq!(fixture.conns.expired_flusher(LINGER_NS_MAX), Some(conn.index));
}

#[test]
fn closed_connection_flushed_forever_if_its_peer_never_read() {
    let (mut fixture, conn) = Fixture::open();
    fixture.send(conn, 100);
    assert_eq!(fixture.conns.close(conn, 0), Then::Nothing);
    assert_eq!(fixture.sent(conn, 60), Then::Nothing);
    assert_eq!(fixture.conns.linger_deadline_ns(), Some(FLUSH_NS_MAX));
    assert_eq!(fixture.conns.expired_flusher(FLUSH_NS_MAX - 1), None);
    assert_eq!(fixture.conns.expired_flusher(FLUSH_NS_MAX), Some(conn.index));
}

#[test]
fn connections_that_have_flushed_do_not_fill_the_queue() {
    let (mut fixture, slow) = Fixture::open();
    fixture.send(slow, 100);
    assert_eq!(fixture.conns.close(slow, 0), Then::Nothing);
    for _ in 0..4 * LIMITS.conns_max {
        let conn = fixture.conns.insert((), true);
        fixture.send(conn, 100);
        fixture.conns.end_input(conn.index);
        assert_eq!(fixture.conns.close(conn, 1), Then::Nothing);
        assert_eq!(fixture.sent(conn, 100), Then::Close);
        fixture.conns.remove(conn.index);
    }
    assert_eq!(fixture.conns.expired_flusher(FLUSH_NS_MAX), Some(slow.index));
}

#[test]
fn shutdown_sends_one_fin_behind_the_output() {
    let (mut fixture, conn) = Fixture::open();
    fixture.send(conn, 100);
    fixture.conns.set_corked(conn, true);
    assert!(fixture.conns.at(conn.index).is_some_and(|conn| !conn.is_sendable()));
    assert_eq!(fixture.conns.shutdown(conn), Then::Nothing);
    assert!(fixture.conns.at(conn.index).is_some_and(|conn| conn.is_sendable()), "shutting down uncorks");
    fixture.send(conn, 100);
    assert_eq!(fixture.conns.backlog_bytes(conn), 100, "nothing is appended behind a FIN");
    assert_eq!(fixture.sent(conn, 100), Then::ShutDownWrite);
    assert_eq!(fixture.conns.shutdown(conn), Then::Nothing);
}

#[test]
fn a_connection_closed_while_connecting_flushes_once_established() {
    let mut fixture = Fixture::new();
    let conn = fixture.conns.insert((), false);
    fixture.send(conn, 100);
    assert_eq!(fixture.conns.close(conn, 0), Then::Nothing);
    assert_eq!(fixture.conns.established(conn.index), Then::Nothing);
    assert!(fixture.reports(conn).is_empty(), "the handle is dead");
    assert_eq!(fixture.sent(conn, 100), Then::Linger);
    let other = fixture.conns.insert((), false);
    assert_eq!(fixture.conns.close(other, 0), Then::Drop, "without output there is nothing to connect for");
}

#[test]
fn a_fault_comes_after_connected_and_drained() {
    let mut fixture = Fixture::new();
    fixture.conns.set_watermarks(100, 50);
    let conn = fixture.conns.insert((), false);
    fixture.send(conn, 100);
    assert_eq!(fixture.conns.established(conn.index), Then::Nothing);
    assert_eq!(fixture.sent(conn, 50), Then::Nothing);
    assert_eq!(fixture.conns.fail(conn.index, ConnFault::Reset), Then::Nothing);
    assert_eq!(fixture.pool.live_count(BufClass::Small), 0, "the output of a failed connection is dropped");
    let reports = fixture.reports(conn);
    let expected = matches!(
        reports[..],
        [
            DriverEvent::Connected { .. },
            DriverEvent::Drained { .. },
            DriverEvent::Failed { fault: ConnFault::Reset, .. }
        ]
    );
    assert!(expected, "{reports:?}");
    assert!(fixture.conns.at(conn.index).is_some_and(|conn| conn.is_dead()));
}

#[test]
fn output_in_flight_is_kept_until_the_kernel_has_read_it() {
    let (mut fixture, conn) = Fixture::open();
    fixture.send(conn, 100);
    fixture.conns.begin_send(conn.index);
    assert_eq!(fixture.conns.fail(conn.index, ConnFault::Exhausted), Then::Nothing);
    assert_eq!((fixture.pool.live_count(BufClass::Small), fixture.conns.backlog_bytes(conn)), (1, 0));
    fixture.conns.send_done(conn.index);
    assert_eq!(fixture.pool.live_count(BufClass::Small), 0);
}

#[test]
fn a_full_sink_delays_the_fault() {
    let (mut fixture, conn) = Fixture::open();
    assert_eq!(fixture.conns.fail(conn.index, ConnFault::Reset), Then::Nothing);
    let mut events = Vec::new();
    let mut sink = EventSink::new(&mut events, 0);
    assert_eq!(fixture.conns.report_fault(conn.index, &mut sink), FaultReport::Later);
    assert!(matches!(fixture.reports(conn)[..], [DriverEvent::Failed { .. }]));
}

#[test]
fn drained_is_reported_once_per_rise() {
    let (mut fixture, conn) = Fixture::open();
    fixture.conns.set_watermarks(100, 50);
    fixture.send(conn, 60);
    fixture.send(conn, 60);
    assert_eq!(fixture.sent(conn, 60), Then::Nothing);
    assert!(fixture.reports(conn).is_empty(), "60 bytes are above the low watermark");
    assert_eq!(fixture.sent(conn, 20), Then::Nothing);
    assert!(matches!(fixture.reports(conn)[..], [DriverEvent::Drained { .. }]));
    assert_eq!(fixture.sent(conn, 20), Then::Nothing);
    assert!(fixture.reports(conn).is_empty());
}
