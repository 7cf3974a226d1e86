//! The driver's side of [`Continuation`]: the rings of a connection are replaced by those of another process, and come
//! back.
//! Promises: a connection without one pays for a look at an empty list; the own rings come back in every case in which
//! those of the other process would have ended the connection.

use std::io;

use flick_shm::conn::{RingConn, RingRead};
use flick_shm::fault::PeerFault;
use rustix::event::epoll;

use super::ShmTransport;
use super::pairs::{News, PairTable};
use crate::continuation::{Continuation, ContinuationEnd, ContinuationRequest};
use crate::driver::ListenerId;

/// A connection that may go on in rings of another process.
pub(super) struct Continued {
    handle: Continuation,
    listener: ListenerId,
    conn: Own,
    stage: Stage,
}

/// The connection that this process makes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Own {
    Expected,
    /// Its index.
    Open(u32),
    Closed,
}

enum Stage {
    /// The connection is read from its own rings.
    OwnRings,
    /// Another process pairs, or its rings wait until the own ones are empty.
    Waiting { pair: u32, ring: Option<RingConn> },
    /// It is read from the other process; the own rings and their pair.
    Reading { own: (u32, Option<RingConn>) },
}

impl ShmTransport {
    /// Takes in the handle of a listener.
    ///
    /// Errors: those of epoll_ctl(2).
    pub(super) fn add_continuation(&mut self, listener: ListenerId, handle: Continuation) -> io::Result<()> {
        let data = News::of_continuation(self.continued.len() as u32);
        epoll::add(&self.pairs.watch, handle.requests(), data, epoll::EventFlags::IN)?;
        self.continued.push(Continued { handle, listener, conn: Own::Expected, stage: Stage::OwnRings });
        Ok(())
    }

    /// Notes an accepted connection: it may be the one that this process has made.
    pub(super) fn note_continued(&mut self, listener: ListenerId, pair: u32, index: u32) {
        let is_own = || self.pairs.pid(pair) == Some(std::process::id().cast_signed());
        if let Some(of) = self.continued.iter_mut().find(|of| of.listener == listener)
            && of.conn == Own::Expected
            && is_own()
        {
            of.conn = Own::Open(index);
        }
    }

    /// Does what the thread asks for.
    pub(super) fn take_continuation_request(&mut self, number: u32) {
        let Some(of) = self.continued.get_mut(number as usize) else { return };
        match of.handle.take_request() {
            None => {}
            Some(ContinuationRequest::Read(_)) if of.conn == Own::Closed => {
                of.handle.end(ContinuationEnd::OfConnection);
            }
            Some(ContinuationRequest::Read(socket)) => {
                match self.pairs.accept_continuing(socket, self.now_ns) {
                    Some(pair) => of.stage = Stage::Waiting { pair, ring: None },
                    None => of.handle.end(ContinuationEnd::OfRings),
                }
            }
            // It was stopped before this driver had seen the other process.
            Some(ContinuationRequest::Stop) if matches!(of.stage, Stage::OwnRings) => {
                of.handle.end(ContinuationEnd::OfRings);
            }
            Some(ContinuationRequest::Stop) => self.leave_rings(number as usize, ContinuationEnd::OfRings),
        }
    }

    /// Goes on with rings that wait, where the own ones are empty.
    pub(super) fn advance_continued(&mut self) {
        for number in 0..self.continued.len() {
            let of = &mut self.continued[number];
            let (Stage::Waiting { pair, ring }, Own::Open(index)) = (&mut of.stage, of.conn) else {
                continue;
            };
            if ring.is_none() {
                *ring = self.pairs.accept_opened(*pair).unwrap_or(None);
                if let Some(ring) = ring {
                    self.pairs.set_conn(*pair, ring.slot(), index);
                } else if self.pairs.is_gone(*pair) {
                    // It has opened nothing, or there is no memory for it.
                    self.leave_rings(number, ContinuationEnd::OfRings);
                }
            }
            self.enter_rings(number, index);
        }
    }

    /// Replaces the own rings, if they are empty and the others are there.
    fn enter_rings(&mut self, number: usize, index: u32) {
        let of = &mut self.continued[number];
        let Stage::Waiting { pair, ring: ring @ Some(_) } = &mut of.stage else { return };
        let (Some(conn), own) = (self.conns.at_mut(index), &mut self.rings[index as usize]) else { return };
        if !own.as_mut().is_some_and(|own| matches!(own.is_idle(), Ok(true))) {
            return;
        }
        let own = std::mem::replace(own, ring.take());
        (conn.part.idle_looks, conn.part.late_bytes) = (0, 0);
        let own = (std::mem::replace(&mut conn.part.pair, *pair), own);
        of.stage = Stage::Reading { own };
        self.conns.ready.push(index);
        self.poll_again(index);
    }

    /// Returns to the own rings of a connection; `false`: it reads from these.
    pub(super) fn leave_rings_of(&mut self, index: u32) -> bool {
        let is_it = |of: &Continued| of.conn == Own::Open(index) && matches!(of.stage, Stage::Reading { .. });
        let Some(number) = self.continued.iter().position(is_it) else { return false };
        self.leave_rings(number, ContinuationEnd::OfRings);
        true
    }

    /// Returns to the own rings of a connection that ends.
    pub(super) fn end_continued(&mut self, index: u32) {
        if let Some(number) = self.continued.iter().position(|of| of.conn == Own::Open(index)) {
            self.leave_rings(number, ContinuationEnd::OfConnection);
            self.continued[number].conn = Own::Closed;
        }
    }

    fn leave_rings(&mut self, number: usize, end: ContinuationEnd) {
        let of = &mut self.continued[number];
        let (pair, ring) = match std::mem::replace(&mut of.stage, Stage::OwnRings) {
            Stage::OwnRings => return,
            Stage::Waiting { pair, ring } => (pair, ring),
            Stage::Reading { own: (own_pair, own) } => {
                let Own::Open(index) = of.conn else { return };
                let Some(conn) = self.conns.at_mut(index) else { return };
                let ring = std::mem::replace(&mut self.rings[index as usize], own);
                (conn.part.idle_looks, conn.part.late_bytes) = (0, 0);
                (std::mem::replace(&mut conn.part.pair, own_pair), ring)
            }
        };
        if let Some(ring) = ring {
            self.pairs.end_conn(pair, ring, true);
        }
        self.pairs.end(pair);
        self.pairs.uncount_conn(pair, self.now_ns);
        let Continued { handle, conn, .. } = &self.continued[number];
        handle.end(end);
        if let Own::Open(index) = *conn {
            self.conns.ready.push(index);
            self.poll_again(index);
        }
    }
}

/// Whether a read shows that a connection's rings have ended, in order or not.
pub(super) fn is_end(pairs: &PairTable, pair: u32, read: &Result<RingRead, PeerFault>) -> bool {
    match read {
        Ok(RingRead::Bytes(_)) => false,
        Ok(RingRead::Empty) => pairs.is_gone(pair),
        Ok(RingRead::Finished | RingRead::Reset) | Err(_) => true,
    }
}
