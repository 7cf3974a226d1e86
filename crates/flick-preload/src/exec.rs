//! `execve`: puts the library back into an environment from which a program has removed it.
//! Promises: the call is made with the program's arguments otherwise; nothing but the stack is written, so that a child
//! by `vfork` may run this.

use core::sync::atomic::Ordering::Relaxed;

use crate::calls::{Call, HookDecision};
use crate::limits::{ENVIRONMENT_MAX, PRELOAD_BYTES_MAX};
use crate::numbers as nr;
use crate::state::{ProcessTable, reason};
use crate::sys::{self, ProgramMemory};

const PRELOAD: &[u8] = b"LD_PRELOAD=";
const STATE: &[u8] = b"FLICK_ACCEL_STATE=";
const VERIFY: &[u8] = b"FLICK_ACCEL_VERIFY=";
const MOVES: &[u8] = b"FLICK_ACCEL_MOVE=";
/// Variables that may be added, and the end of the list.
const ADDED: usize = 5;

/// Makes the call if its environment lacks the library. Not inlined: no other call needs its kilobytes of stack.
#[inline(never)]
pub fn complete(call: &mut Call, memory: ProgramMemory, state: Option<&ProcessTable>) -> HookDecision {
    let environment_at = match call.number() {
        nr::EXECVE => 2,
        nr::EXECVEAT => 3,
        _ => return HookDecision::Pass,
    };
    let arguments = call.arguments();
    let Some(settings) = sys::settings() else { return HookDecision::Pass };
    let environment = arguments[environment_at];
    let mut list = [0_u64; ENVIRONMENT_MAX + ADDED];
    let mut preload = [0_u8; PRELOAD_BYTES_MAX];
    let Some(list) = completed(environment, memory, settings, &mut list, &mut preload) else {
        if let Some(state) = state {
            state.not_followed.fetch_or(reason::ENVIRONMENT, Relaxed);
        }
        return HookDecision::Pass;
    };
    if list == environment {
        return HookDecision::Pass;
    }
    let mut arguments = arguments;
    arguments[environment_at] = list;
    call.result = sys::execute(call.number(), arguments);
    HookDecision::Done
}

/// The address of the completed environment; `environment` itself if it is complete. `None`: it is too large.
fn completed(
    environment: u64,
    memory: ProgramMemory,
    settings: &sys::Settings,
    list: &mut [u64],
    preload: &mut [u8],
) -> Option<u64> {
    let (mut len, mut has_state) = (0, settings.state.bytes().is_empty());
    let (mut has_verify, mut has_moves) =
        (settings.verify.bytes().is_empty(), settings.moves.bytes().is_empty());
    let (mut has_preload, mut has_own) = (false, false);
    let own = settings.preload.bytes().get(PRELOAD.len()..)?;
    for index in 0..=ENVIRONMENT_MAX as u64 {
        let variable = if environment == 0 { 0 } else { memory.word(environment + 8 * index) };
        if variable == 0 {
            break;
        }
        let text = memory.text(variable, PRELOAD_BYTES_MAX);
        has_state |= text.starts_with(STATE);
        has_verify |= text.starts_with(VERIFY);
        has_moves |= text.starts_with(MOVES);
        let mut address = variable;
        if let Some(others) = text.strip_prefix(PRELOAD) {
            has_preload = true;
            has_own = others.split(|byte| matches!(byte, b':' | b' ')).any(|path| path == own);
            if !has_own {
                address = joined(&[settings.preload.bytes(), b":", others], preload)?;
            }
        }
        *list.get_mut(len).filter(|_| len < ENVIRONMENT_MAX)? = address;
        len += 1;
    }
    if has_own && has_state && has_verify && has_moves {
        return Some(environment);
    }
    let added = [
        (!has_preload).then_some(&settings.preload),
        (!has_state).then_some(&settings.state),
        (!has_verify).then_some(&settings.verify),
        (!has_moves).then_some(&settings.moves),
    ];
    for text in added.into_iter().flatten().filter(|text| !text.bytes().is_empty()) {
        *list.get_mut(len)? = text.address();
        len += 1;
    }
    *list.get_mut(len)? = 0;
    Some(list.as_ptr() as u64)
}

/// Joins texts in a buffer, with a zero byte behind them.
fn joined(parts: &[&[u8]], buffer: &mut [u8]) -> Option<u64> {
    let mut bytes = parts.iter().flat_map(|part| part.iter().copied()).chain([0]);
    for to in buffer.iter_mut() {
        match bytes.next() {
            Some(byte) => *to = byte,
            None => return Some(buffer.as_ptr() as u64),
        }
    }
    None
}
