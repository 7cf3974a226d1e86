//! The io_uring driver's part of a connection and of a listener: what the kernel holds of it.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use super::probe::ProbeState;
use crate::conn::slices::SliceQueue;
use crate::limits::ACCEPTS_PARKED_MAX;
use crate::listen::ListenSocket;
use crate::listeners::Accepting;

/// State of a connection in the io_uring driver.
pub(super) struct Requests {
    pub(super) socket: OwnedFd,
    /// Requests whose last result has not come; the socket stays open that long.
    pub(super) count: u32,
    /// It is over, and its slot free after those results.
    pub(super) is_ending: bool,
    pub(super) receive: Receive,
    /// Its last receive brought little.
    pub(super) is_light: bool,
    /// Something has arrived on it, ever.
    pub(super) was_fed: bool,
    /// Input that came while receiving was off.
    pub(super) stash: SliceQueue,
    pub(super) probe: ProbeState,
}

/// The state of a connection's receive request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Receive {
    Idle,
    Armed {
        /// Something has arrived since it was armed.
        is_fed: bool,
    },
    Cancelling {
        is_fed: bool,
    },
}

impl Requests {
    pub(super) fn new(socket: OwnedFd) -> Requests {
        Requests {
            socket,
            count: 0,
            is_ending: false,
            receive: Receive::Idle,
            is_light: true,
            was_fed: false,
            stash: SliceQueue::default(),
            probe: ProbeState::Unneeded,
        }
    }
}

impl Receive {
    pub(super) fn is_armed(self) -> bool {
        matches!(self, Receive::Armed { .. })
    }

    pub(super) fn is_fed(self) -> bool {
        matches!(self, Receive::Armed { is_fed: true } | Receive::Cancelling { is_fed: true })
    }

    /// Notes that something has arrived.
    pub(super) fn feed(&mut self) {
        match self {
            Receive::Armed { is_fed } | Receive::Cancelling { is_fed } => *is_fed = true,
            Receive::Idle => {}
        }
    }

    /// Notes that its cancellation is requested.
    pub(super) fn cancel(&mut self) {
        *self = Receive::Cancelling { is_fed: self.is_fed() };
    }
}

/// A listening socket of the io_uring driver.
pub(super) struct UringListener {
    pub(super) state: ListenerState,
    /// The kernel has the accept request.
    pub(super) is_armed: bool,
    /// Peers that the kernel accepted before it learned of a pause.
    pub(super) parked: VecDeque<OwnedFd>,
}

pub(super) enum ListenerState {
    Listening {
        socket: ListenSocket,
        accepting: Accepting,
    },
    /// Closed, but parked peers are still delivered.
    Draining,
    /// Closed; the slot waits for the last result of the accept request.
    Closed,
}

impl UringListener {
    pub(super) fn new(socket: ListenSocket) -> UringListener {
        UringListener {
            state: ListenerState::Listening { socket, accepting: Accepting::Off },
            is_armed: false,
            parked: VecDeque::with_capacity(ACCEPTS_PARKED_MAX),
        }
    }

    pub(super) fn socket(&self) -> Option<&ListenSocket> {
        match &self.state {
            ListenerState::Listening { socket, .. } => Some(socket),
            ListenerState::Draining | ListenerState::Closed => None,
        }
    }

    pub(super) fn set_accepting(&mut self, to: Accepting) {
        if let ListenerState::Listening { accepting, .. } = &mut self.state {
            *accepting = to;
        }
    }

    pub(super) fn is(&self, wanted: Accepting) -> bool {
        matches!(&self.state, ListenerState::Listening { accepting, .. } if *accepting == wanted)
    }

    pub(super) fn is_draining(&self) -> bool {
        matches!(self.state, ListenerState::Draining)
    }

    /// Returns whether parked peers may be delivered.
    pub(super) fn delivers(&self) -> bool {
        self.is(Accepting::On) || self.is_draining()
    }
}
