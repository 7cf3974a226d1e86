//! Memory that one run of a rule works in.

use flick_abi::limits::{OUT_BYTES_MAX, SPILL_WORDS_MAX};
use flick_abi::{AskList, FailureReason, Frame, SendList};
use flick_buffers::{Pages, Slice};
use flick_dict::limits::PRELOAD_KEYS_MAX;

use crate::limits::JOINED_BYTES_MAX;

/// Memory that one activation works in; there is one of it per worker, as activations never nest.
pub(crate) struct Scratch {
    /// Frame of the message that is handled.
    pub frame: Frame,
    /// `frame` is that of the rule that runs.
    pub has_frame: bool,
    /// Frame of a sent message that was parsed again.
    pub other: Frame,
    /// Frames of the requests behind the one that is handled, if they have been parsed ahead; the first `ahead_len`.
    pub ahead: Vec<Frame>,
    /// Number of them; it is of one step.
    pub ahead_len: usize,
    /// Bytes of that message, joined.
    pub joined: Vec<u8>,
    /// Buffer in which rules build messages.
    pub out: Pages,
    /// Bytes of it in use.
    pub out_len: usize,
    /// Messages that rules send.
    pub sends: SendList,
    /// Requests to which they wait for a reply.
    pub asks: AskList,
    /// Words that they keep across suspensions.
    pub spills: Vec<u64>,
    /// Reason for which the client's request fails, if a rule sets one.
    pub failure: Option<FailureReason>,
    /// The message that is being sent, if it is not the one that started the activation.
    pub named: Option<Slice>,
    /// Frame of that message. Only its cuts are valid: the bytes that are not forwarded.
    pub named_frame: Frame,
}

impl Default for Scratch {
    fn default() -> Self {
        Self {
            frame: Frame::new(),
            has_frame: false,
            other: Frame::new(),
            ahead: vec![Frame::new(); PRELOAD_KEYS_MAX - 1],
            ahead_len: 0,
            joined: Vec::with_capacity(JOINED_BYTES_MAX),
            out: Pages::zeroed(OUT_BYTES_MAX),
            out_len: 0,
            sends: SendList::new(),
            asks: AskList::new(),
            spills: vec![0; SPILL_WORDS_MAX],
            failure: None,
            named: None,
            named_frame: Frame::new(),
        }
    }
}
