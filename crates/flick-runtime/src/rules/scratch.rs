//! Memory that one run of a rule works in.

use flick_abi::limits::{OUT_BYTES_MAX, SPILL_WORDS_MAX};
use flick_abi::{AskList, FailureReason, Frame, SendList};
use flick_buffers::Slice;

use crate::limits::JOINED_BYTES_MAX;

/// Memory that one activation works in; there is one of it per worker, as activations never nest.
pub(crate) struct Scratch {
    /// Of the message under way.
    pub frame: Frame,
    /// It is that of the activation under way.
    pub has_frame: bool,
    /// For a second look at what is sent.
    pub other: Frame,
    /// Bytes put together for that.
    pub joined: Vec<u8>,
    /// Where rules build.
    pub out: Vec<u8>,
    /// Bytes of it in use.
    pub out_len: usize,
    /// What rules send.
    pub sends: SendList,
    /// What they ask.
    pub asks: AskList,
    /// What they keep across suspensions.
    pub spills: Vec<u64>,
    /// Why the client's request fails, if they say so.
    pub failure: Option<FailureReason>,
    /// The message that is being sent, if it is not the one that started the activation.
    pub named: Option<Slice>,
    /// What of it is not forwarded: only its cuts mean something.
    pub named_frame: Frame,
}

impl Default for Scratch {
    fn default() -> Self {
        Self {
            frame: Frame::new(),
            has_frame: false,
            other: Frame::new(),
            joined: Vec::with_capacity(JOINED_BYTES_MAX),
            out: vec![0; OUT_BYTES_MAX],
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
