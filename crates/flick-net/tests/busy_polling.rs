//! Waits of a driver that busy-polls its rings in shared memory.

mod common;

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use common::{open, pool};
use flick_buffers::{BufClass, Pool};
use flick_net::{AnyDriver, Driver, DriverEvent, DriverLimits, Endpoint, Handle, IoKind};

const LIMITS: DriverLimits = DriverLimits {
    conns_max: 8,
    shm_conns_max: 8,
    output_slices_max: 64,
    events_max: 64,
    receive_bytes: 16384,
};
/// Longer than any wait below may take.
const BUSY_POLL: Duration = Duration::from_secs(10);

/// A driver with a connection to itself through shared memory.
struct Polling {
    driver: AnyDriver,
    pool: Pool,
    conn: Handle,
}

impl Polling {
    fn new(kind: IoKind, test: &str) -> Option<Self> {
        let mut driver = open(kind, LIMITS)?;
        let pool = pool();
        let at = Endpoint::Shm(format!("flick-busy-{test}-{}-{}", driver.name(), std::process::id()));
        driver.listen(&at).expect("the name is free");
        let conn = driver.connect(&at).expect("the table has capacity");
        let mut polling = Self { driver, pool, conn };
        let accepted = polling.until(|event| match event {
            DriverEvent::Accepted { conn, .. } => Some(*conn),
            _ => None,
        });
        polling.driver.receive(accepted, true);
        polling.driver.busy_poll_rings(BUSY_POLL.as_micros() as u32);
        Some(polling)
    }

    /// Polls without waiting until an event fits.
    fn until<T>(&mut self, mut fits: impl FnMut(&DriverEvent) -> Option<T>) -> T {
        let end = Instant::now() + Duration::from_secs(5);
        loop {
            assert!(Instant::now() < end, "no such event");
            let mut events = Vec::new();
            self.driver.poll(&self.pool, Some(Duration::ZERO), &mut events).expect("the driver polls");
            if let Some(found) = events.iter().find_map(&mut fits) {
                return found;
            }
        }
    }

    /// Sends through the ring, so that the driver looks at it until it sleeps.
    fn use_ring(&mut self) {
        let buffer = self.pool.alloc(BufClass::Small).expect("a buffer is free");
        let len = buffer.append(&[7; 60]);
        self.driver.send(self.conn, buffer.slice(0..len));
        self.until(|event| matches!(event, DriverEvent::Data { .. }).then_some(()));
    }

    /// Waits; returns what came, and how long it took.
    fn wait(&mut self, timeout: Option<Duration>) -> (Vec<DriverEvent>, Duration) {
        let (begun, mut events) = (Instant::now(), Vec::new());
        self.driver.poll(&self.pool, timeout, &mut events).expect("the driver polls");
        (events, begun.elapsed())
    }

    fn busy_polled_ns(&self) -> u64 {
        self.driver.shm_stats().expect("it listens at a name").busy_polled_ns
    }
}

/// Both drivers of the kernel, each with a ring that was used just now.
fn each(test: &str, check: impl Fn(&mut Polling)) {
    for kind in [IoKind::Epoll, IoKind::Uring] {
        if let Some(mut polling) = Polling::new(kind, test) {
            polling.use_ring();
            check(&mut polling);
        }
    }
}

#[test]
fn socket_is_served_while_rings_are_polled() {
    each("socket", |polling| {
        let (socket, mut peer) = UnixStream::pair().expect("a pair of sockets");
        let conn = polling.driver.adopt(socket.into()).expect("a slot is free");
        polling.driver.receive(conn, true);
        peer.write_all(b"a").expect("it is connected");
        let (events, took) = polling.wait(None);
        assert!(matches!(events[..], [DriverEvent::Data { conn: of, .. }] if of == conn), "{events:?}");
        assert!(took < BUSY_POLL / 2, "{took:?}");
    });
}

#[test]
fn wake_of_another_thread_ends_busy_polling() {
    each("wake", |polling| {
        polling.driver.waker().wake();
        let (events, took) = polling.wait(None);
        assert!(matches!(events[..], [DriverEvent::Woken]), "{events:?}");
        assert!(took < BUSY_POLL / 2 && polling.busy_polled_ns() > 0, "{took:?}");
    });
}

#[test]
fn deadline_within_the_time_to_poll_is_waited_for_asleep() {
    each("deadline", |polling| {
        let (events, took) = polling.wait(Some(Duration::from_millis(5)));
        assert!(events.is_empty() && took < BUSY_POLL / 2, "{events:?}, {took:?}");
        assert_eq!(polling.busy_polled_ns(), 0);
    });
}

#[test]
fn rings_that_were_idle_since_the_last_sleep_are_not_polled() {
    each("idle", |polling| {
        polling.driver.busy_poll_rings(1_000);
        let asleep = Duration::from_millis(20);
        polling.wait(Some(asleep));
        let polled_ns = polling.busy_polled_ns();
        assert!(polled_ns >= 1_000_000, "the ring was used just before: {polled_ns}");
        for _ in 0..3 {
            polling.wait(Some(asleep));
        }
        assert_eq!(polling.busy_polled_ns(), polled_ns);
    });
}
