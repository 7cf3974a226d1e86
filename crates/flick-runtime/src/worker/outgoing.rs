//! A message as it is sent: which bytes are copied, which are sent by reference, and which fields are overwritten.
//! Promises: at most `COPY_BYTES_MAX` bytes of a message that arrived are copied, unless its head or a cut ends later.

use flick_abi::{Frame, MessageFlags, SendBody, WireField};
use flick_buffers::Slice;

use crate::limits::COPY_BYTES_MAX;
use crate::rules::scratch::Scratch;

/// Fields to overwrite in a message that is sent.
pub(super) type Patches = [Option<(WireField, u64)>; 2];

/// A message to be sent: bytes to copy, then bytes to send by reference.
pub(super) struct Outgoing<'a> {
    /// Copied, with the patches applied.
    pub front: &'a [u8],
    /// The frame that says which bytes are not forwarded, if any.
    pub cuts: Option<&'a Frame>,
    /// Follows the front.
    pub rest: Rest<'a>,
}

/// Bytes behind those that are copied with patches and cuts.
pub(super) enum Rest<'a> {
    /// There are none.
    Nothing,
    /// So few that they are copied too: adjacent messages are then one piece of output.
    Copied(&'a [u8]),
    /// Sent by reference.
    Shared(Slice),
}

impl Rest<'_> {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Rest::Nothing => &[],
            Rest::Copied(bytes) => bytes,
            Rest::Shared(slice) => slice.bytes(),
        }
    }
}

/// The messages and bytes that the body of a send may refer to.
pub(super) struct SendSources<'a> {
    /// Frame of the message that started the rule.
    pub frame: &'a Frame,
    /// Bytes that the rule has built.
    pub out: &'a [u8],
    /// Another message to which the body refers.
    pub named: Option<&'a Slice>,
    /// Frame of that message: says which of its bytes are not forwarded.
    pub named_frame: &'a Frame,
}

impl<'a> SendSources<'a> {
    /// Splits a whole message into bytes to copy and bytes to reference: of long messages only the front is copied.
    /// `message` is the one that started the rule.
    pub fn outgoing(self, body: SendBody, message: Option<&'a Slice>) -> Outgoing<'a> {
        match body {
            SendBody::Original | SendBody::Message(0) => {
                let message = message.expect("a rule without a message sends what it builds");
                front_and_rest(message, self.frame.head_bytes() as u32, self.frame)
            }
            SendBody::Message(_) => {
                let message = self.named.expect("the message that is sent has been named");
                front_and_rest(message, COPY_BYTES_MAX, self.named_frame)
            }
            SendBody::Rebuilt { offset, len, tail_from, tail_of } => {
                let front = &self.out[offset as usize..(offset + len) as usize];
                let tail = if tail_of == 0 { message } else { self.named };
                let rest = match tail.filter(|tail| tail_from < tail.len()) {
                    None => Rest::Nothing,
                    Some(tail) if tail.len() - tail_from <= COPY_BYTES_MAX => {
                        Rest::Copied(&tail.bytes()[tail_from as usize..])
                    }
                    Some(tail) => Rest::Shared(tail.sub(tail_from..tail.len())),
                };
                Outgoing { front, cuts: None, rest }
            }
        }
    }
}

/// Splits a whole message of the rule that ran in `scratch` into bytes to copy and bytes to reference.
pub(super) fn outgoing<'a>(scratch: &'a Scratch, body: SendBody, message: Option<&'a Slice>) -> Outgoing<'a> {
    let Scratch { frame, out, named, named_frame, .. } = scratch;
    SendSources { frame, out, named: named.as_ref(), named_frame }.outgoing(body, message)
}

/// Whether the rest of a large message follows what is sent of its head.
pub(super) fn has_tail(body: SendBody) -> bool {
    !matches!(body, SendBody::Rebuilt { tail_from: u32::MAX, .. })
}

/// Returns the flags of a reply that has been judged: of one that the rule has built those of `scratch.other`, of one
/// that it has received `received`.
pub(super) fn flags_of_sent(scratch: &Scratch, body: SendBody, received: MessageFlags) -> MessageFlags {
    match body {
        SendBody::Rebuilt { .. } => scratch.other.flags(),
        SendBody::Original | SendBody::Message(_) => received,
    }
}

/// As `outgoing`, for a reply that has been judged: what the rule has built is forwarded as its grammar says too.
pub(super) fn outgoing_reply<'a>(
    scratch: &'a Scratch,
    body: SendBody,
    message: Option<&'a Slice>,
) -> Outgoing<'a> {
    let built = outgoing(scratch, body, message);
    match body {
        SendBody::Rebuilt { .. } if scratch.other.is_edited() => {
            Outgoing { cuts: Some(&scratch.other), ..built }
        }
        _ => built,
    }
}

fn front_and_rest<'a>(message: &'a Slice, head: u32, frame: &'a Frame) -> Outgoing<'a> {
    let cuts = frame.is_edited().then_some(frame);
    if message.len() <= COPY_BYTES_MAX {
        return Outgoing { front: message.bytes(), cuts, rest: Rest::Nothing };
    }
    let front = head.max(frame.edits_end() as u32).min(message.len());
    let rest = Rest::Shared(message.sub(front..message.len()));
    Outgoing { front: &message.bytes()[..front as usize], cuts, rest }
}
