//! The part of the text form that the platform sees: channels, rules, protocols, bounds; `state` has what is kept and
//! what runs without a rule.

mod state;

use std::fmt::Write as _;

use flick_abi::{
    Bounds, Channel, Counter, EchoField, FailureReason, FuncId, KeyLookup, Program, Protocol, ReplyOrder,
    Rule, RuleAction, Units, View, WireField,
};

use super::lexer::quote;
use super::parse::{Parsed, Reader};
use super::print::width_name;

/// Writes a program.
pub(super) fn print(program: &Program) -> String {
    let mut text = format!("program {} {{\n", quote(program.name.as_bytes()));
    for channel in &program.channels {
        text.push_str(&print_channel(channel));
    }
    for rule in &program.rules {
        let _ = match rule.action {
            RuleAction::Pass { to } => writeln!(text, "  rule {} pass {to}", rule.source),
            RuleAction::Run { rule: id } => {
                let asks = if rule.asks { " asks" } else { "" };
                let lookup = rule.lookup.map(|KeyLookup { dict, slot, bytes_max }| {
                    format!(" lookup {dict} slot {slot} bytes {bytes_max}")
                });
                let lookup = lookup.unwrap_or_default();
                writeln!(text, "  rule {} run f{}{asks}{lookup}", rule.source, id.0)
            }
        };
    }
    for protocol in &program.protocols {
        text.push_str(&print_protocol(protocol));
    }
    state::print(program, &mut text);
    let numbers = bounds_of(&program.bounds);
    let numbers: Vec<String> = numbers.iter().map(|(label, number)| format!("{label} {number}")).collect();
    let _ = writeln!(text, "  bounds ({})", numbers.join(", "));
    text.push_str("}\n");
    text
}

fn print_channel(channel: &Channel) -> String {
    let shape = if channel.is_array { "array" } else { "single" };
    let mut text =
        format!("  channel {} {shape} protocol {}", quote(channel.name.as_bytes()), channel.protocol);
    if let Some(unit) = &channel.units.receives {
        let _ = write!(text, " receives {}", quote(unit.as_bytes()));
    }
    if channel.sends {
        text.push_str(" sends");
    }
    if let Some(unit) = &channel.units.sends {
        let _ = write!(text, " as {}", quote(unit.as_bytes()));
    }
    if let Some(view) = &channel.view {
        let _ = write!(text, " view(request f{}, reply f{}", view.parse_request.0, view.parse_reply.0);
        if view.parse_asked != view.parse_reply {
            let _ = write!(text, ", asked f{}", view.parse_asked.0);
        }
        if let Some(flags) = view.reply_flags {
            let _ = write!(text, ", flags f{}", flags.0);
        }
        let _ = write!(text, ", head {}", view.head_bytes_max);
        if let Some([a, b, c, d]) = view.first {
            let _ = write!(text, ", first {a} {b} {c} {d}");
        }
        text.push(')');
    }
    text.push('\n');
    text
}

fn print_protocol(protocol: &Protocol) -> String {
    let order = match protocol.order {
        ReplyOrder::None => "no_order",
        ReplyOrder::InOrder => "in_order",
    };
    let name = quote(protocol.name.as_bytes());
    let exclusive = if protocol.exclusive { " exclusive" } else { "" };
    let status = if protocol.has_status { " status" } else { "" };
    let max = protocol.message_bytes_max;
    let kept = |role: &str, number: u64| match number {
        0 => String::new(),
        number => format!(" {role} {number}"),
    };
    let kept = kept("keep_last", protocol.keep_last) + &kept("keep_client", protocol.keep_client);
    let mut text = format!("  protocol {name} {order}{exclusive}{status}{kept} max {max} {{\n");
    for field in &protocol.echo {
        let _ = write!(text, "    echo {}", print_wire_field(&field.request));
        if let Some(reply) = &field.reply {
            let _ = write!(text, " reply {}", print_wire_field(reply));
        }
        text.push('\n');
    }
    for slot in &protocol.log_fields {
        let _ = writeln!(text, "    log {slot}");
    }
    for (role, at) in [("correlate", protocol.correlate), ("loud", protocol.non_quiet)] {
        if let Some(at) = at {
            let _ = writeln!(text, "    {role} {at}");
        }
    }
    for (name, reason) in FailureReason::NAMES {
        if let Some(builder) = protocol.failures[reason as usize] {
            let _ = writeln!(text, "    failure {name} f{}", builder.0);
        }
    }
    text.push_str("  }\n");
    text
}

