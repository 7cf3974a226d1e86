//! Compares the counts of a connection with the kernel's, if the process was started with `--verify`.

use core::sync::atomic::Ordering::Relaxed;

use crate::limits::COMPARISONS_MAX;
use crate::state::{File, Kind, ProcessTable, Seen, flag};
use crate::sys;

/// States of TCP in which the kernel's counts are complete: ESTABLISHED, FIN_WAIT1, FIN_WAIT2, CLOSE_WAIT, LAST_ACK and
/// CLOSING.
const COMPLETE: [u8; 6] = [1, 4, 5, 8, 9, 11];
/// Those in which the other side's FIN has arrived, which counts as a byte: CLOSE_WAIT, LAST_ACK, CLOSING.
pub const HAS_FIN: [u8; 3] = [8, 9, 11];

/// Bytes that the kernel has received and the program has not, as the kernel counts.
pub fn unread(fd: u64, state: u8) -> u64 {
    sys::unread_bytes(fd) + u64::from(HAS_FIN.contains(&state))
}

/// Compares a connection that is about to be closed.
pub fn at_close(state: &ProcessTable, file: &File, fd: u64) {
    let flags = file.flags.load(Relaxed);
    if file.kind.load(Relaxed) != Kind::Tcp as u32 || flags & flag::CONNECTED == 0 {
        return;
    }
    let is_comparable =
        flags & flag::OUT_OF_BAND == 0 && !state.is_shared(file) && file.ring_bytes.load(Relaxed) == 0;
    let mut comparison = Comparison::Unknown;
    // A FIN, or bytes, may arrive between the kernel's answers, which then do not belong together.
    for _ in 0..COMPARISONS_MAX {
        comparison = if is_comparable { compare(file, fd) } else { Comparison::Unknown };
        if !matches!(comparison, Comparison::Different(_)) {
            break;
        }
    }
    match comparison {
        Comparison::Equal => state.closed_equal.fetch_add(1, Relaxed),
        Comparison::Unknown => state.closed_not_compared.fetch_add(1, Relaxed),
        Comparison::Different(difference) => {
            for (word, number) in state.difference.iter().zip(difference) {
                word.store(number, Relaxed);
            }
            state.closed_different.fetch_add(1, Relaxed)
        }
    };
}

/// Result of a comparison of the counts with the kernel's.
enum Comparison {
    Equal,
    /// Bytes sent that were counted here and by the kernel, and bytes received.
    Different([u64; 4]),
    /// The kernel's counts are not complete.
    Unknown,
}

fn compare(file: &File, fd: u64) -> Comparison {
    let Some(facts) = sys::tcp_facts(fd) else { return Comparison::Unknown };
    let kernel_received = facts.received.saturating_sub(unread(fd, facts.state));
    let counted = (file.sent.load(Relaxed), file.received.load(Relaxed));
    let is_complete = COMPLETE.contains(&facts.state);
    // A connection that has ended on both sides may have had a FIN or not.
    let has_same_received = counted.1 == kernel_received || !is_complete && counted.1 + 1 == kernel_received;
    match is_complete {
        _ if counted.0 == facts.sent && has_same_received => Comparison::Equal,
        true => Comparison::Different([counted.0, facts.sent, counted.1, kernel_received]),
        // A reset has discarded what was not read or not sent.
        false => Comparison::Unknown,
    }
}

/// Compares what is open when the process exits. Otherwise its state is removed.
pub fn at_exit(state: &ProcessTable) {
    if state.verify.load(Relaxed) == 0 {
        sys::remove_state(state);
        return;
    }
    for file in state.files() {
        // The number may be another file's by now, if this one was duplicated.
        let fd = file.fd.load(Relaxed);
        let holds = |seen| matches!(seen, Seen::File(at) if state.file(at).is_some_and(|found| core::ptr::eq(found, file)));
        if holds(state.look(fd as usize)) {
            at_close(state, file, u64::from(fd));
        }
    }
}
