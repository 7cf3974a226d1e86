//! The call of a rule as generated code sees it: pointers and lengths at fixed offsets.
//! Promises: a `RawCall` made by [`RawCall::of_rule`] or [`RawCall::of_builder`] points only into what those were
//! given, and carries their lifetime; the slices it gives back are those regions, the output as far as it is built.
//! Refuses: being made by anyone else but the parsers' own prologue, which fills one in on its stack.

use std::marker::PhantomData;
use std::mem::offset_of;
use std::slice;

use flick_abi::limits::OUT_BYTES_MAX;
use flick_abi::{BytesRef, Frame, RuleCall, SendList};

/// What generated code gets instead of a [`RuleCall`].
#[repr(C)]
pub(crate) struct RawCall<'a> {
    frame: *const u64,
    message: *const u8,
    message_len: u64,
    consts: *const u8,
    consts_len: u64,
    out: *mut u8,
    out_len: u64,
    out_max: u64,
    channel_lens: *const u64,
    sends: *mut SendList,
    lifetime: PhantomData<&'a mut SendList>,
}

/// Size of a [`RawCall`] in bytes.
pub(crate) const SIZE: u32 = size_of::<RawCall<'static>>() as u32;
/// Offset of the frame's pointer.
pub(crate) const FRAME: i32 = offset_of!(RawCall<'static>, frame) as i32;
/// Offset of the message's pointer.
pub(crate) const MESSAGE: i32 = offset_of!(RawCall<'static>, message) as i32;
/// Offset of the message's length.
pub(crate) const MESSAGE_LEN: i32 = offset_of!(RawCall<'static>, message_len) as i32;
/// Offset of the constants' pointer.
pub(crate) const CONSTS: i32 = offset_of!(RawCall<'static>, consts) as i32;
/// Offset of the constants' length.
pub(crate) const CONSTS_LEN: i32 = offset_of!(RawCall<'static>, consts_len) as i32;
/// Offset of the output's pointer.
pub(crate) const OUT: i32 = offset_of!(RawCall<'static>, out) as i32;
/// Offset of the number of output bytes in use.
pub(crate) const OUT_LEN: i32 = offset_of!(RawCall<'static>, out_len) as i32;
/// Offset of the number of output bytes there are.
pub(crate) const OUT_MAX: i32 = offset_of!(RawCall<'static>, out_max) as i32;
/// Offset of the pointer to the channels' lengths.
pub(crate) const CHANNEL_LENS: i32 = offset_of!(RawCall<'static>, channel_lens) as i32;
/// Offset of the pointer to the list of sends.
pub(crate) const SENDS: i32 = offset_of!(RawCall<'static>, sends) as i32;

impl<'a> RawCall<'a> {
    /// The raw form of a rule's call. `out_len` must be read back with [`RawCall::out_len`] afterwards.
    pub(crate) fn of_rule(call: &'a mut RuleCall<'_>, consts: &'a [u8]) -> Self {
        assert!(call.out_len <= call.out.len(), "the output in use lies inside the output");
        Self {
            frame: call.frame.slots.as_ptr(),
            message: call.message.as_ptr(),
            message_len: call.message.len() as u64,
            consts: consts.as_ptr(),
            consts_len: consts.len() as u64,
            out: call.out.as_mut_ptr(),
            out_len: call.out_len as u64,
            out_max: call.out.len().min(OUT_BYTES_MAX) as u64,
            channel_lens: call.channel_lens.as_ptr(),
            sends: call.sends,
            lifetime: PhantomData,
        }
    }

    /// The raw form of a builder's call: no message, no channels, and a list of sends that stays empty.
    pub(crate) fn of_builder(
        frame: &'a Frame,
        out: &'a mut [u8],
        sends: &'a mut SendList,
        consts: &'a [u8],
    ) -> Self {
        Self {
            frame: frame.slots.as_ptr(),
            message: [].as_ptr(),
            message_len: 0,
            consts: consts.as_ptr(),
            consts_len: consts.len() as u64,
            out: out.as_mut_ptr(),
            out_len: 0,
            out_max: out.len().min(OUT_BYTES_MAX) as u64,
            channel_lens: [].as_ptr(),
            sends,
            lifetime: PhantomData,
        }
    }

    /// Bytes of the output in use.
    pub(crate) fn out_len(&self) -> usize {
        assert!(self.out_len <= self.out_max, "a rule builds more than its bound");
        self.out_len as usize
    }

    /// The bytes a value stands for.
    pub(crate) fn bytes(&self, value: u64) -> &[u8] {
        let bytes = BytesRef(value).resolve(self.message(), self.consts(), self.out());
        bytes.expect("a bytes value lies inside its region")
    }

    /// The head of the message.
    pub(crate) fn message(&self) -> &[u8] {
        // SAFETY: pointer and length are those of one `&'a [u8]`, taken by the constructors or, in a parser, by the
        // prologue from the parser's own parameters; nobody writes to a message while code runs on it.
        unsafe { slice::from_raw_parts(self.message, self.message_len as usize) }
    }

    fn consts(&self) -> &[u8] {
        // SAFETY: as for `message`; the constants belong to the compiled program, which outlives the call.
        unsafe { slice::from_raw_parts(self.consts, self.consts_len as usize) }
    }

    fn out(&self) -> &[u8] {
        // SAFETY: `out_len <= out_max` is kept by `reserve` and by generated code, which checks before it stores;
        // `out` was a `&'a mut [u8]` of at least `out_max` initialised bytes and nobody else holds it.
        unsafe { slice::from_raw_parts(self.out, self.out_len as usize) }
    }

    /// Copies a value to the end of the output.
    pub(crate) fn emit(&mut self, value: u64) {
        let len = self.bytes(value).len();
        let start = self.reserve(len as u64);
        let bytes = self.bytes(value).as_ptr();
        self.copy(bytes, start, len);
        self.out_len += len as u64;
    }

    /// Copies a part of the message to the end of the output.
    pub(crate) fn emit_message(&mut self, start: u64, end: u64) {
        let part = self.message().get(start as usize..end as usize);
        let part = part.expect("a copied part lies inside the head");
        let (bytes, len) = (part.as_ptr(), part.len());
        let at = self.reserve(len as u64);
        self.copy(bytes, at, len);
        self.out_len += len as u64;
    }

    /// Checks that `len` more bytes fit. Returns where they go.
    fn reserve(&self, len: u64) -> u64 {
        assert!(len <= self.out_max - self.out_len, "a rule builds more than its bound");
        self.out_len
    }

    /// Copies `len` bytes from one of the three regions to `start` in the output, after `reserve`.
    fn copy(&mut self, bytes: *const u8, start: u64, len: usize) {
        // SAFETY: `reserve` has found `start <= out_max`, so the result stays inside the caller's slice.
        let target = unsafe { self.out.add(start as usize) };
        // SAFETY: `bytes` is the start of `len` bytes of the message, the constants or the output before `start`;
        // `reserve` has found `len` bytes free behind `start`; the two do not overlap, because the output belongs
        // to this call alone and the source, if in the output, ends at `start`.
        unsafe { std::ptr::copy_nonoverlapping(bytes, target, len) };
    }

    /// The list of sends.
    pub(crate) fn sends(&mut self) -> &mut SendList {
        // SAFETY: both constructors store a `&'a mut SendList` that nobody else holds; a parser's prologue stores
        // null, and the verifier refuses sends in parsers.
        let sends = unsafe { self.sends.as_mut() };
        sends.expect("only rules and helpers send")
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use flick_abi::{BytesRef, Frame, Region, RuleCall, Send, SendBody, SendList};

    use super::RawCall;

    /// Lets `act` work on a call with the message `message`, the constants `consts` and 8 bytes of output, and
    /// compares what it has built.
    fn check(act: impl FnOnce(&mut RawCall<'_>), expected: &[u8]) {
        let (frame, mut out, mut sends) = (Frame::new(), [0xee; 8], SendList::new());
        let mut call = RuleCall {
            frame: &frame,
            message: b"message",
            source_element: 0,
            channel_lens: &[1],
            out: &mut out,
            out_len: 0,
            sends: &mut sends,
        };
        let mut raw = RawCall::of_rule(&mut call, b"consts");
        act(&mut raw);
        let len = raw.out_len();
        assert_eq!(&out[..len], expected);
        assert!(out[len..].iter().all(|byte| *byte == 0xee), "nothing is written behind the output in use");
    }

    fn value(region: Region, offset: u64, len: u32) -> u64 {
        BytesRef::new(region, offset, len).0
    }

    #[test]
    fn values_of_every_region_are_emitted() {
        check(
            |raw| {
                raw.emit(value(Region::Message, 1, 2));
                raw.emit(value(Region::Const, 4, 2));
                raw.emit(value(Region::Out, 1, 3));
                raw.emit_message(6, 7);
            },
            b"estsstse",
        );
    }

    #[test]
    fn what_leaves_its_region_or_the_output_panics_and_writes_nothing() {
        let refused: [fn(&mut RawCall<'_>); 5] = [
            |raw| raw.emit(value(Region::Message, 6, 2)),
            |raw| raw.emit(value(Region::Out, 0, 1)),
            |raw| raw.emit(3 << 62),
            |raw| raw.emit_message(5, 8),
            |raw| raw.emit_message(5, 4),
        ];
        for act in refused {
            check(|raw| assert!(catch_unwind(AssertUnwindSafe(|| act(raw))).is_err()), b"");
        }
        check(
            |raw| {
                raw.emit(value(Region::Const, 0, 6));
                assert!(catch_unwind(AssertUnwindSafe(|| raw.emit_message(0, 3))).is_err());
            },
            b"consts",
        );
    }

    #[test]
    fn sends_reach_the_list() {
        let send = Send { channel: 2, element: 3, body: SendBody::Original };
        let (frame, mut sends) = (Frame::new(), SendList::new());
        RawCall::of_builder(&frame, &mut [], &mut sends, &[]).sends().push(send);
        assert_eq!(sends.as_slice(), [send]);
    }
}
