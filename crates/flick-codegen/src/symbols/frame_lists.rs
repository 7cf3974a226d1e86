//! A frame's lists on behalf of generated code: what parsers put into them and rules take out of them.

use flick_abi::BytesRef;
use flick_ir::data::Transform;
use flick_ir::semantics::{self, NoTransform};

use super::number;
use crate::raw::RawCall;

/// The number of a transformation as a word.
pub(crate) fn transform_word(kind: Transform) -> i64 {
    TRANSFORMS.iter().position(|known| *known == kind).expect("every transformation is in the table") as i64
}

const TRANSFORMS: [Transform; 4] =
    [Transform::PercentDecode, Transform::PercentEncode, Transform::Base64Decode, Transform::Base64Encode];

pub(super) extern "C-unwind" fn cut(call: &mut RawCall<'_>, start: u64, end: u64) -> u64 {
    u64::from(call.parser_frame().1.cut(start, end))
}

pub(super) extern "C-unwind" fn insert(call: &mut RawCall<'_>, at: u64, text: u64) -> u64 {
    let (regions, frame) = call.parser_frame();
    u64::from(frame.insert(at, regions.bytes(text)))
}

pub(super) extern "C-unwind" fn cut_listed(
    call: &mut RawCall<'_>,
    names: u64,
    start: u64,
    end: u64,
    lines_max: u64,
) -> u64 {
    let (regions, frame) = call.parser_frame();
    let (message, names) = (regions.message(0).unwrap_or_default(), regions.bytes(names));
    assert!(start <= end && end <= message.len() as u64, "a range of lines lies inside the message");
    u64::from(semantics::cut_listed(frame, message, names, (start, end), lines_max as u32))
}

pub(super) extern "C-unwind" fn items(
    call: &mut RawCall<'_>,
    message: u64,
    from: u64,
    count: u64,
    count_max: u64,
) -> u64 {
    let message = number(message);
    let (regions, free) = call.split(count_max as usize * 8);
    let words = semantics::items(regions.frame(message), message, from, count, count_max as u32);
    let len = words.len() * 8;
    for (target, word) in free.chunks_exact_mut(8).zip(words) {
        target.copy_from_slice(&word.to_le_bytes());
    }
    call.grow(len)
}

pub(super) extern "C-unwind" fn whole(call: &mut RawCall<'_>, message: u64) -> u64 {
    let message = number(message);
    let regions = call.regions();
    let bytes = regions.message(usize::from(message)).expect("a message of the activation is read");
    let frame = regions.frame(message);
    let whole = semantics::whole(frame, message, bytes.len());
    if whole == BytesRef::MISSING || !frame.is_edited() {
        return whole.0;
    }
    call.emit_message(message, 0, u64::from(whole.len()))
}

pub(super) extern "C-unwind" fn has_token(call: &RawCall<'_>, list: u64, token: u64) -> u64 {
    let is_there = BytesRef(list) != BytesRef::MISSING;
    u64::from(is_there && semantics::has_token(call.bytes(list), call.bytes(token)))
}

pub(super) extern "C-unwind" fn transform(
    call: &mut RawCall<'_>,
    kind: u64,
    value: u64,
    max_bytes: u64,
) -> u64 {
    let (regions, free) = call.split(max_bytes as usize);
    match semantics::transform(TRANSFORMS[kind as usize], regions.bytes(value), free) {
        Ok(len) => call.grow(len),
        Err(NoTransform::Malformed) => BytesRef::MISSING.0,
        Err(NoTransform::TooLong) => panic!("what is made of bytes is longer than its bound"),
    }
}