fn print_wire_field(field: &WireField) -> String {
    let width = width_name(field.width_bytes, field.big_endian);
    format!("({}, u{width}, slot {})", field.offset, field.slot)
}

/// Reads a program.
pub(super) fn parse(reader: &mut Reader) -> Parsed<Program> {
    reader.expect_word("program")?;
    let mut program = Program {
        name: reader.name()?,
        channels: Vec::new(),
        rules: Vec::new(),
        protocols: Vec::new(),
        merges: Vec::new(),
        handlers: Vec::new(),
        timers: Vec::new(),
        dicts: Vec::new(),
        counters: Vec::new(),
        state_words: 0,
        init_state: None,
        bounds: Bounds::default(),
    };
    reader.mark("{")?;
    while !reader.opt_mark("}") {
        match reader.word()?.as_str() {
            "channel" => program.channels.push(channel(reader)?),
            "rule" => program.rules.push(rule(reader)?),
            "merge" => program.merges.push(state::merge(reader)?),
            "handler" => program.handlers.push(state::handler(reader)?),
            "timer" => program.timers.push(state::timer(reader)?),
            "dict" => program.dicts.push(state::dict(reader)?),
            "counter" => program.counters.push(Counter { name: reader.name()?, is_gauge: false }),
            "gauge" => program.counters.push(Counter { name: reader.name()?, is_gauge: true }),
            "state" => {
                program.state_words = reader.number()?;
                program.init_state = if reader.opt_word("init") { Some(reader.func()?) } else { None };
            }
            "protocol" => program.protocols.push(protocol(reader)?),
            "bounds" => program.bounds = bounds(reader)?,
            other => return Err(reader.error(format!("`{other}` is no part of a program"))),
        }
    }
    Ok(program)
}

fn channel(reader: &mut Reader) -> Parsed<Channel> {
    let name = reader.name()?;
    let is_array = reader.opt_word("array");
    if !is_array {
        reader.expect_word("single")?;
    }
    reader.expect_word("protocol")?;
    let protocol = reader.number()?;
    let receives = if reader.opt_word("receives") { Some(reader.name()?) } else { None };
    let sends = reader.opt_word("sends");
    let units = Units { receives, sends: if reader.opt_word("as") { Some(reader.name()?) } else { None } };
    let view = if reader.opt_word("view") { Some(view(reader)?) } else { None };
    Ok(Channel { name, is_array, view, sends, protocol, units })
}

fn view(reader: &mut Reader) -> Parsed<View> {
    reader.mark("(")?;
    let parse_request = labelled_func(reader, "request")?;
    let parse_reply = labelled_func(reader, "reply")?;
    let parse_asked = if reader.opt_word("asked") { followed_func(reader)? } else { parse_reply };
    let mut reply_flags = None;
    if reader.opt_word("flags") {
        reply_flags = Some(reader.func()?);
        reader.mark(",")?;
    }
    reader.expect_word("head")?;
    let head_bytes_max = reader.number()?;
    let mut first = None;
    if !reader.opt_mark(")") {
        reader.mark(",")?;
        reader.expect_word("first")?;
        first = Some([reader.number()?, reader.number()?, reader.number()?, reader.number()?]);
        reader.mark(")")?;
    }
    Ok(View { parse_request, parse_reply, parse_asked, reply_flags, head_bytes_max, first })
}

fn followed_func(reader: &mut Reader) -> Parsed<FuncId> {
    let id = reader.func()?;
    reader.mark(",")?;
    Ok(id)
}

fn labelled_func(reader: &mut Reader, label: &str) -> Parsed<FuncId> {
    reader.expect_word(label)?;
    followed_func(reader)
}

fn rule(reader: &mut Reader) -> Parsed<Rule> {
    let source = reader.number()?;
    let action = action(reader)?;
    let asks = reader.opt_word("asks");
    let lookup = if reader.opt_word("lookup") {
        let dict = reader.number()?;
        reader.expect_word("slot")?;
        let slot = reader.number()?;
        reader.expect_word("bytes")?;
        Some(KeyLookup { dict, slot, bytes_max: reader.number()? })
    } else {
        None
    };
    Ok(Rule { source, action, asks, lookup })
}

