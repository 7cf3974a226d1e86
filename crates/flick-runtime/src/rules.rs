//! The program: its host, the state of sessions, and rules that are suspended.

pub mod host;
pub(crate) mod locals;
pub(crate) mod suspended;
pub(crate) mod timer_heap;
