//! Parsers: for each receiving channel one for requests and one for replies, and one function for the flags of a
//! reply whose fields the platform has restored.
//! Promises: see [`plan`] for what is decoded and when, [`emit`] for how a parser stops and goes on.

pub mod emit;
pub mod plan;
pub mod structured;

use std::collections::BTreeSet;

use flick_abi::MessageFlags;
use flick_abi::frame::SLOT_FLAGS;
use flick_check::hir::{Channel, Expr, Program, UnitId};
use flick_ir::data::{Binary, FuncKind, Function, Op, Terminator, Type, Value};

use crate::body::{Body, Mode, SelfScope};
use crate::builder::ConstPool;
use crate::context::Context;
use crate::parse::plan::Role;
use crate::parse::structured::Way;
use crate::unit::{SlotKey, UnitInfo};

/// A parser and what it found out about its messages.
#[derive(Debug)]
pub struct Parser {
    /// The code.
    pub function: Function,
    /// Longest head, in bytes.
    pub head_bytes_max: u64,
}

/// The parsers of a channel.
#[derive(Debug)]
pub struct Parsers {
    /// Of requests.
    pub request: Parser,
    /// Of replies.
    pub reply: Parser,
    /// Of replies that are never given in parts; `None`: no reply is.
    pub asked: Option<Parser>,
}

/// Writes the parsers of a channel that receives messages: of requests, and of the replies to them.
pub fn lower_parsers(cx: &Context<'_>, consts: &mut ConstPool, channel: &Channel) -> Parsers {
    let [request, reply] = [Role::Request, Role::Reply].map(|role| {
        let (unit, seen) = seen_by(cx.program, channel, role);
        let way = match role {
            Role::Request => Way::Request,
            Role::Reply => Way::Reply,
        };
        match cx.unit(unit).unit.body {
            None => emit::lower_parser(cx, consts, &seen, unit, role),
            Some(_) => structured::lower_structured(cx, consts, &seen, unit, way),
        }
    });
    let (unit, seen) = seen_by(cx.program, channel, Role::Reply);
    let whole = || structured::lower_structured(cx, consts, &seen, unit, Way::Asked);
    let asked = cx.unit(unit).unit.body.is_some().then(whole);
    Parsers { request, reply, asked }
}

/// The unit that says how requests and replies of a channel go together: that of its requests.
pub fn protocol_unit(program: &Program, channel: &Channel) -> UnitId {
    let units = || channel.receives.into_iter().chain(channel.sends);
    let asks = |unit: &UnitId| program.units[unit.0 as usize].facts.replies.is_some();
    units().find(asks).or_else(|| units().next()).expect("the checker refuses a channel of nothing")
}

/// The unit of the messages of a role on a channel, and the channel with what the program reads of them: nothing of
/// those that it only sends.
pub fn seen_by(program: &Program, channel: &Channel, role: Role) -> (UnitId, Channel) {
    let request = protocol_unit(program, channel);
    let unit = match role {
        Role::Request => request,
        Role::Reply => program.units[request.0 as usize].facts.replies.unwrap_or(request),
    };
    let mut seen = channel.clone();
    if channel.receives != Some(unit) {
        (seen.view, seen.keys, seen.whole) = (Vec::new(), Vec::new(), false);
    }
    (unit, seen)
}

/// Returns the keys that a parser keeps in the frame.
pub fn kept_keys(info: &UnitInfo<'_>, role: Role, channel: &Channel) -> BTreeSet<SlotKey> {
    match &info.unit.body {
        Some(body) => structured::needs::Needs::new(info, body, role, channel).kept,
        None => plan::plan(info, role, channel).stored(info, role),
    }
}

/// The function that sets the flags of a reply, if the grammar has facts about replies. It reads slots only.
pub fn lower_reply_flags(cx: &Context<'_>, consts: &mut ConstPool, unit: UnitId) -> Option<Function> {
    let facts = &cx.unit(unit).unit.facts;
    if facts.silent.is_none() && facts.more.is_none() {
        return None;
    }
    let name = format!("reply_flags.{}", cx.unit(unit).unit.name);
    let mut body = Body::new(cx, consts, name, FuncKind::Parser, &[Type::Frame, Type::Int], Vec::new());
    body.never_faults = true;
    body.with_scope(unit, SelfScope::Frame, Mode::Exact { field: 0 }, |body| {
        let flags = [(&facts.silent, MessageFlags::SILENT), (&facts.more, MessageFlags::MORE)];
        let flags = flags.map(|(fact, bit)| (fact.as_ref(), bit));
        // The parser of a plain unit finds no flags of a reply.
        if body.cx.unit(unit).unit.body.is_some() { body.add_flags(&flags) } else { body.set_flags(&flags) }
    });
    body.f.end(Terminator::Done);
    Some(body.f.finish())
}

impl Body<'_> {
    /// Sets the message's flags: each bit whose condition holds.
    pub fn set_flags(&mut self, flags: &[(Option<&Expr>, u64)]) {
        let none = self.f.int(0);
        let all = self.flags_of(flags, none).unwrap_or(none);
        self.set_slot(SLOT_FLAGS as u16, all);
    }

    /// Sets these of the message's flags, and keeps the others.
    fn add_flags(&mut self, flags: &[(Option<&Expr>, u64)]) {
        let mask = flags.iter().fold(0, |mask, (_, bit)| mask | bit);
        let (known, mask) = (self.get_flags(), self.f.int(!mask as i64));
        let others = self.f.binary(Type::Int, Binary::BitAnd, known, mask);
        let none = self.f.int(0);
        let all = match self.flags_of(flags, none) {
            None => others,
            Some(flags) => self.f.binary(Type::Int, Binary::BitOr, others, flags),
        };
        self.set_slot(SLOT_FLAGS as u16, all);
    }

    fn get_flags(&mut self) -> Value {
        self.f.define(Type::Int, Op::FrameGet { slot: SLOT_FLAGS as u16 })
    }

    fn flags_of(&mut self, flags: &[(Option<&Expr>, u64)], none: Value) -> Option<Value> {
        let mut all: Option<Value> = None;
        for (fact, bit) in flags {
            let Some(fact) = fact else { continue };
            let cond = self.expr(fact).bool();
            let bit = self.f.int(*bit as i64);
            let flag = self.f.define(Type::Int, Op::Select { cond, a: bit, b: none });
            all = Some(match all {
                None => flag,
                Some(others) => self.f.binary(Type::Int, Binary::Add, others, flag),
            });
        }
        all
    }
}
