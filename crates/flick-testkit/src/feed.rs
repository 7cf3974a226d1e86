//! Feeds bytes to a parser piece by piece, as the platform does.
//! Promises: the parser is called again when the bytes that it asked for have arrived; a message in parts is parsed to
//! its end.

use flick_abi::frame::SLOT_ASKED;
use flick_abi::{FaultCause, Frame, MessageFlags, ParseStep};

/// Result of parsing bytes that arrive in pieces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FeedOutcome {
    /// A message, with its bytes over all its parts.
    Done(u64),
    /// A message that ends where its peer closes.
    UntilClose,
    /// There is not enough.
    Starved,
    /// Not of the grammar: field and cause.
    Fault(u32, FaultCause),
}

/// Parts without bytes that may follow each other.
const IDLE_PARTS_MAX: u32 = 2;

/// Feeds `data` to a parser in pieces that end at `ends`. Returns the outcome and the frame of the last part. `asked`
/// is what the request said to keep. Panics when the parser asks for what it has.
pub fn feed(
    mut parse: impl FnMut(&mut Frame, &[u8]) -> ParseStep,
    data: &[u8],
    asked: u64,
    ends: &[usize],
) -> (FeedOutcome, Frame) {
    let mut frame = Frame::new();
    frame.slots[SLOT_ASKED] = asked;
    let (mut start, mut wanted) = (0_u64, 0_u64);
    let mut idle = 0;
    for &end in ends {
        while let Some(have) = (end as u64).checked_sub(start)
            && have >= wanted
        {
            let step = parse(&mut frame, &data[start as usize..end]);
            match step {
                ParseStep::NeedMore(bytes) => {
                    assert!(bytes > have, "asks for {bytes} and has {have}");
                    wanted = bytes;
                    break;
                }
                ParseStep::Fault { field, cause } => return (FeedOutcome::Fault(field, cause), frame),
                ParseStep::Done => {}
            }
            if frame.flags().has(MessageFlags::UNTIL_CLOSE) {
                return (FeedOutcome::UntilClose, frame);
            }
            idle = if frame.total_bytes() == 0 { idle + 1 } else { 0 };
            assert!(idle <= IDLE_PARTS_MAX, "a message of parts without bytes");
            (start, wanted) = (start.saturating_add(frame.total_bytes()), 0);
            if !frame.flags().has(MessageFlags::PARTS) {
                let is_there = start <= data.len() as u64;
                return (if is_there { FeedOutcome::Done(start) } else { FeedOutcome::Starved }, frame);
            }
            frame.next_part();
        }
    }
    (FeedOutcome::Starved, frame)
}
