//! Descriptors in the control data of messages.

use crate::limits::{CONTROL_BYTES_MAX, PASSED_FDS_MAX};
use crate::state::ProcessTable;
use crate::sys::ProgramMemory;

/// Bytes of a `struct msghdr`, and the offsets of its control data and of their length.
const MESSAGE_HEADER_BYTES: u64 = 56;
const CONTROL: u64 = 32;
const CONTROL_BYTES: u64 = 40;

/// Whether a message and its control data can be read; else the kernel returns an error, and nothing is passed.
pub(super) fn has_control(header: u64, memory: ProgramMemory) -> bool {
    memory.is_readable(header, MESSAGE_HEADER_BYTES) && {
        let bytes = memory.word(header + CONTROL_BYTES).min(CONTROL_BYTES_MAX as u64);
        bytes == 0 || memory.is_readable(memory.word(header + CONTROL), bytes)
    }
}

/// Calls `visit` with each descriptor in a message's control data.
pub(super) fn control(
    state: &ProcessTable,
    header: u64,
    memory: ProgramMemory,
    visit: fn(&ProcessTable, u64),
) {
    const HEADER_BYTES: u64 = 16;
    const SOL_SOCKET_SCM_RIGHTS: u64 = 1 << 32 | 1;
    let (mut at, bytes) = (memory.word(header + CONTROL), memory.word(header + CONTROL_BYTES));
    if at == 0 {
        return;
    }
    let end = at + bytes.min(CONTROL_BYTES_MAX as u64);
    while at + HEADER_BYTES <= end {
        let bytes = memory.word(at);
        if bytes < HEADER_BYTES || bytes > end - at {
            return;
        }
        if memory.word(at + 8) == SOL_SOCKET_SCM_RIGHTS {
            let passed = ((bytes - HEADER_BYTES) / 4).min(PASSED_FDS_MAX as u64);
            for index in 0..passed {
                visit(state, u64::from(memory.half(at + HEADER_BYTES + 4 * index)));
            }
        }
        at += bytes.next_multiple_of(8);
    }
}
