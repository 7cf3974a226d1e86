//! One client of the store: reads bytes, parses requests, batches replies, writes bytes.
//!
//! Promises: a connection with nothing half-received and nothing unsent holds no buffer; at most one read and one write
//! per event; once `STORE_UNSENT_BYTES_MAX` is reached no request is answered and nothing is read until it drains.
//! Refuses: knowing what a request means (`command.rs`).

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;

use rustix::event::epoll::{self, EventData, EventFlags};

use crate::binary::{HEADER_BYTES, Header};
use crate::limits::{STORE_IDLE_BYTES_MAX, STORE_UNSENT_BYTES_MAX};

use super::command::{RequestHandler, Then, refuse, reply_error};

/// Whether the connection is still open after an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Served {
    Open,
    Closed,
}

/// Resources of the event loop that serving an event borrows: all connections share one receive and one send buffer.
pub(super) struct ServeContext<'a> {
    pub(super) epoll: &'a OwnedFd,
    pub(super) handler: &'a mut RequestHandler,
    pub(super) recv: &'a mut [u8],
    pub(super) out: &'a mut Vec<u8>,
    pub(super) now_s: u64,
}

/// One accepted socket.
pub(super) struct Connection {
    stream: TcpStream,
    index: u64,
    watched: EventFlags,
    /// Received bytes that are not yet a whole request, or wait for unsent replies to drain.
    held: Vec<u8>,
    /// Bytes of a refused body that are still to come.
    skip_bytes: u64,
    unsent: Vec<u8>,
    unsent_start: usize,
    /// True while `held` may have whole requests that wait until replies are sent.
    starved: bool,
    closing: bool,
}

