//! Reference semantics of scans for the end of something and of a frame's lists: vectorised code is compared with it.

use flick_abi::{BytesRef, Frame, MessageFlags, Region};

use crate::data::Type;
use crate::limits::LISTED_NAMES_MAX;
use crate::semantics::message_get;

/// Whether a byte is of a class.
pub fn in_class(class: &[u64; 4], byte: u8) -> bool {
    (class[usize::from(byte >> 6)] >> (byte & 63)) & 1 == 1
}

/// Returns the end of the run of bytes of the class that starts at `from`; see `Op::ScanRun`.
pub fn scan_run(data: &[u8], from: u64, class: &[u64; 4], max: u32) -> u64 {
    let len = data.len() as u64;
    let from = from.min(len);
    let end = (from + u64::from(max)).min(len);
    let run = data[from as usize..end as usize].iter().take_while(|byte| in_class(class, **byte));
    from + run.count() as u64
}

/// Returns the first position of the needle from `from` on, or the first at which it may still begin; see `Op::Seek`.
pub fn seek(data: &[u8], from: u64, needle: &[u8], max: u32) -> u64 {
    let len = data.len() as u64;
    let from = from.min(len);
    let last = from + u64::from(max);
    let end = last.saturating_add(needle.len() as u64).min(len);
    let found = data[from as usize..end as usize].windows(needle.len()).position(|part| part == needle);
    match found {
        Some(at) => from + at as u64,
        // It may begin where less of the message is left than it is long.
        None => (len + 1).saturating_sub(needle.len() as u64).max(from).min(last + 1),
    }
}

/// Whether `token` is an item of `list`, which has commas between its items; see `Op::HasToken`.
pub fn has_token(list: &[u8], token: &[u8]) -> bool {
    if token.is_empty() || list.len() < token.len() {
        return false;
    }
    let last = list.len() - token.len();
    let mut at = 0;
    while at + LANES <= last + 1 {
        let found = positions(list, at, token);
        if found != [0; LANES] && (0..LANES).any(|lane| found[lane] != 0 && is_item(list, at + lane, token)) {
            return true;
        }
        at += LANES;
    }
    (at..=last).any(|at| list[at..at + token.len()].eq_ignore_ascii_case(token) && is_item(list, at, token))
}

/// Positions of a list that are compared at once.
const LANES: usize = 32;

/// Returns at which of the positions from `at` on the bytes of a token are, in any case; not 0: there.
fn positions(list: &[u8], at: usize, token: &[u8]) -> [u8; LANES] {
    let mut found = [1; LANES];
    for (offset, byte) in token.iter().enumerate() {
        // A letter differs from its other case in one bit.
        let case = if byte.is_ascii_alphabetic() { 0x20 } else { 0 };
        let wanted = byte | case;
        let row = &list[at + offset..at + offset + LANES];
        let mut some = 0;
        for (found, byte) in found.iter_mut().zip(row) {
            *found &= u8::from(byte | case == wanted);
            some |= *found;
        }
        if some == 0 {
            break;
        }
    }
    found
}

/// Whether a token that stands at a position of a list is an item of its own.
fn is_item(list: &[u8], at: usize, token: &[u8]) -> bool {
    let is_blank = |byte: &&u8| matches!(byte, b' ' | b'\t');
    let before = list[..at].iter().rev().find(|byte| !is_blank(byte));
    let behind = list[at + token.len()..].iter().find(|byte| !is_blank(byte));
    let ends = [before, behind].into_iter().all(|byte| byte.is_none_or(|byte| *byte == b','));
    ends && !token.contains(&b',') && blanks_off(token) == token
}

/// The items of a list with commas, without the blanks around them; empty ones are left out.
fn items_of(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|byte| *byte == b',').map(blanks_off).filter(|item| !item.is_empty())
}

/// Without spaces and tabs at both ends.
fn blanks_off(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = text {
        text = rest;
    }
    text
}

/// Cuts the lines of `message[start..end]` whose names `names` lists; see `Op::CutListed`. Returns whether there was
/// room.
pub fn cut_listed(
    frame: &mut Frame,
    message: &[u8],
    names: &[u8],
    (start, end): (u64, u64),
    lines_max: u32,
) -> bool {
    let mut listed: [&[u8]; LISTED_NAMES_MAX] = [&[]; LISTED_NAMES_MAX];
    let mut count = 0;
    for name in items_of(names).filter(|name| !name.contains(&b':')) {
        let Some(free) = listed.get_mut(count) else { return false };
        (*free, count) = (name, count + 1);
    }
    if count == 0 {
        return true;
    }
    let (mut at, end) = (start as usize, end as usize);
    for _ in 0..lines_max {
        let line = &message[at..end];
        // Of most lines no more than one byte is looked at for each name.
        let is_name = |name: &&[u8]| {
            line.get(name.len()) == Some(&b':') && line[..name.len()].eq_ignore_ascii_case(name)
        };
        let next = at + line_len(line);
        if listed[..count].iter().any(is_name) && !frame.cut(at as u64, next as u64) {
            return false;
        }
        at = next;
    }
    at == end
}

