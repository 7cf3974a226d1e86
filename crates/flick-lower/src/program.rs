//! Puts a program together: functions in an order in which callees come first, and what the platform sees.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use flick_abi::{
    Bounds, Channel, Counter, Dict, EchoField, FuncId, Handler, Merge, Program, Protocol, Rule, RuleAction,
    Timer, Units, View,
};
use flick_check::hir;
use flick_check::hir::{FieldId, UnitId};
use flick_ir::data::{Function, Module, Op};

use crate::builder::{ConstPool, renumber_calls};
use crate::call::lower_helper;
use crate::context::Context;
use crate::first::first_bytes;
use crate::layout;
use crate::merge::{lower_combine, lower_order};
use crate::parse::plan::Role;
use crate::parse::{Parsers, lower_parsers, lower_reply_flags, protocol_unit, seen_by};
use crate::rule::{lower_failures, lower_handler, lower_init, lower_rule, lower_timer, pass_action};
use crate::unit::{SlotKey, UnitInfo};

/// Lowers a checked program with a process.
///
/// Cost: linear in the program, but for calls lowered in place.
/// Panics: when the program has no process, or was not checked.
pub fn lower(program: &hir::Program) -> Module {
    let process = program.process.as_ref().expect("only a program with a process runs");
    let cx = Context::new(program);
    let mut consts = ConstPool::default();
    let mut functions = Functions::default();

    let code = lower_process(&cx, &mut consts, process);
    let helper_ids = add_called(&cx, &mut consts, &code, &mut functions);
    let mut add = |mut function: Function| {
        renumber_calls(std::slice::from_mut(&mut function), &helper_ids);
        functions.add(function)
    };
    let rules = process.rules.iter().zip(code.rules).map(|(rule, body)| {
        let asks = body.function().is_some_and(Function::suspends);
        Rule { source: rule.source.0 as usize, action: body.action(&mut add), asks, lookup: None }
    });
    let rules: Vec<Rule> = rules.collect();
    let merges = process.merges.iter().zip(code.merges).map(|(merge, code)| Merge {
        source: merge.source.0 as usize,
        order: add(code.order),
        combine: add(code.combine),
        finish: code.finish.action(&mut add),
    });
    let merges = merges.collect();
    let handlers = process.handlers.iter().zip(code.handlers).map(|(handler, function)| Handler {
        event: handler.event,
        channel: handler.channel.0 as usize,
        rule: add(function),
    });
    let handlers = handlers.collect();
    let timers = process.timers.iter().zip(code.timers);
    let timers = timers
        .map(|(timer, function)| Timer { interval_ns: timer.interval_ns, rule: add(function) })
        .collect();
    let init_state = code.init.map(&mut add);

    let (channels, protocols) = lower_channels(&cx, &mut consts, process, &mut functions);
    let program = Program {
        name: process.name.clone(),
        channels,
        rules,
        protocols,
        merges,
        handlers,
        timers,
        dicts: program.dicts.iter().map(|dict| dict_of(program, dict)).collect(),
        counters: program.counters.iter().map(counter_of).collect(),
        state_words: cx.state_words,
        init_state,
        bounds: Bounds::default(),
    };
    let classes = consts.classes().to_vec();
    let mut module = Module { program, functions: functions.all, consts: consts.into_bytes(), classes };
    flick_ir::bounds::fill_capacity_checks(&mut module);
    flick_ir::passes::spill::run(&mut module);
    flick_ir::lookups::fill(&mut module);
    module
}

/// The code of a process, before its functions have numbers.
struct Code {
    rules: Vec<RuleCode>,
    merges: Vec<MergeCode>,
    handlers: Vec<Function>,
    timers: Vec<Function>,
    init: Option<Function>,
}

struct MergeCode {
    order: Function,
    combine: Function,
    finish: RuleCode,
}

/// The code of a rule.
enum RuleCode {
    /// The platform does it alone.
    Pass(RuleAction),
    Run(Function),
}

impl RuleCode {
    fn of(
        cx: &Context<'_>,
        consts: &mut ConstPool,
        process: &hir::Proc,
        rule: &hir::Rule,
        name: String,
    ) -> Self {
        match pass_action(process, rule) {
            Some(action) => Self::Pass(action),
            None => Self::Run(lower_rule(cx, consts, rule, name)),
        }
    }

