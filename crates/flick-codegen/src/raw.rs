//! The call of a rule as generated code sees it: pointers and lengths at fixed offsets.
//! Promises: a `RawCall` made by [`RawCall::of_rule`], [`RawCall::of_run`] or [`RawCall::of_builder`] points only into
//! what those were given, and carries their lifetime; the slices it gives back are those regions, the output as far as
//! it is built.
//! Refuses: being made by anyone else but the parsers' own prologue, which fills one in on its stack.

use std::marker::PhantomData;
use std::mem::offset_of;
use std::ops::Range;
use std::slice;
use std::sync::atomic::AtomicU64;

use flick_abi::limits::OUT_BYTES_MAX;
use flick_abi::{AskList, BytesRef, Frame, Host, Message, MessageDone, Region, RuleCall, SendList};

/// Call as generated code receives it, instead of a [`RuleCall`]. Pointers and lengths of message 0, the constants and
/// the output are in the order of their regions' numbers: generated code indexes them.
#[repr(C)]
pub(crate) struct RawCall<'a> {
    message: *const u8,
    message_len: u64,
    consts: *const u8,
    consts_len: u64,
    out: *mut u8,
    out_len: u64,
    out_max: u64,
    /// Written to by parsers only.
    frame: *mut Frame,
    channel_lens: *const u64,
    counters: *const AtomicU64,
    counters_len: u64,
    state: *mut u64,
    spills: *mut u64,
    resume: u64,
    sends: *mut SendList,
    /// Call from which the fields above were taken; null in parsers and builders. It is used only for parts that have
    /// no field above: asks, further messages, answers, a failure, the platform.
    rule: *mut RuleCall<'a>,
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
/// Offset of the pointer to the counters.
pub(crate) const COUNTERS: i32 = offset_of!(RawCall<'static>, counters) as i32;
/// Offset of the number of counters.
pub(crate) const COUNTERS_LEN: i32 = offset_of!(RawCall<'static>, counters_len) as i32;
/// Offset of the pointer to the session's state.
pub(crate) const STATE: i32 = offset_of!(RawCall<'static>, state) as i32;
/// Offset of the pointer to the words kept across suspensions.
pub(crate) const SPILLS: i32 = offset_of!(RawCall<'static>, spills) as i32;
/// Offset of the state to resume in.
pub(crate) const RESUME: i32 = offset_of!(RawCall<'static>, resume) as i32;
/// Offset of the pointer to the rule's call.
pub(crate) const RULE: i32 = offset_of!(RawCall<'static>, rule) as i32;
/// Offset of the pointer to the list of sends.
pub(crate) const SENDS: i32 = offset_of!(RawCall<'static>, sends) as i32;

// Generated code finds pointer and length of a region at 16 times its number.
const _: () = assert!(MESSAGE == 0 && CONSTS == 16 && OUT == 32);
const _: () = assert!(MESSAGE_LEN == 8 && CONSTS_LEN == 24 && OUT_LEN == 40);
const _: () = assert!(Region::Message as u64 == 0 && Region::Const as u64 == 1 && Region::Out as u64 == 2);

/// All that a bytes value may lie in.
#[derive(Clone, Copy)]
pub(crate) struct Regions<'r> {
    message: &'r [u8],
    frame: &'r Frame,
    others: &'r [Message<'r>],
    consts: &'r [u8],
    out: &'r [u8],
}

impl<'r> Regions<'r> {
    /// The bytes a value stands for.
    #[inline]
    pub(crate) fn bytes(&self, value: u64) -> &'r [u8] {
        let bytes = BytesRef(value).resolve(|number| self.message(number), self.consts, self.out);
        bytes.expect("a bytes value lies inside its region")
    }

    /// The frame of a message, by number.
    pub(crate) fn frame(&self, message: u8) -> &'r Frame {
        match message {
            0 => self.frame,
            _ => {
                let other = self.others.get(usize::from(message) - 1);
                other.expect("a message of the activation is read").frame
            }
        }
    }

    /// All of a message, by number.
    pub(crate) fn message(&self, number: usize) -> Option<&'r [u8]> {
        match number {
            0 => Some(self.message),
            _ => self.others.get(number - 1).map(|other| other.bytes),
        }
    }
}

/// Loads the length of a slice that has just been stored, without its pointer. One load of both would be wider than
/// either store, and have to wait until they have left the processor: a tenth of a short rule's time.
#[inline]
fn alone(len: usize) -> u64 {
    std::hint::black_box(len) as u64
}

impl<'a> RawCall<'a> {
    /// The raw form of a rule's call. `out_len` and `failure` must be read back afterwards.
    pub(crate) fn of_rule(call: &'a mut RuleCall<'_>, consts: &'a [u8]) -> Self {
        assert!(call.out_len <= call.out.len(), "the output in use lies inside the output");
        Self {
            message: call.message.as_ptr(),
            message_len: alone(call.message.len()),
            consts: consts.as_ptr(),
            consts_len: consts.len() as u64,
            out: call.out.as_mut_ptr(),
            out_len: call.out_len as u64,
            out_max: call.out.len().min(OUT_BYTES_MAX) as u64,
            frame: (&raw const *call.frame).cast_mut(),
            channel_lens: call.channel_lens.as_ptr(),
            counters: call.counters.as_ptr(),
            counters_len: alone(call.counters.len()),
            state: call.state.as_mut_ptr(),
            spills: call.spills.as_mut_ptr(),
            resume: u64::from(call.resume),
            sends: call.sends,
            rule: (&raw mut *call).cast(),
            lifetime: PhantomData,
        }
    }

    /// The raw form of the calls of a rule on one message after the other, each parsed into `frame`. There is no
    /// message before [`RawCall::begin`].
    pub(crate) fn of_run(call: &'a mut RuleCall<'_>, frame: &'a mut Frame, consts: &'a [u8]) -> Self {
        let frame = &raw mut *frame;
        Self { message: [].as_ptr(), message_len: 0, frame, ..Self::of_rule(call, consts) }
    }

    /// The frame, for a parser. Nothing else refers to it meanwhile.
    pub(crate) fn frame_mut(&mut self) -> &mut Frame {
        // SAFETY: only calls of `of_run` are asked, which took it from a `&'a mut Frame`; `&mut self` keeps every other
        // view of it away.
        unsafe { &mut *self.frame }
    }

    /// Takes another frame for the messages of a run from here on.
    pub(crate) fn set_frame(&mut self, frame: &'a mut Frame) {
        self.frame = &raw mut *frame;
    }

    /// Begins the call on the next message of a run, which its frame describes; nothing is built or sent.
    pub(crate) fn begin(&mut self, message: &'a [u8]) {
        (self.message, self.message_len) = (message.as_ptr(), message.len() as u64);
        self.sends().clear();
        // SAFETY: as for `fail`.
        unsafe { (*self.rule).failure = None };
    }

    /// Returns what the rule has done with the message at `range`, given the start of its output in that of the run.
    pub(crate) fn done(&mut self, range: Range<usize>, out_from: usize) -> MessageDone<'_> {
        let built = out_from..out_from + self.out_len();
        // SAFETY: as for `fail`.
        let failure = unsafe { (*self.rule).failure };
        // SAFETY: `out` was moved from the start of the run's output by `out_from` bytes, by `move_output`.
        let start = unsafe { self.out.sub(out_from) };
        // SAFETY: `out_max` bytes are left behind those; `&mut self` keeps every other view of them away.
        let out = unsafe { slice::from_raw_parts_mut(start, out_from + self.out_max as usize) };
        // SAFETY: as for `sends`; generated code does not run while the borrow of `self` lasts.
        let sends = unsafe { &*self.sends };
        // SAFETY: as for `frame`, and as above.
        let frame = unsafe { &*self.frame };
        MessageDone { frame, range, sends, failure, out, built }
    }

    /// Lets the output of the next message begin at `to` of the run's output; that of the last one began at `from`.
    pub(crate) fn move_output(&mut self, from: usize, to: usize) {
        let end = from + self.out_max as usize;
        assert!(to <= end, "the output of a message begins inside that of its run");
        // SAFETY: the start of the slice that `out` was made of, as in `done`.
        let start = unsafe { self.out.sub(from) };
        // SAFETY: inside that slice, or at its end (asserted above).
        self.out = unsafe { start.add(to) };
        (self.out_max, self.out_len) = ((end - to) as u64, 0);
    }

    /// The raw form of a builder's call: no message, no channels, no platform, and a list of sends that stays empty.
    pub(crate) fn of_builder(
        frame: &'a Frame,
        out: &'a mut [u8],
        sends: &'a mut SendList,
        consts: &'a [u8],
    ) -> Self {
        Self {
            message: [].as_ptr(),
            message_len: 0,
            consts: consts.as_ptr(),
            consts_len: consts.len() as u64,
            out: out.as_mut_ptr(),
            out_len: 0,
            out_max: out.len().min(OUT_BYTES_MAX) as u64,
            frame: (&raw const *frame).cast_mut(),
            channel_lens: [].as_ptr(),
            counters: [].as_ptr(),
            counters_len: 0,
            state: std::ptr::null_mut(),
            spills: std::ptr::null_mut(),
            resume: 0,
            sends,
            rule: std::ptr::null_mut(),
            lifetime: PhantomData,
        }
    }

    /// Bytes of the output in use.
    pub(crate) fn out_len(&self) -> usize {
        assert!(self.out_len <= self.out_max, "a rule builds more than its bound");
        self.out_len as usize
    }

    /// Everything a value may lie in.
    #[inline]
    pub(crate) fn regions(&self) -> Regions<'_> {
        let (message, others) = (self.message(), self.others());
        Regions { message, frame: self.frame(), others, consts: self.consts(), out: self.out() }
    }

    /// The frame of message 0.
    fn frame(&self) -> &Frame {
        // SAFETY: the constructors take it from a `&'a Frame`, a parser's prologue from the `&mut Frame` that the
        // parser was called with; `parser_frame`, the only one to write to it here, borrows this call mutably.
        unsafe { &*self.frame }
    }

    /// Everything a value of a parser may lie in but the frame, and the frame, to be changed. Panics in all but
    /// parsers.
    pub(crate) fn parser_frame(&mut self) -> (Regions<'_>, &mut Frame) {
        static NO_FRAME: Frame = Frame::new();
        assert!(self.sends.is_null(), "only parsers change a frame");
        let frame = self.frame;
        let (message, consts) = (self.message(), self.consts());
        let regions = Regions { message, frame: &NO_FRAME, others: &[], consts, out: &[] };
        // SAFETY: only a parser's prologue leaves out the list of sends, and it takes the frame from the `&mut Frame`
        // that the parser was called with; the regions do not show it, and generated code waits for this call.
        (regions, unsafe { &mut *frame })
    }

    /// The bytes a value stands for.
    #[inline]
    pub(crate) fn bytes(&self, value: u64) -> &[u8] {
        self.regions().bytes(value)
    }

    /// The head of the message.
    fn message(&self) -> &[u8] {
        // SAFETY: pointer and length are those of one `&'a [u8]`, taken by the constructors or, in a parser, by the
        // prologue from the parser's own parameters; nothing writes to a message while code runs on it.
        unsafe { slice::from_raw_parts(self.message, self.message_len as usize) }
    }

    /// The messages from number 1 on; none in parsers and builders.
    fn others(&self) -> &[Message<'_>] {
        // SAFETY: the pointer is null or that of the `RuleCall` that was borrowed for `'a`; this field is shared data
        // that nothing changes meanwhile, and no reference to the whole of it is made.
        if self.rule.is_null() { &[] } else { unsafe { (*self.rule).others } }
    }

    /// Answers to the asks of the last suspension.
    pub(crate) fn answers(&self) -> &[i64] {
        // SAFETY: as for `others`.
        if self.rule.is_null() { &[] } else { unsafe { (*self.rule).answers } }
    }

    /// Says why the client's request fails.
    pub(crate) fn fail(&mut self, reason: u32) {
        assert!(!self.rule.is_null(), "only rules and helpers let a request fail");
        // SAFETY: as for `others`; nothing else reads or writes this field while the rule runs.
        unsafe { (*self.rule).failure = Some(reason) };
    }

    /// A slot of a message's frame.
    pub(crate) fn frame_slot(&self, message: u8, slot: usize) -> u64 {
        self.regions().frame(message).slots[slot]
    }

    fn consts(&self) -> &[u8] {
        // SAFETY: as for `message`; the constants belong to the compiled program, which outlives the call.
        unsafe { slice::from_raw_parts(self.consts, self.consts_len as usize) }
    }

    fn out(&self) -> &[u8] {
        // SAFETY: `out_len <= out_max` is kept by `grow` and by generated code, which checks before it stores;
        // `out` was a `&'a mut [u8]` of at least `out_max` initialised bytes and nothing else holds it.
        unsafe { slice::from_raw_parts(self.out, self.out_len as usize) }
    }

    /// The output in use, to be changed in place.
    pub(crate) fn out_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `out`; `&mut self` keeps every other view of it away.
        unsafe { slice::from_raw_parts_mut(self.out, self.out_len as usize) }
    }

    /// Everything a value may lie in, and `max_bytes` of free output behind it. Panics when they do not fit.
    /// [`RawCall::grow`] keeps what was written.
    pub(crate) fn split(&mut self, max_bytes: usize) -> (Regions<'_>, &mut [u8]) {
        assert!(max_bytes as u64 <= self.out_max - self.out_len, "a rule builds more than its bound");
        // SAFETY: `out_len <= out_max`, and `out` was a slice of at least `out_max` bytes.
        let free = unsafe { self.out.add(self.out_len as usize) };
        // SAFETY: `max_bytes` bytes from there on are inside that slice, and the regions show only what lies before,
        // so that the two do not overlap; `&mut self` keeps every other view away.
        let free = unsafe { slice::from_raw_parts_mut(free, max_bytes) };
        (self.regions(), free)
    }

    /// As [`RawCall::split`], with the platform.
    pub(crate) fn split_with_host(&mut self, max_bytes: usize) -> (Regions<'_>, &mut [u8], &mut dyn Host) {
        let rule = self.rule;
        assert!(!rule.is_null(), "only rules and helpers ask the platform");
        let (regions, free) = self.split(max_bytes);
        // SAFETY: as for `others`; the platform is reached through this field alone, and its data are none of the
        // regions, which are shared borrows in the same `RuleCall`.
        let host = unsafe { &mut *(*rule).host };
        (regions, free, host)
    }

    /// The platform.
    #[inline]
    pub(crate) fn host(&mut self) -> &mut dyn Host {
        assert!(!self.rule.is_null(), "only rules and helpers ask the platform");
        // SAFETY: as in `split_with_host`, without the regions.
        unsafe { &mut *(*self.rule).host }
    }

    /// Takes `len` bytes more of the output into use. Returns them as a value.
    pub(crate) fn grow(&mut self, len: usize) -> u64 {
        let start = self.out_len;
        assert!(len as u64 <= self.out_max - start, "a rule builds more than its bound");
        self.out_len += len as u64;
        BytesRef::new(Region::Out, start, len as u32).0
    }

    /// Copies a value to the end of the output.
    pub(crate) fn emit(&mut self, value: u64) {
        let len = BytesRef(value).len() as usize;
        let (regions, free) = self.split(len);
        free.copy_from_slice(regions.bytes(value));
        self.grow(len);
    }

    /// Copies what is forwarded of a part of a message to the end of the output. Returns the copy as a value.
    pub(crate) fn emit_message(&mut self, message: u8, start: u64, end: u64) -> u64 {
        let bytes = self.regions().message(usize::from(message)).map_or(0, <[u8]>::len);
        assert!(start <= end && end <= bytes as u64, "a copied part lies inside the head");
        if !self.regions().frame(message).is_edited() {
            let (regions, free) = self.split((end - start) as usize);
            let bytes = regions.message(usize::from(message)).unwrap_or_default();
            free.copy_from_slice(&bytes[start as usize..end as usize]);
            return self.grow((end - start) as usize);
        }
        let pieces = self.regions().frame(message).forwarded(start, end);
        let kept_bytes: usize = pieces.map(|piece| piece.len()).sum();
        let (regions, mut free) = self.split(kept_bytes);
        let (message, frame) =
            (regions.message(usize::from(message)).unwrap_or_default(), regions.frame(message));
        for piece in frame.forwarded(start, end) {
            let (target, rest) = free.split_at_mut(piece.len());
            target.copy_from_slice(piece.bytes(message));
            free = rest;
        }
        self.grow(kept_bytes)
    }

    /// The list of sends.
    pub(crate) fn sends(&mut self) -> &mut SendList {
        // SAFETY: both constructors store a `&'a mut SendList` that nothing else holds; a parser's prologue stores
        // null, and the verifier refuses sends in parsers.
        let sends = unsafe { self.sends.as_mut() };
        sends.expect("only rules and helpers send")
    }

    /// The list of asks.
    pub(crate) fn asks(&mut self) -> &mut AskList {
        assert!(!self.rule.is_null(), "only rules ask");
        // SAFETY: as for `others`; the list is reached through this field alone.
        unsafe { &mut *(*self.rule).asks }
    }
}