/// Length of the first line, its CRLF included.
fn line_len(lines: &[u8]) -> usize {
    let mut from = 0;
    while let Some(at) = memchr::memchr(b'\n', &lines[from..]) {
        from += at + 1;
        if from >= 2 && lines[from - 2] == b'\r' {
            return from;
        }
    }
    lines.len()
}

/// The items of `Op::Items`, as words of an activation in which the frame is that of message number `message`.
pub fn items(
    frame: &Frame,
    message: u8,
    from: u64,
    count: u64,
    count_max: u32,
) -> impl ExactSizeIterator<Item = u64> + '_ {
    let items = frame.items();
    let start = (from as i64).clamp(0, items.len() as i64) as usize;
    let count = (count as i64).clamp(0, i64::from(count_max)) as usize;
    let end = (start + count).min(items.len());
    items[start..end].iter().map(move |word| message_get(*word, message, Type::Bytes))
}

/// All bytes of a message of which `have` bytes are there, as words of an activation in which its number is `message`;
/// missing if more of it follows.
pub fn whole(frame: &Frame, message: u8, have: usize) -> BytesRef {
    let total = frame.total_bytes();
    match u32::try_from(total) {
        _ if frame.flags().has(MessageFlags::PARTS) => BytesRef::MISSING,
        Ok(len) if len as usize <= have && u64::from(len) <= flick_abi::limits::BYTES_OFFSET_MAX => {
            BytesRef::new(Region::Message, 0, len).in_message(message)
        }
        _ => BytesRef::MISSING,
    }
}

/// Whether a field that bytes of the class make up, and that `without` ends, may hold the bytes; see `Op::Guard`.
pub fn guard(bytes: &[u8], class: Option<&[u64; 4]>, without: Option<&[u8]>) -> bool {
    let is_of_class = class.is_none_or(|class| bytes.iter().all(|byte| in_class(class, *byte)));
    is_of_class && without.is_none_or(|needle| ends_first_at_its_end(bytes, needle))
}

/// Whether the needle, written behind the bytes, is found nowhere before.
fn ends_first_at_its_end(bytes: &[u8], needle: &[u8]) -> bool {
    if memchr::memmem::find(bytes, needle).is_some() {
        return false;
    }
    // One that begins in the bytes and ends in the needle itself.
    let laps = 1..needle.len().min(bytes.len() + 1);
    !laps.into_iter().any(|lap| bytes.ends_with(&needle[..lap]) && needle.starts_with(&needle[lap..]))
}

#[cfg(test)]
mod tests {
    use flick_abi::{BytesRef, Frame, Region};

    use crate::limits::LISTED_NAMES_MAX;

    use super::{cut_listed, guard, has_token, items, scan_run, seek, whole};

    fn class(bytes: &[u8]) -> [u64; 4] {
        let mut class = [0; 4];
        bytes.iter().for_each(|byte| class[usize::from(byte >> 6)] |= 1 << (byte & 63));
        class
    }

    #[test]
    fn runs_end() {
        let set = class(b"abc\xff");
        for (text, from, max, expected) in [
            (&b"abcx"[..], 0, 9, 3),
            (b"abcx", 0, 2, 2),
            (b"abcx", 3, 9, 3),
            (b"abc", 0, 9, 3),
            (b"abc", 9, 9, 3),
            (b"a\xffb", 0, 9, 3),
            (b"", 0, 9, 0),
            (b"abc", u64::MAX, u32::MAX, 3),
        ] {
            assert_eq!(scan_run(text, from, &set, max), expected, "{text:?} {from} {max}");
        }
    }

    #[test]
    fn needles_are_found_or_may_still_come() {
        for (text, from, needle, max, expected) in [
            (&b"ab\r\ncd"[..], 0, &b"\r\n"[..], 9, 2),
            (b"ab\r\ncd", 3, b"\r\n", 9, 5),
            (b"ab\r", 0, b"\r\n", 9, 2),
            (b"ab\r", 3, b"\r\n", 9, 3),
            (b"ab", 0, b"\r\n", 9, 1),
            (b"", 0, b"\r\n", 9, 0),
            (b"abcdef", 0, b"\r\n", 2, 3),
            (b"ab\r\n", 0, b"\r\n", 2, 2),
            (b"ab\r\n", 0, b"\r\n", 1, 2),
            (b"ab\r\n", 0, b"\r\n", 0, 1),
            (b"aab", 0, b"ab", 9, 1),
            (b"abc", 9, b"c", 9, 3),
        ] {
            assert_eq!(seek(text, from, needle, max), expected, "{text:?} {from} {needle:?} {max}");
        }
    }

