//! What a process needs at most, computed before it runs: the author's side of every limit.
//! Promises: every figure is an upper bound over all inputs; the platform enforces those that depend on it.
//! Source: a program is refused unless it has these bounds, so this never fails.

use flick_abi::limits::{CHANNEL_ELEMENTS_MAX, FRAME_SLOTS_MAX};
use flick_abi::{Program, RuleAction};
use flick_check::Sources;
use flick_ir::bounds::FunctionBounds;
use flick_ir::data::{Module, Origin};
use flick_runtime::limits::{SESSION_BACKLOG_BYTES_MAX, WHOLE_BYTES_MAX};
use serde::Serialize;

/// Needs of one process.
#[derive(Debug, Serialize)]
pub struct Needs {
    /// Its name.
    pub process: String,
    /// Bytes of one session: messages on its channels, at most.
    pub session_channel_bytes: u64,
    /// Bytes of one session: the parsed message under way.
    pub session_view_bytes: u64,
    /// Bytes of one session: the program's own state.
    pub session_state_bytes: u64,
    /// Bytes of state that all sessions share.
    pub global_state_bytes: u64,
    /// Steps that one message can cost.
    pub steps_per_message_max: u64,
    /// Where most of them go.
    pub costliest: Option<Place>,
    /// Messages that one message can cause.
    pub sends_per_message_max: u64,
    /// Largest message of any channel, in bytes.
    pub message_bytes_max: u64,
    /// Backends of each channel, by name.
    pub backends_max: Vec<(String, u64)>,
}

/// A line of source and its share of the work.
#[derive(Debug, Serialize)]
pub struct Place {
    /// File.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Steps.
    pub steps: u64,
    /// What stands there.
    pub text: String,
}

impl Needs {
    /// Computes them.
    pub fn of(module: &Module, sources: &Sources) -> Self {
        let program = &module.program;
        let functions = flick_ir::bounds::bounds(module);
        let (steps, places, sends) = costliest_message(program, &functions);
        let receiving = program.channels.iter().filter(|channel| channel.view.is_some());
        let heads: u64 = receiving
            .filter_map(|channel| channel.view.as_ref())
            .map(|view| u64::from(view.head_bytes_max))
            .max()
            .unwrap_or(0);
        let backends = program.channels.iter().map(|channel| {
            (channel.name.clone(), if channel.is_array { CHANNEL_ELEMENTS_MAX as u64 } else { 1 })
        });
        Self {
            process: program.name.clone(),
            session_channel_bytes: SESSION_BACKLOG_BYTES_MAX as u64 + WHOLE_BYTES_MAX,
            session_view_bytes: (FRAME_SLOTS_MAX * size_of::<u64>()) as u64 + heads,
            session_state_bytes: program.bounds.session_state_bytes,
            global_state_bytes: program.bounds.global_state_bytes,
            steps_per_message_max: steps,
            costliest: costliest_line(&places, sources),
            sends_per_message_max: sends,
            message_bytes_max: program
                .protocols
                .iter()
                .map(|protocol| protocol.message_bytes_max)
                .max()
                .unwrap_or(0),
            backends_max: backends.collect(),
        }
    }

    /// As people read it.
    pub fn text(&self) -> String {
        let session = self.session_channel_bytes + self.session_view_bytes + self.session_state_bytes;
        let mut lines = vec![
            format!("bounds of process `{}`", self.process),
            format!("  memory of a session     at most {}", bytes(session)),
            format!("    its channels          {}", bytes(self.session_channel_bytes)),
            format!("    its views             {}", bytes(self.session_view_bytes)),
            format!("    its state             {}", bytes(self.session_state_bytes)),
            format!("  memory of all sessions  {} of global state", bytes(self.global_state_bytes)),
            format!("  work for a message      at most {} steps", self.steps_per_message_max),
        ];
        if let Some(place) = &self.costliest {
            lines.push(format!(
                "    most of it            {} steps at {}:{}: {}",
                place.steps, place.file, place.line, place.text
            ));
        }
        lines.push(format!("  messages caused by one  at most {}", self.sends_per_message_max));
        lines.push(format!("  largest message         {}", bytes(self.message_bytes_max)));
        for (channel, count) in &self.backends_max {
            lines.push(format!("  ends of `{channel}`: at most {count}"));
        }
        lines.push(String::new());
        lines.join("\n")
    }
}

/// Steps, places and sends of the message that costs most: one parse and the rules of its channel.
fn costliest_message(program: &Program, functions: &[FunctionBounds]) -> (u64, Vec<(Origin, u64)>, u64) {
    let mut worst = (0, Vec::new(), 0);
    for (index, channel) in program.channels.iter().enumerate() {
        let Some(view) = &channel.view else { continue };
        let parser = [view.parse_request, view.parse_reply].map(|id| &functions[id.0 as usize]);
        let parser = if parser[0].steps >= parser[1].steps { parser[0] } else { parser[1] };
        let (mut steps, mut places, mut sends) = (parser.steps, parser.places.clone(), parser.sends);
        for rule in program.rules.iter().filter(|rule| rule.source == index) {
            match rule.action {
                RuleAction::Pass { .. } => sends += 1,
                RuleAction::Run { rule } => {
                    let bounds = &functions[rule.0 as usize];
                    steps = steps.saturating_add(bounds.steps);
                    places.extend(bounds.places.iter().copied());
                    sends += bounds.sends;
                }
            }
        }
        let sends = sends.max(worst.2);
        if steps > worst.0 {
            worst = (steps, places, sends);
        }
        worst.2 = sends;
    }
    worst
}

/// Sums the places by line and takes the largest; the first of the program's own where two are equal.
fn costliest_line(places: &[(Origin, u64)], sources: &Sources) -> Option<Place> {
    let mut lines = std::collections::BTreeMap::<(u32, usize), u64>::new();
    for (origin, steps) in places {
        let (line, _) = sources.line_column(origin.file, origin.offset);
        *lines.entry((origin.file, line)).or_default() += steps;
    }
    let most = lines.values().copied().max()?;
    let ((file, line), steps) = lines.into_iter().find(|(_, steps)| *steps == most)?;
    let source = sources.get(file)?;
    let text = source.text.lines().nth(line - 1).unwrap_or_default().trim().to_owned();
    Some(Place { file: source.name.clone(), line, steps, text })
}

/// An amount of memory in the largest unit that keeps it short.
pub fn bytes(amount: u64) -> String {
    const UNITS: [&str; 4] = ["B", "KiB", "MiB", "GiB"];
    if amount == u64::MAX {
        return "no bound of its own".to_owned();
    }
    let mut value = amount as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let rounded = format!("{value:.1}");
    format!("{} {}", rounded.trim_end_matches(".0"), UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn amounts_are_short() {
        for (amount, expected) in
            [(0, "0 B"), (512, "512 B"), (1536, "1.5 KiB"), (1 << 20, "1 MiB"), (5 << 30, "5 GiB")]
        {
            assert_eq!(bytes(amount), expected);
        }
    }
}
