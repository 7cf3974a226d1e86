//! The states of a connection, as enums: a combination that cannot occur cannot be written.
//! Promises: every transition is here or in `conn.rs`, and the same for every driver.
//! Refuses: I/O, queues and slots.

use crate::fault::ConnFault;

/// The state of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The platform has the handle.
    Live(Live),
    /// The platform has closed it while it connects; there is output to send.
    ConnectingToFlush,
    /// The platform has closed it; the rest of the output is being sent.
    Flushing {
        /// The peer has ended its side, so lingering is needless.
        peer_ended: bool,
        discarded_bytes: usize,
    },
    /// The output is sent and the write side shut down; input is discarded for a bounded time.
    Lingering { discarded_bytes: usize },
    /// It is over, but the kernel still holds requests of it.
    Dead,
}

/// A connection whose handle the platform has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Live {
    pub(crate) stage: Stage,
    pub(crate) read: ReadSide,
    pub(crate) write: WriteSide,
    pub(crate) watermark: Watermark,
}

/// Stage of a live connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Connecting,
    /// Established; `Connected` is still to be reported.
    Connected,
    Open,
    /// Failed; the fault is reported after the input that arrived before it.
    Failed {
        fault: ConnFault,
        /// It was established before, and `Connected` is still to be reported.
        is_connected_due: bool,
    },
}

/// State of the read side: whether the platform receives, and whether the stream has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadSide {
    Paused,
    Receiving,
    /// The end of the stream has come, but not been reported: input waits before it, or receiving is off.
    Ending {
        is_receiving: bool,
    },
    /// Nothing more is delivered.
    Ended,
}

/// State of the write side: whether the platform may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteSide {
    Open,
    /// The output waits for more.
    Corked,
    /// A FIN follows the output.
    ShuttingDown,
    /// The FIN is sent.
    ShutDown,
}

/// The output's level compared with the watermarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watermark {
    Below,
    /// It has reached the high watermark.
    Above,
    /// It has fallen to the low one; `Drained` is still to be reported.
    Drained,
}

/// State of the kernel's sending of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendState {
    Idle,
    /// The socket's buffer is full.
    Blocked,
    /// The kernel reads the output's buffers.
    InFlight,
}

impl Live {
    pub(crate) fn new(stage: Stage) -> Live {
        Live { stage, read: ReadSide::Paused, write: WriteSide::Open, watermark: Watermark::Below }
    }

    /// Says whether it is established and has not failed.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Connected | Stage::Open)
    }

    /// The fault, once it has failed.
    pub(crate) fn fault(&self) -> Option<ConnFault> {
        match self.stage {
            Stage::Failed { fault, .. } => Some(fault),
            Stage::Connecting | Stage::Connected | Stage::Open => None,
        }
    }

    /// Records a fault; the first one counts. A connect that fails has no input.
    pub(crate) fn fail(&mut self, fault: ConnFault) {
        let is_connected_due = match self.stage {
            Stage::Failed { .. } => return,
            Stage::Connecting => {
                self.read = ReadSide::Ended;
                false
            }
            Stage::Connected => true,
            Stage::Open => false,
        };
        self.stage = Stage::Failed { fault, is_connected_due };
    }

    /// Takes the report that the connection is established.
    pub(crate) fn take_connected(&mut self) -> bool {
        match &mut self.stage {
            Stage::Connected => {
                self.stage = Stage::Open;
                true
            }
            Stage::Failed { is_connected_due, .. } => std::mem::take(is_connected_due),
            Stage::Connecting | Stage::Open => false,
        }
    }
}

impl ReadSide {
    /// Turns receiving on or off.
    pub(crate) fn set(&mut self, on: bool) {
        *self = match *self {
            ReadSide::Paused | ReadSide::Receiving if on => ReadSide::Receiving,
            ReadSide::Paused | ReadSide::Receiving => ReadSide::Paused,
            ReadSide::Ending { .. } => ReadSide::Ending { is_receiving: on },
            ReadSide::Ended => ReadSide::Ended,
        };
    }

    /// The end of the stream has come, behind input that waits.
    pub(crate) fn end(&mut self) {
        *self = match *self {
            ReadSide::Paused => ReadSide::Ending { is_receiving: false },
            ReadSide::Receiving => ReadSide::Ending { is_receiving: true },
            ended => ended,
        };
    }

    /// Says whether the platform takes what there is: input, or the end.
    pub(crate) fn is_wanted(self) -> bool {
        matches!(self, ReadSide::Receiving | ReadSide::Ending { is_receiving: true })
    }

    /// Says whether the peer has ended its side.
    pub(crate) fn has_end(self) -> bool {
        matches!(self, ReadSide::Ending { .. } | ReadSide::Ended)
    }
}

#[cfg(test)]
mod tests {
    use super::{Live, ReadSide, Stage};
    use crate::fault::ConnFault;

    #[test]
    fn the_first_fault_counts_and_follows_the_report_of_the_connect() {
        let mut live = Live::new(Stage::Connected);
        live.fail(ConnFault::Reset);
        live.fail(ConnFault::Exhausted);
        assert_eq!(live.fault(), Some(ConnFault::Reset));
        assert!(live.take_connected() && !live.take_connected());
    }

    #[test]
    fn a_failed_connect_has_no_input() {
        let mut live = Live::new(Stage::Connecting);
        live.read.set(true);
        live.fail(ConnFault::Refused);
        assert!(!live.take_connected() && !live.read.is_wanted());
    }

    #[test]
    fn the_end_of_a_stream_waits_until_receiving_is_on() {
        let mut read = ReadSide::Paused;
        read.end();
        assert!(!read.is_wanted() && read.has_end());
        read.set(true);
        assert!(read.is_wanted());
        let mut ended = ReadSide::Ended;
        ended.set(true);
        assert_eq!(ended, ReadSide::Ended);
    }
}
