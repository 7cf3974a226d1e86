//! Operations and terminators that each kind of function may use.

use crate::data::{FuncKind, Op, Terminator};

/// Whether a kind of function may use an operation. Builders have neither message nor channels, parsers neither
/// channels nor output, orders only read; only a rule itself waits for answers.
pub(super) fn may_use(kind: FuncKind, op: &Op) -> bool {
    let acts = matches!(kind, FuncKind::Rule | FuncKind::Helper);
    match op {
        Op::ScanRun { .. } | Op::Seek { .. } | Op::Lines { .. } | Op::ItemPush(_) => kind == FuncKind::Parser,
        Op::Cut { .. } | Op::CutListed { .. } | Op::Insert { .. } => kind == FuncKind::Parser,
        Op::FrameSet { .. } | Op::Load { .. } | Op::MessageBytes { .. } => kind == FuncKind::Parser,
        Op::OutMark | Op::Written { .. } | Op::EmitInt { .. } | Op::EmitBytes { .. } => {
            acts || kind == FuncKind::Builder
        }
        Op::EmitMessage { .. } | Op::EmitMessageOf { .. } | Op::HasCapacity { .. } => acts,
        Op::SendOriginal { .. } | Op::SendRebuilt { .. } | Op::SendMessage { .. } | Op::Fail { .. } => acts,
        Op::StateLoad { .. } | Op::StateStore { .. } => acts,
        Op::StateLoadBytes { .. } | Op::StateStoreBytes { .. } => acts,
        Op::Host { .. } | Op::ChanLen(_) => acts,
        Op::Call { .. } | Op::AsMessage(_) | Op::MessageGet { .. } => acts || kind == FuncKind::Order,
        Op::Items { .. } | Op::Whole { .. } | Op::Transform { .. } => acts || kind == FuncKind::Order,
        Op::WordGet { .. } | Op::WordSet { .. } => acts || kind == FuncKind::Order,
        Op::FormatAddress(_) => acts || kind == FuncKind::Order,
        // What a builder makes is its output.
        Op::Concat { .. } | Op::FormatInt { .. } => kind != FuncKind::Parser,
        Op::Split { .. } => acts || kind == FuncKind::Order,
        Op::Case { .. } | Op::WordsNew { .. } | Op::Pack { .. } => acts || kind == FuncKind::Order,
        Op::PackedBytes { .. } => acts || kind == FuncKind::Order,
        Op::AskOriginal { .. } | Op::AskRebuilt { .. } | Op::AskMessage { .. } => kind == FuncKind::Rule,
        Op::Answer { .. } | Op::ResumeState => kind == FuncKind::Rule,
        Op::SpillSet { .. } | Op::SpillGet { .. } => kind == FuncKind::Rule,
        _ => true,
    }
}

/// Describes a terminator that a kind of function may not use; `None`: it may use it.
pub(super) fn may_not_end(kind: FuncKind, end: &Terminator) -> Option<&'static str> {
    match end {
        Terminator::Need { .. } | Terminator::Done | Terminator::Fault { .. } if kind != FuncKind::Parser => {
            Some("end in a step")
        }
        Terminator::Return(_) if kind == FuncKind::Parser => Some("return"),
        Terminator::Suspend { .. } if kind != FuncKind::Rule => Some("suspend"),
        _ => None,
    }
}

/// Whether an operation does more than compute: what orders, and what they call, must not do.
pub(crate) fn acts(op: &Op) -> bool {
    matches!(
        op,
        Op::OutMark
            | Op::HasCapacity { .. }
            | Op::Written { .. }
            | Op::EmitInt { .. }
            | Op::EmitBytes { .. }
            | Op::EmitMessage { .. }
            | Op::EmitMessageOf { .. }
            | Op::SendOriginal { .. }
            | Op::SendRebuilt { .. }
            | Op::SendMessage { .. }
            | Op::Fail { .. }
            | Op::StateLoad { .. }
            | Op::StateStore { .. }
            | Op::StateLoadBytes { .. }
            | Op::StateStoreBytes { .. }
            | Op::Host { .. }
            | Op::ChanLen(_)
    )
}
