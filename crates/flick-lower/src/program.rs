//! Puts a program together: functions in an order in which callees come first, and what the platform sees.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use flick_abi::{Bounds, Channel, FuncId, Program, Protocol, Rule, RuleAction, View};
use flick_check::hir;
use flick_check::hir::UnitId;
use flick_ir::data::{Function, Module, Op};

use crate::builder::{ConstPool, renumber_calls};
use crate::call::{is_in_place, lower_helper};
use crate::context::Context;
use crate::parse::{lower_parsers, lower_reply_flags};
use crate::rule::{lower_failures, lower_rule, pass_action};
use crate::unit::UnitInfo;

/// Lowers a checked program with a process.
///
/// Cost: linear in the program, but for calls lowered in place.
/// Panics: when the program has no process, or was not checked.
pub fn lower(program: &hir::Program) -> Module {
    let process = program.process.as_ref().expect("only a program with a process runs");
    let cx = Context::new(program);
    let mut consts = ConstPool::default();
    let mut functions = Functions::default();

    let helpers: Vec<Option<Function>> = program
        .funs
        .iter()
        .map(|fun| (!is_in_place(fun)).then(|| lower_helper(&cx, &mut consts, fun)))
        .collect();
    let bodies: Vec<Result<RuleAction, Function>> = (1..)
        .zip(&process.rules)
        .map(|(number, rule)| match pass_action(process, rule) {
            Some(action) => Ok(action),
            None => Err(lower_rule(&cx, &mut consts, rule, number)),
        })
        .collect();
    let helper_ids = keep_called(helpers, &bodies, &mut functions);

    let rules = process.rules.iter().zip(bodies).map(|(rule, body)| {
        let action = body.unwrap_or_else(|mut function| {
            renumber_calls(std::slice::from_mut(&mut function), &helper_ids);
            RuleAction::Run { rule: functions.add(function) }
        });
        Rule { source: rule.source.0 as usize, action }
    });
    let rules: Vec<Rule> = rules.collect();

    let mut protocol_of: BTreeMap<u32, usize> = BTreeMap::new();
    let mut protocols = Vec::new();
    let mut channels = Vec::new();
    for channel in &process.channels {
        let unit = channel.receives.or(channel.sends).expect("the checker refuses a channel of nothing");
        let view = channel.receives.map(|unit| lower_view(&cx, &mut consts, channel, unit, &mut functions));
        let protocol = *protocol_of.entry(unit.0).or_insert_with(|| {
            protocols.push(lower_protocol(&cx, &mut consts, unit, &mut functions));
            protocols.len() - 1
        });
        let (name, is_array, sends) = (channel.name.clone(), channel.is_array, channel.sends.is_some());
        channels.push(Channel { name, is_array, view, sends, protocol });
    }
    let (name, bounds_later) = (process.name.clone(), Bounds::default());
    let program = Program { name, channels, rules, protocols, bounds: bounds_later };
    let mut module = Module { program, functions: functions.all, consts: consts.into_bytes() };
    module.program.bounds = bounds(&module);
    module
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

/// Keeps the helpers that rules call, directly or through others, callees first. Returns their new numbers.
fn keep_called(
    mut helpers: Vec<Option<Function>>,
    bodies: &[Result<RuleAction, Function>],
    functions: &mut Functions,
) -> HashMap<FuncId, FuncId> {
    let mut called: BTreeSet<u32> = BTreeSet::new();
    let mut open: Vec<FuncId> =
        bodies.iter().filter_map(|body| body.as_ref().err()).flat_map(callees).collect();
    while let Some(func) = open.pop() {
        if called.insert(func.0) {
            let helper = helpers[func.0 as usize].as_ref().expect("what is lowered in place is never called");
            open.extend(callees(helper));
        }
    }
    let mut ids = HashMap::new();
    for func in called {
        let mut helper = helpers[func as usize].take().expect("each helper is kept once");
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
    unit: UnitId,
    functions: &mut Functions,
) -> View {
    let [request, reply] = lower_parsers(cx, consts, channel, unit);
    let head_bytes_max = request.head_bytes_max.max(reply.head_bytes_max);
    let reply_flags = match functions.reply_flags.get(&unit.0) {
        Some(known) => *known,
        None => {
            let flags = lower_reply_flags(cx, consts, unit).map(|function| functions.add(function));
            functions.reply_flags.insert(unit.0, flags);
            flags
        }
    };
    View {
        parse_request: functions.add(request.function),
        parse_reply: functions.add(reply.function),
        reply_flags,
        head_bytes_max: u32::try_from(head_bytes_max).unwrap_or(u32::MAX),
    }
}

fn lower_protocol(
    cx: &Context<'_>,
    consts: &mut ConstPool,
    unit: UnitId,
    functions: &mut Functions,
) -> Protocol {
    let info: &UnitInfo<'_> = cx.unit(unit);
    let facts = &info.unit.facts;
    Protocol {
        name: info.unit.name.clone(),
        order: info.order(),
        correlate: facts.correlate.map(|field| info.wire_field(field)),
        loud: facts.loud.as_ref().map(|(field, _)| info.wire_field(*field)),
        echo: info.echo().into_iter().map(|field| info.wire_field(field)).collect(),
        failures: lower_failures(cx, consts, unit, |function| functions.add(function)),
        message_bytes_max: info.message_bytes_max(),
    }
}

/// What the platform must set aside for the program.
fn bounds(module: &Module) -> Bounds {
    let functions = flick_ir::bounds::bounds(module);
    let (channels, rules) = (&module.program.channels, &module.program.rules);
    let views = channels.iter().map(|channel| channel.view.as_ref());
    // One message may match several rules of its channel: their needs add up.
    let needs = views.clone().enumerate().map(|(source, view)| {
        let steps = |id: FuncId| functions[id.0 as usize].steps;
        let parse = view.map_or(0, |view| {
            let flags = view.reply_flags.map_or(0, steps);
            steps(view.parse_request).max(steps(view.parse_reply).saturating_add(flags))
        });
        let matching = rules.iter().filter(|rule| rule.source == source);
        matching.fold((parse, 0_u64), |(all_steps, sends), rule| match rule.action {
            RuleAction::Pass { .. } => (all_steps, sends + 1),
            RuleAction::Run { rule } => {
                (all_steps.saturating_add(steps(rule)), sends + functions[rule.0 as usize].sends)
            }
        })
    });
    let needs: Vec<(u64, u64)> = needs.collect();
    Bounds {
        session_state_bytes: 0,
        global_state_bytes: 0,
        head_bytes_max: views.flatten().map(|view| u64::from(view.head_bytes_max)).max().unwrap_or(0),
        steps_per_message_max: needs.iter().map(|need| need.0).max().unwrap_or(0),
        sends_per_message_max: needs.iter().map(|need| need.1).max().unwrap_or(0),
    }
}
