//! Looks after connections whose peer may be gone without the kernel having told.
//! Promises: a peer that has reset is found out, whatever became of the request that was to tell of it; a connection is asked once it
//! has been quiet for [`LOOK_NS`], and not again before something comes: one that rests costs nothing.
//! Why: a receive that goes on (`RecvMulti`) is now and then not told of a reset that came right behind data (seen on Linux 6.18).
//! Whoever is sent something is found out by that; a peer that is owed nothing would keep its session until a time-out.

use super::{KIND_IGNORED, KIND_RECEIVE, Phase, Receive, UringDriver, token};
use crate::limits::{LOOK_NS, LOOKS_MAX};
use crate::socket;

/// Whose turn it is to be looked at, and when.
pub(super) struct Looks {
    due_ns: u64,
    /// The slot to go on from.
    next: u32,
    /// Connections that are not [`Doubt::None`].
    doubted: u32,
}

/// Whether the kernel may have forgotten to tell of a reset.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Doubt {
    None,
    /// Nothing has come for a while: worth a system call.
    Quiet,
    /// Something has come, or is received from anew, since the last look.
    Fresh,
}

impl Looks {
    pub(super) fn new(now_ns: u64) -> Looks {
        Looks { due_ns: now_ns + LOOK_NS, next: 0, doubted: 0 }
    }

    /// When to look again; `None`: there is no need to.
    pub(super) fn due_ns(&self) -> Option<u64> {
        (self.doubted > 0).then_some(self.due_ns)
    }

    /// What is thought of a connection changes.
    #[inline]
    pub(super) fn set(&mut self, doubt: &mut Doubt, to: Doubt) {
        self.doubted += u32::from(to != Doubt::None);
        self.doubted -= u32::from(*doubt != Doubt::None);
        *doubt = to;
    }
}

impl UringDriver {
    /// Looks at some connections if it is time to. Those that are over are received from anew, which tells what there is to tell.
    pub(super) fn look(&mut self) {
        if self.looks.due_ns().is_none_or(|due_ns| self.now_ns < due_ns) {
            return;
        }
        self.looks.due_ns = self.now_ns + LOOK_NS;
        let slots = self.conns.used();
        for _ in 0..slots.min(LOOKS_MAX) {
            let index = if self.looks.next < slots { self.looks.next } else { 0 };
            self.looks.next = index + 1;
            self.look_at(index);
        }
    }

    fn look_at(&mut self, index: u32) {
        let Some(conn) = self.conns.at_mut(index) else { return };
        match conn.doubt {
            Doubt::None => {}
            Doubt::Fresh => self.looks.set(&mut conn.doubt, Doubt::Quiet),
            Doubt::Quiet => {
                self.looks.set(&mut conn.doubt, Doubt::None);
                // Whoever lingers has little time anyway.
                let waits = conn.phase == Phase::Open && conn.receive == Receive::Armed;
                if waits && socket::is_hung_up(&conn.socket) {
                    // If its receive is just about to tell by itself, this comes too late and does no harm.
                    conn.receive = Receive::Cancelling;
                    self.ring.cancel(token(KIND_RECEIVE, index), token(KIND_IGNORED, 0));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};

    use flick_buffers::{Pool, PoolConfig};

    use super::*;
    use crate::driver::{Driver, DriverLimits, Event};

    const LIMITS: DriverLimits =
        DriverLimits { conns_max: 2048, output_slices_max: 8, events_max: 64, receive_bytes: 16384 };
    /// How long something may take that takes a look or two.
    const PATIENCE: Duration = Duration::from_secs(30);

    /// A connection whose peer has sent data and a reset, and whose receive the kernel tells nothing of, behind so many others.
    fn check(others: u32) {
        let mut driver = match UringDriver::new(LIMITS) {
            Ok(driver) => driver,
            Err(why) => return eprintln!("not tested: {why}"),
        };
        let pool = Pool::new(PoolConfig { small_count: 8, large_count: 16, huge_count: 0 });
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let at = listener.local_addr().expect("it listens");
        let (quiet, _silent) = UnixStream::pair().expect("a pair of sockets");
        for _ in 0..others {
            driver.adopt(quiet.try_clone().expect("a descriptor").into()).expect("there is room");
        }
        let mut peer = TcpStream::connect(at).expect("it listens");
        let (mut socket, _) = listener.accept().expect("somebody has come");
        let handle = driver.adopt(socket.try_clone().expect("a descriptor").into()).expect("there is room");
        // As the kernel has it when it has forgotten: a receive that will tell nothing, here because it is that of another socket.
        let conn = driver.conns.at_mut(handle.index).expect("adopted just above");
        (conn.wants, conn.receive, conn.requests) = (true, Receive::Armed, 1);
        driver.looks.set(&mut conn.doubt, Doubt::Fresh);
        assert!(driver.ring.provide(&pool), "there are buffers");
        driver.ring.receive(&quiet, token(KIND_RECEIVE, handle.index));
        // What is unread when it is closed makes the kernel reset the connection.
        socket.write_all(b"unread").expect("it is connected");
        peer.write_all(b"data").expect("it is connected");
        drop(peer);
        let (mut came, mut events, end) = (Vec::new(), Vec::with_capacity(64), Instant::now() + PATIENCE);
        let is_end = |event: &Event| matches!(event, Event::Failed { .. } | Event::Eof { .. });
        while !came.iter().any(is_end) {
            assert!(Instant::now() < end, "the end does not come, only {came:?}");
            driver.poll(&pool, None, &mut events).expect("a poll does not fail");
            came.append(&mut events);
        }
        assert!(driver.looks.due_ns().is_none(), "nobody is left to look at");
        let data = came.iter().find_map(|event| match event {
            Event::Data { data, .. } => Some(data.bytes().to_vec()),
            _ => None,
        });
        assert_eq!(data.as_deref(), Some(b"data".as_slice()), "what was said before is handed out");
    }

    #[test]
    fn a_reset_that_the_kernel_forgets_to_tell_is_found_without_sending() {
        check(0);
    }

    #[test]
    fn whoever_is_behind_many_others_is_looked_at_too() {
        check(LOOKS_MAX + LOOKS_MAX / 2);
    }
}
