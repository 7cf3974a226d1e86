//! Accepting.

use rustix::io::Errno;

use super::driver::{EpollDriver, INPUT_EDGES};
use crate::driver::{Driver, DriverEvent, ListenerId};
use crate::event_sink::EventSink;
use crate::listeners::Accepting;
use crate::socket;

/// Result of accepting one connection.
enum Accepted {
    /// There may be another.
    More,
    Empty,
    Failed(i32),
}

impl EpollDriver {
    pub(super) fn accept_ready(&mut self, sink: &mut EventSink<'_>) {
        for id in self.listeners.ids() {
            let Some(listener) = self.listeners.get_mut(id) else { continue };
            if !std::mem::take(&mut listener.is_ready) {
                continue;
            }
            for _ in 0..self.accepts_max.min(sink.capacity()) {
                let is_free = self.free_slot();
                let accepted =
                    if is_free { self.accept_one(id, sink) } else { Accepted::Failed(libc::ENFILE) };
                match accepted {
                    Accepted::More => continue,
                    Accepted::Empty => {}
                    Accepted::Failed(errno) => self.pause(id, is_free, errno, sink),
                }
                break;
            }
        }
    }

    fn accept_one(&mut self, id: ListenerId, sink: &mut EventSink<'_>) -> Accepted {
        let Some(listener) = self.listeners.get(id) else { return Accepted::Empty };
        match socket::accept(&listener.socket) {
            Ok((socket, peer)) => match self.insert(socket, true, INPUT_EDGES) {
                Ok(conn) => {
                    sink.put(DriverEvent::Accepted { listener: id, conn, peer });
                    Accepted::More
                }
                Err(error) => Accepted::Failed(error.raw_os_error().unwrap_or(libc::ENOMEM)),
            },
            Err(Errno::AGAIN) => Accepted::Empty,
            Err(errno) if socket::is_per_connection_error(errno) => Accepted::More,
            Err(errno) => Accepted::Failed(errno.raw_os_error()),
        }
    }

    fn pause(&mut self, id: ListenerId, is_slot_free: bool, errno: i32, sink: &mut EventSink<'_>) {
        self.accept(id, false);
        if let Some(listener) = self.listeners.get_mut(id).filter(|_| !is_slot_free) {
            listener.accepting = Accepting::WaitsForSlot;
        }
        sink.put(DriverEvent::AcceptFailed { listener: id, errno });
    }
}