/// A pointer that generated code passes to bytes: those of the message, or constants. Only generated code makes one.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Data(*const u8);

impl Data {
    /// The bytes; `len` is what the same call says of their number.
    pub(crate) fn bytes<'b>(self, len: u64) -> &'b [u8] {
        // SAFETY: generated code passes either pointer and length of the message, which were those of the `&[u8]`
        // that the parser was called with, or those of constants that the verifier has found to be there; both live
        // longer than the call that got them, and nothing keeps the slice beyond it.
        unsafe { slice::from_raw_parts(self.0, len as usize) }
    }
}

/// A pointer that generated code passes to words on its own stack or in the session's state, with as many behind it as
/// the same call says. Only generated code makes one.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Area(*mut u64);

impl Area {
    /// The words.
    pub(crate) fn words<'w>(self, count: u64) -> &'w [u64] {
        // SAFETY: either `translate::words` has made a stack slot of `count` words and stored them all, or the verifier
        // has found that the session's state has `count` words there; both live longer than the call that got the
        // area, and nothing keeps the slice beyond it.
        unsafe { slice::from_raw_parts(self.0, count as usize) }
    }

    /// The words, of the session's state only.
    pub(crate) fn words_mut<'w>(self, count: u64) -> &'w mut [u64] {
        // SAFETY: as for `words`; the state was borrowed mutably for the whole call of the rule, and only generated
        // code on this thread makes areas of it.
        unsafe { slice::from_raw_parts_mut(self.0, count as usize) }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use flick_abi::{AskList, BytesRef, Frame, Message, NoHost, Region, RuleCall, Send, SendBody, SendList};

    use super::RawCall;

    /// Lets `act` work on a call with the message `message`, the constants `consts` and 8 bytes of output, and
    /// compares what it has built.
    fn check(act: impl FnOnce(&mut RawCall<'_>), expected: &[u8]) {
        let (frame, mut out, mut sends) = (Frame::new(), [0xee; 8], SendList::new());
        let (mut asks, mut host) = (AskList::new(), NoHost);
        let mut call = RuleCall {
            frame: &frame,
            message: b"message",
            others: &[Message { frame: &frame, bytes: b"reply" }],
            source_element: 0,
            channel_lens: &[1],
            counters: &[],
            out: &mut out,
            out_len: 0,
            sends: &mut sends,
            asks: &mut asks,
            answers: &[1],
            spills: &mut [],
            resume: 0,
            state: &mut [],
            failure: None,
            host: &mut host,
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
                raw.emit(value(Region::Out, 2, 2));
                raw.emit_message(0, 6, 7);
                raw.emit(BytesRef::new(Region::Message, 4, 1).in_message(1).0);
            },
            b"eststsey",
        );
    }

    #[test]
    fn what_leaves_its_region_or_the_output_panics_and_writes_nothing() {
        let refused: [fn(&mut RawCall<'_>); 7] = [
            |raw| raw.emit(value(Region::Message, 6, 2)),
            |raw| raw.emit(value(Region::Out, 0, 1)),
            |raw| raw.emit((3 << 56) | 1),
            |raw| raw.emit((5 << 56) | 1),
            |raw| raw.emit(BytesRef::MISSING.0),
            |raw| {
                let _ = raw.emit_message(0, 5, 8);
            },
            |raw| {
                let _ = raw.emit_message(0, 5, 4);
            },
        ];
        for act in refused {
            check(|raw| assert!(catch_unwind(AssertUnwindSafe(|| act(raw))).is_err()), b"");
        }
        check(
            |raw| {
                raw.emit(value(Region::Const, 0, 6));
                assert!(catch_unwind(AssertUnwindSafe(|| raw.emit_message(0, 0, 3))).is_err());
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