    fn function(&self) -> Option<&Function> {
        match self {
            Self::Pass(_) => None,
            Self::Run(function) => Some(function),
        }
    }

    /// Returns the action, of a function by the number that `add` gives it.
    fn action(self, add: impl FnOnce(Function) -> FuncId) -> RuleAction {
        match self {
            Self::Pass(action) => action,
            Self::Run(function) => RuleAction::Run { rule: add(function) },
        }
    }
}

impl Code {
    fn functions(&self) -> impl Iterator<Item = &Function> {
        let of_merges = self
            .merges
            .iter()
            .flat_map(|code| [&code.order, &code.combine].into_iter().chain(code.finish.function()));
        let rules = self.rules.iter().filter_map(RuleCode::function);
        rules.chain(of_merges).chain(&self.handlers).chain(&self.timers).chain(&self.init)
    }
}

fn lower_process(cx: &Context<'_>, consts: &mut ConstPool, process: &hir::Proc) -> Code {
    let rules = (1..)
        .zip(&process.rules)
        .map(|(number, rule)| RuleCode::of(cx, consts, process, rule, format!("rule.{number}")))
        .collect();
    let merges = (1..)
        .zip(&process.merges)
        .map(|(number, merge)| MergeCode {
            order: lower_order(cx, consts, merge, number),
            combine: lower_combine(cx, consts, merge, number),
            finish: RuleCode::of(cx, consts, process, &merge.finish, format!("finish.{number}")),
        })
        .collect();
    let handlers = (1..).zip(&process.handlers);
    let handlers = handlers.map(|(number, handler)| lower_handler(cx, consts, handler, number)).collect();
    let timers = (1..).zip(&process.timers);
    let timers = timers.map(|(number, timer)| lower_timer(cx, consts, timer, number)).collect();
    Code { rules, merges, handlers, timers, init: lower_init(cx, consts) }
}

fn lower_channels(
    cx: &Context<'_>,
    consts: &mut ConstPool,
    process: &hir::Proc,
    functions: &mut Functions,
) -> (Vec<Channel>, Vec<Protocol>) {
    let mut protocol_of: BTreeMap<u32, usize> = BTreeMap::new();
    let mut protocols = Vec::new();
    let mut channels = Vec::new();
    for channel in &process.channels {
        let unit = protocol_unit(cx.program, channel);
        let view = channel.receives.map(|_| lower_view(cx, consts, channel, functions));
        let protocol = *protocol_of.entry(unit.0).or_insert_with(|| {
            protocols.push(lower_protocol(cx, consts, unit, functions));
            protocols.len() - 1
        });
        let (name, is_array, sends) = (channel.name.clone(), channel.is_array, channel.sends.is_some());
        let other = |carried: Option<hir::UnitId>| {
            let other = carried.filter(|carried| *carried != unit);
            other.map(|other| cx.program.units[other.0 as usize].name.clone())
        };
        let units = Units { receives: other(channel.receives), sends: other(channel.sends) };
        channels.push(Channel { name, is_array, view, sends, protocol, units });
    }
    (channels, protocols)
}

fn counter_of(counter: &hir::Counter) -> Counter {
    Counter { name: counter.name.clone(), is_gauge: counter.is_gauge }
}

fn dict_of(program: &hir::Program, dict: &hir::Dict) -> Dict {
    Dict {
        name: dict.name.clone(),
        entries_max: dict.entries_max,
        bytes_max: dict.bytes_max,
        key_bytes_max: layout::key_bytes_max(program, dict),
        value_bytes_max: layout::packed_bytes_max(program, &dict.value),
        expire_ns: dict.expire_ns,
        evict: dict.evict,
        snapshot: dict.snapshot.clone(),
        layout: layout::fingerprint(program, dict),
    }
}

#[derive(Default)]
struct Functions {
    all: Vec<Function>,
    /// The function of a grammar's reply flags, by unit: it is the same for every channel.
    reply_flags: BTreeMap<u32, Option<FuncId>>,
}

impl Functions {
    fn add(&mut self, function: Function) -> FuncId {
        self.all.push(function);
        FuncId((self.all.len() - 1) as u32)
    }
}

