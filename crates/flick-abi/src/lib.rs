//! Interface between generated code and the platform: the layout of message frames, calls and programs.
//! ⏎ The compiler knows nothing of the platform and the platform nothing of the compiler; both know this crate. Start
//! reading at [`program`] (the result of compilation), then [`frame`] (the result of parsing), then [`call`] (inputs
//! and outputs of a rule), then [`engine`] (how the platform runs code).
#![forbid(unsafe_code)]

pub mod call;
pub mod engine;
pub mod fault;
pub mod frame;
pub mod hash;
pub mod host;
pub mod limits;
pub mod program;

pub use call::{Ask, AskList, BytesRef, Message, Region, RuleCall, RuleOutcome, Send, SendBody, SendList};
pub use engine::{Engine, MessageDone, MessageRun, ParseStep};
pub use fault::FaultCause;
pub use frame::{Frame, MessageFlags};
pub use host::{Host, HostCall, NoHost, Policy};
pub use program::{
    Bounds, Channel, Counter, Dict, EchoField, Event, Evict, FailureReason, FuncId, Handler, KeyLookup,
    Merge, Program, Protocol, ReplyOrder, Rule, RuleAction, Snapshot, Start, Timer, Units, View, WireField,
};
