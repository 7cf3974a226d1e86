//! What generated code and the platform both see: the shape of a message frame, of a call, and of a program.
//!
//! Having only this crate in common keeps the platform ignorant of the compiler and the compiler of the
//! platform. Start reading at [`program`] (what the compiler hands over), then [`frame`] (what a parser fills),
//! then [`call`] (what a rule gets and gives back), then [`engine`] (how the platform runs code).

pub mod call;
pub mod engine;
pub mod frame;
pub mod hash;
pub mod host;
pub mod limits;
pub mod program;

pub use call::{Ask, AskList, BytesRef, Message, Outcome, Region, RuleCall, Send, SendBody, SendList};
pub use engine::{Engine, Step};
pub use frame::{Frame, MessageFlags};
pub use host::{Host, HostCall, NoHost, Policy};
pub use program::{
    Bounds, Channel, Counter, Dict, Event, Evict, FailureReason, FuncId, Handler, Merge, Program, Protocol,
    ReplyOrder, Rule, RuleAction, Snapshot, Start, Timer, Units, View, WireField,
};