impl Connection {
    /// Takes an accepted socket and registers it.
    pub(super) fn open(epoll: &OwnedFd, stream: TcpStream, index: u64) -> io::Result<Connection> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        epoll::add(epoll, &stream, EventData::new_u64(index), EventFlags::IN)?;
        Ok(Connection {
            stream,
            index,
            watched: EventFlags::IN,
            held: Vec::new(),
            skip_bytes: 0,
            unsent: Vec::new(),
            unsent_start: 0,
            starved: false,
            closing: false,
        })
    }

    /// Serves one readiness event. On `Closed` the caller drops the connection, which closes the socket.
    pub(super) fn serve(&mut self, ctx: &mut ServeContext<'_>, flags: EventFlags) -> Served {
        match self.try_serve(ctx, flags) {
            Ok(served) => served,
            // A reset or any other failure of the peer's socket ends this connection and nothing else.
            Err(_) => Served::Closed,
        }
    }

    fn try_serve(&mut self, ctx: &mut ServeContext<'_>, flags: EventFlags) -> io::Result<Served> {
        ctx.out.clear();
        let broken = EventFlags::ERR | EventFlags::HUP;
        if flags.intersects(EventFlags::OUT | broken) {
            if self.unsent_len() > 0 {
                self.send_unsent()?;
            }
            if self.starved && self.unsent_len() == 0 {
                self.answer_held(ctx);
            }
        }
        let may_read = !self.starved && !self.closing && self.unsent_len() < STORE_UNSENT_BYTES_MAX;
        if may_read && flags.intersects(EventFlags::IN | broken) {
            match self.stream.read(ctx.recv) {
                Ok(0) => self.closing = true,
                Ok(len) => self.receive(ctx, len),
                Err(error) if is_transient(&error) => {}
                Err(error) => return Err(error),
            }
        }
        self.send(ctx.out)?;
        if self.closing && self.unsent_len() == 0 {
            return Ok(Served::Closed);
        }
        self.watch(ctx.epoll)?;
        Ok(Served::Open)
    }

    /// Answers what the first `len` bytes of the receive buffer complete; keeps the rest.
    fn receive(&mut self, ctx: &mut ServeContext<'_>, len: usize) {
        if !self.held.is_empty() {
            self.held.extend_from_slice(&ctx.recv[..len]);
            self.answer_held(ctx);
            return;
        }
        let recv = std::mem::take(&mut ctx.recv);
        let used = self.answer(ctx, &recv[..len]);
        self.held.extend_from_slice(&recv[used..len]);
        ctx.recv = recv;
        self.reserve_for_frame();
    }

    fn answer_held(&mut self, ctx: &mut ServeContext<'_>) {
        let mut held = std::mem::take(&mut self.held);
        let used = self.answer(ctx, &held);
        held.drain(..used);
        if held.is_empty() && held.capacity() > STORE_IDLE_BYTES_MAX {
            held = Vec::new();
        }
        self.held = held;
        self.reserve_for_frame();
    }

    /// Reserves space for the rest of a request whose header has arrived, so that a long value is not copied at each
    /// read.
    fn reserve_for_frame(&mut self) {
        if let Some(header) = Header::decode(&self.held).filter(|header| refuse(header).is_none()) {
            let frame_len = HEADER_BYTES + header.body_len as usize;
            self.held.reserve_exact(frame_len.saturating_sub(self.held.len()));
        }
    }

    /// Answers whole requests from the front of `input` and returns how many bytes they took.
    fn answer(&mut self, ctx: &mut ServeContext<'_>, input: &[u8]) -> usize {
        let mut used = 0;
        self.starved = false;
        while !self.closing {
            if ctx.out.len() + self.unsent_len() >= STORE_UNSENT_BYTES_MAX {
                self.starved = true;
                break;
            }
            let rest = &input[used..];
            if self.skip_bytes > 0 {
                let skipped = rest.len().min(usize::try_from(self.skip_bytes).unwrap_or(usize::MAX));
                self.skip_bytes -= skipped as u64;
                used += skipped;
                if self.skip_bytes > 0 {
                    break;
                }
                continue;
            }
            let Some(header) = Header::decode(rest) else { break };
            if let Some((status, then)) = refuse(&header) {
                reply_error(&header, status, ctx.out);
                ctx.handler.counts.faults += 1;
                self.closing = then == Then::Close;
                self.skip_bytes = u64::from(header.body_len);
                used += HEADER_BYTES;
                continue;
            }
            let frame_len = HEADER_BYTES + header.body_len as usize;
            let Some(frame) = rest.get(..frame_len) else { break };
            let then = ctx.handler.answer(header, &frame[HEADER_BYTES..], ctx.now_s, ctx.out);
            self.closing = then == Then::Close;
            used += frame_len;
        }
        used
    }

    fn unsent_len(&self) -> usize {
        self.unsent.len() - self.unsent_start
    }

    fn send_unsent(&mut self) -> io::Result<()> {
        let sent = write(&mut self.stream, &self.unsent[self.unsent_start..])?;
        self.unsent_start += sent;
        if self.unsent_start == self.unsent.len() {
            self.unsent_start = 0;
            self.unsent.clear();
            if self.unsent.capacity() > STORE_IDLE_BYTES_MAX {
                self.unsent = Vec::new();
            }
        }
        Ok(())
    }

    /// Sends `out` after what is still unsent, and keeps what the socket does not take.
    fn send(&mut self, out: &[u8]) -> io::Result<()> {
        let sent = if self.unsent_len() == 0 && !out.is_empty() { write(&mut self.stream, out)? } else { 0 };
        self.unsent.extend_from_slice(&out[sent..]);
        Ok(())
    }

    /// Registers for what the connection waits for: writability, and input unless earlier input still waits.
    fn watch(&mut self, epoll: &OwnedFd) -> io::Result<()> {
        let mut wanted = EventFlags::empty();
        let may_read = !self.starved && !self.closing && self.unsent_len() < STORE_UNSENT_BYTES_MAX;
        wanted.set(EventFlags::OUT, self.unsent_len() > 0 || self.starved);
        wanted.set(EventFlags::IN, may_read);
        if wanted != self.watched {
            epoll::modify(epoll, &self.stream, EventData::new_u64(self.index), wanted)?;
            self.watched = wanted;
        }
        Ok(())
    }
}

/// Writes once; a full socket takes zero bytes.
fn write(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<usize> {
    match stream.write(bytes) {
        Err(error) if is_transient(&error) => Ok(0),
        other => other,
    }
}

fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
