//! Bodies of messages in flight: the next piece of one, whether it is a plain stretch of bytes, all bytes until the
//! peer closes, or parts that the grammar's parser begins one after the other.
//! Promises: nothing of a body is kept but the head of a part that was cut; parts that lie whole in a buffer are
//! passed on where they lie.

use flick_abi::{FaultCause, Frame, FuncId, MessageFlags};
use flick_buffers::Slice;
use flick_net::Driver;

use super::Worker;
use crate::downstream::body::RemainingBody;
use crate::downstream::inbox::{Inbox, NextMessage, ParseContext};
use crate::slab::Slab;

/// Next piece of a body.
pub(super) enum Piece {
    /// Bytes to pass on as they lie.
    Bytes(Slice),
    /// The head of a part, some of which is not passed on: see the frame that was given.
    Head(Slice),
    /// Nothing yet.
    Nothing,
    /// The body ends here.
    Over,
    /// The bytes that follow violate the grammar.
    Fault {
        /// Number of the field that does, for the log.
        field: u32,
        /// Cause of the fault.
        cause: FaultCause,
    },
    /// Buffers are out.
    NoBuffers,
}

impl Piece {
    /// Bytes of it.
    pub(super) fn len(&self) -> u64 {
        match self {
            Piece::Bytes(bytes) | Piece::Head(bytes) => u64::from(bytes.len()),
            Piece::Nothing | Piece::Over | Piece::Fault { .. } | Piece::NoBuffers => 0,
        }
    }
}

/// Takes the next piece of `body` from an inbox. The frame of a part whose head has cuts is copied to `scratch`.
pub(super) fn next_piece(
    inbox: &mut Inbox,
    tools: &mut ParseContext<'_>,
    bodies: &mut Slab<Frame>,
    scratch: &mut Frame,
    body: &mut RemainingBody,
    parser: FuncId,
) -> Piece {
    if body.bytes_left > 0 {
        let Some(piece) = inbox.take_raw(tools.pieces, body.bytes_left) else { return Piece::Nothing };
        *body = body.after(piece.len());
        return Piece::Bytes(piece);
    }
    let Some((key, frame)) = body.parts.and_then(|key| Some((key, bodies.get_mut(key)?))) else {
        return Piece::Over;
    };
    let seen = match inbox.next_part(tools, parser, frame) {
        NextMessage::Large(seen) => seen,
        NextMessage::Starved => return Piece::Nothing,
        NextMessage::Fault { field, cause, .. } => return Piece::Fault { field, cause },
        NextMessage::NoBuffers | NextMessage::Waits => return Piece::NoBuffers,
        NextMessage::Whole(_) | NextMessage::TooLong => {
            panic!("the head of a part is within the bound of heads")
        }
    };
    let (total, has_cuts) = (frame.total_bytes(), frame.is_edited());
    let taken = if inbox.in_message() {
        seen.len()
    } else if has_cuts {
        frame.head_bytes() as u32
    } else {
        total.min(u64::from(seen.len())) as u32
    };
    assert!(u64::from(taken) <= total, "a part is not looked at beyond its end");
    if has_cuts {
        scratch.copy_from(frame);
    }
    let more = frame.flags().has(MessageFlags::PARTS);
    body.bytes_left = total;
    *body = body.after(taken);
    if !more {
        bodies.remove(key);
        body.parts = None;
    }
    if taken > 0 || inbox.in_message() {
        inbox.consume(tools, taken);
    }
    if has_cuts { Piece::Head(seen.sub(0..taken)) } else { Piece::Bytes(seen.sub(0..taken)) }
}

impl<D: Driver> Worker<D> {
    /// The body of the message in `frame`, of which `taken` bytes have gone on.
    pub(super) fn body_behind(&mut self, frame: &Frame, taken: u32) -> RemainingBody {
        let parts = frame.flags().has(MessageFlags::PARTS).then(|| {
            let key = self.io.bodies_mut().insert(frame.clone());
            key.expect("there is a frame for a body of every session and connection")
        });
        RemainingBody { bytes_left: frame.total_bytes(), parts }.after(taken)
    }

    /// Forgets a body that is not looked at any more.
    pub(super) fn drop_body(&mut self, body: impl Into<Option<RemainingBody>>) {
        if let Some(key) = body.into().and_then(|body| body.parts) {
            self.io.bodies_mut().remove(key);
        }
    }
}