    #[test]
    fn lists_have_tokens() {
        for (list, token, expected) in [
            (&b"close"[..], &b"close"[..], true),
            (b"keep-alive, Close\t", b"close", true),
            (b"closed,not close", b"close", false),
            (b",,", b"", false),
            (b"", b"close", false),
            (b" a b ,c", b"a b", true),
            (b"a,b", b"a,b", false),
            (b"closed, a-close, xclose, clos e, CLOSe\t ,x, some more that is long enough", b"close", true),
            (
                b"closed, a-close, xclose, clos e, close x, closeclose, some more that is long",
                b"close",
                false,
            ),
            (b",,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,close", b"close", true),
        ] {
            assert_eq!(has_token(list, token), expected, "{list:?} {token:?}");
        }
    }

    #[test]
    fn listed_lines_are_cut() {
        let message = b"GET /\r\nHost: a\r\nX-One: 1\r\nx-two\r\nx-two: 2\r\nlast:3";
        let mut frame = Frame::new();
        let all = (7, message.len() as u64);
        assert!(cut_listed(&mut frame, message, b"x-one, X-TWO,last", all, 9));
        let cut: Vec<_> = frame.cuts().map(|(start, end)| &message[start as usize..end as usize]).collect();
        assert_eq!(cut, [&b"X-One: 1\r\n"[..], b"x-two: 2\r\nlast:3"]);
        assert!(cut_listed(&mut frame, message, b"", (7, 7), 0));
        // There are five lines, the last one cut off.
        assert!(cut_listed(&mut frame, message, b"none", all, 5));
        assert!(!cut_listed(&mut frame, message, b"none", all, 4));
        assert!(cut_listed(&mut frame, message, &b"none,".repeat(LISTED_NAMES_MAX), all, 9));
        assert!(!cut_listed(&mut frame, message, &b"none,".repeat(LISTED_NAMES_MAX + 1), all, 9));
    }

    #[test]
    fn items_belong_to_their_message() {
        let mut frame = Frame::new();
        for at in 0..5 {
            frame.push_item(BytesRef::new(Region::Message, at, 1).0);
        }
        let found = |from: i64, count: i64, max| {
            let words = items(&frame, 2, from as u64, count as u64, max);
            words.map(|word| (BytesRef(word).message(), BytesRef(word).offset())).collect::<Vec<_>>()
        };
        assert_eq!(found(1, 2, 9), [(Some(2), 1), (Some(2), 2)]);
        assert_eq!(found(4, 9, 9), [(Some(2), 4)]);
        assert_eq!(found(0, 9, 1), [(Some(2), 0)]);
        assert_eq!((found(9, 9, 9), found(-1, 0, 9), found(0, -1, 9)), (vec![], vec![], vec![]));
    }

    #[test]
    fn a_message_is_whole_or_missing() {
        let mut frame = Frame::new();
        frame.slots[flick_abi::frame::SLOT_TOTAL] = 7;
        assert_eq!(whole(&frame, 0, 7), BytesRef::new(Region::Message, 0, 7));
        assert_eq!(whole(&frame, 3, 9).message(), Some(3));
        assert_eq!(whole(&frame, 0, 6), BytesRef::MISSING);
        frame.slots[flick_abi::frame::SLOT_TOTAL] = u64::MAX;
        assert_eq!(whole(&frame, 0, 7), BytesRef::MISSING);
    }

    #[test]
    fn a_field_holds_what_it_gives_back() {
        for (bytes, needle, expected) in [
            (&b"abc"[..], &b"\r\n"[..], true),
            (b"abc\r", b"\r\n", true),
            (b"a\r\nc", b"\r\n", false),
            (b"\r\n", b"\r\n", false),
            (b"xa", b"aa", false),
            (b"xab", b"abab", false),
            (b"xabb", b"abab", true),
            (b"", b"aa", true),
        ] {
            assert_eq!(guard(bytes, None, Some(needle)), expected, "{bytes:?} {needle:?}");
        }
        assert!(guard(b"aab", Some(&class(b"ab")), None));
        assert!(!guard(b"aac", Some(&class(b"ab")), None));
    }
}