/// Lowers the helpers that the process calls, directly or through others, and adds them, callees first. Returns
/// their numbers.
fn add_called(
    cx: &Context<'_>,
    consts: &mut ConstPool,
    code: &Code,
    functions: &mut Functions,
) -> HashMap<FuncId, FuncId> {
    let mut helpers: BTreeMap<u32, Function> = BTreeMap::new();
    let mut open: BTreeSet<u32> = code.functions().flat_map(callees).map(|func| func.0).collect();
    while let Some(func) = open.pop_first() {
        if helpers.contains_key(&func) {
            continue;
        }
        let helper = lower_helper(cx, consts, &cx.program.funs[func as usize]);
        open.extend(callees(&helper).into_iter().map(|callee| callee.0));
        helpers.insert(func, helper);
    }
    let mut ids = HashMap::new();
    for (func, mut helper) in helpers {
        renumber_calls(std::slice::from_mut(&mut helper), &ids);
        ids.insert(FuncId(func), functions.add(helper));
    }
    ids
}

fn callees(function: &Function) -> Vec<FuncId> {
    let insts = function.blocks.iter().flat_map(|block| &block.insts);
    insts
        .filter_map(|inst| match inst.op {
            Op::Call { func, .. } => Some(func),
            _ => None,
        })
        .collect()
}

fn lower_view(
    cx: &Context<'_>,
    consts: &mut ConstPool,
    channel: &hir::Channel,
    functions: &mut Functions,
) -> View {
    let Parsers { request, reply, asked } = lower_parsers(cx, consts, channel);
    let (unit, _) = seen_by(cx.program, channel, Role::Reply);
    let asked_head = asked.as_ref().map_or(0, |asked| asked.head_bytes_max);
    let head_bytes_max = request.head_bytes_max.max(reply.head_bytes_max).max(asked_head);
    let reply_flags = match functions.reply_flags.get(&unit.0) {
        Some(known) => *known,
        None => {
            let flags = lower_reply_flags(cx, consts, unit).map(|function| functions.add(function));
            functions.reply_flags.insert(unit.0, flags);
            flags
        }
    };
    let parse_reply = functions.add(reply.function);
    View {
        parse_request: functions.add(request.function),
        parse_reply,
        parse_asked: asked.map_or(parse_reply, |asked| functions.add(asked.function)),
        reply_flags,
        head_bytes_max: u32::try_from(head_bytes_max).unwrap_or(u32::MAX),
        first: first_bytes(cx.unit(protocol_unit(cx.program, channel))),
    }
}

fn lower_protocol(
    cx: &Context<'_>,
    consts: &mut ConstPool,
    unit: UnitId,
    functions: &mut Functions,
) -> Protocol {
    let info: &UnitInfo<'_> = cx.unit(unit);
    let (facts, kept) = (&info.unit.facts, info.echo());
    let position = |field: FieldId| kept.iter().position(|known| *known == field);
    Protocol {
        name: info.unit.name.clone(),
        order: info.order(),
        exclusive: facts.exclusive,
        keep_last: u64::from(facts.keep_last),
        keep_client: u64::from(facts.keep_client),
        correlate: facts.correlate.and_then(position),
        non_quiet: facts.loud.as_ref().and_then(|(field, _)| position(*field)),
        echo: kept.iter().map(|field| echo_field(cx, info, *field)).collect(),
        failures: lower_failures(cx, consts, unit, |function| functions.add(function)),
        log_fields: info
            .unit
            .facts
            .logged
            .iter()
            .map(|(list, key)| info.slot(SlotKey::At(*list, *key)))
            .collect(),
        has_status: cx.unit(facts.replies.unwrap_or(unit)).unit.facts.status.is_some(),
        message_bytes_max: info.message_bytes_max(),
    }
}

/// A field that is kept of a request, and where its reply repeats it.
fn echo_field(cx: &Context<'_>, info: &UnitInfo<'_>, field: FieldId) -> EchoField {
    let request = info.wire_field(field);
    let facts = &info.unit.facts;
    let reply = match facts.replies.filter(|replies| *replies != info.id) {
        None => Some(request),
        Some(replies) => {
            let pair = facts.repeated.iter().find(|(own, _)| *own == field);
            pair.map(|(_, theirs)| cx.unit(replies).wire_field(*theirs))
        }
    };
    EchoField { request, reply }
}