/// `pass 0` or `run f3`.
fn action(reader: &mut Reader) -> Parsed<RuleAction> {
    Ok(match reader.word()?.as_str() {
        "pass" => RuleAction::Pass { to: reader.number()? },
        "run" => RuleAction::Run { rule: reader.func()? },
        other => return Err(reader.error(format!("`{other}` is no action"))),
    })
}

fn protocol(reader: &mut Reader) -> Parsed<Protocol> {
    let name = reader.name()?;
    let order = match reader.word()?.as_str() {
        "no_order" => ReplyOrder::None,
        "in_order" => ReplyOrder::InOrder,
        other => return Err(reader.error(format!("`{other}` is no order"))),
    };
    let exclusive = reader.opt_word("exclusive");
    let has_status = reader.opt_word("status");
    let keep_last = if reader.opt_word("keep_last") { reader.number()? } else { 0 };
    let keep_client = if reader.opt_word("keep_client") { reader.number()? } else { 0 };
    reader.expect_word("max")?;
    let message_bytes_max = reader.number()?;
    let failures = [None; FailureReason::COUNT];
    let (correlate, non_quiet, echo) = (None, None, Vec::new());
    let mut protocol = Protocol {
        name,
        order,
        exclusive,
        has_status,
        log_fields: Vec::new(),
        keep_last,
        keep_client,
        correlate,
        non_quiet,
        echo,
        failures,
        message_bytes_max,
    };
    reader.mark("{")?;
    while !reader.opt_mark("}") {
        match reader.word()?.as_str() {
            "log" => protocol.log_fields.push(reader.number()?),
            "correlate" => protocol.correlate = Some(reader.number()?),
            "loud" => protocol.non_quiet = Some(reader.number()?),
            "echo" => {
                let request = wire_field(reader)?;
                let reply = if reader.opt_word("reply") { Some(wire_field(reader)?) } else { None };
                protocol.echo.push(EchoField { request, reply });
            }
            "failure" => {
                let name = reader.word()?;
                let known = FailureReason::NAMES.iter().find(|(known, _)| *known == name);
                let (_, reason) = known.ok_or_else(|| reader.error(format!("`{name}` is no failure")))?;
                protocol.failures[*reason as usize] = Some(reader.func()?);
            }
            other => return Err(reader.error(format!("`{other}` is no part of a protocol"))),
        }
    }
    Ok(protocol)
}

fn wire_field(reader: &mut Reader) -> Parsed<WireField> {
    reader.mark("(")?;
    let offset = reader.number()?;
    reader.mark(",")?;
    let width = reader.word()?;
    let (width_bytes, big_endian) = reader.width(width.trim_start_matches('u'))?;
    reader.mark(",")?;
    reader.expect_word("slot")?;
    let slot = reader.number()?;
    reader.mark(")")?;
    Ok(WireField { offset, width_bytes, big_endian, slot })
}

/// The numbers of the bounds with their names.
fn bounds_of(bounds: &Bounds) -> [(&'static str, u64); 10] {
    [
        ("session", bounds.session_state_bytes),
        ("global", bounds.global_state_bytes),
        ("head", bounds.head_bytes_max),
        ("steps", bounds.steps_per_message_max),
        ("sends", bounds.sends_per_message_max),
        ("out", bounds.out_bytes_max),
        ("kept", bounds.kept_bytes_max),
        ("spills", u64::from(bounds.spill_words)),
        ("asks", u64::from(bounds.asks_max)),
        ("array_asks", u64::from(bounds.array_asks_max)),
    ]
}

/// Reads bounds; what is not named is 0.
fn bounds(reader: &mut Reader) -> Parsed<Bounds> {
    let mut bounds = Bounds::default();
    reader.mark("(")?;
    while !reader.opt_mark(")") {
        match reader.word()?.as_str() {
            "session" => bounds.session_state_bytes = reader.number()?,
            "global" => bounds.global_state_bytes = reader.number()?,
            "head" => bounds.head_bytes_max = reader.number()?,
            "steps" => bounds.steps_per_message_max = reader.number()?,
            "sends" => bounds.sends_per_message_max = reader.number()?,
            "out" => bounds.out_bytes_max = reader.number()?,
            "kept" => bounds.kept_bytes_max = reader.number()?,
            "spills" => bounds.spill_words = reader.number()?,
            "asks" => bounds.asks_max = reader.number()?,
            "array_asks" => bounds.array_asks_max = reader.number()?,
            other => return Err(reader.error(format!("`{other}` is no bound"))),
        }
        reader.opt_mark(",");
    }
    Ok(bounds)
}
