//! Resource bounds of a process, computed before it runs.
//! Promises: every figure is an upper bound over all inputs; the platform enforces those that depend on it. Computing
//! them never fails, because the compiler rejects programs without bounds.

use flick_abi::Frame;
use flick_abi::limits::{ASKS_MAX, CHANNEL_ELEMENTS_MAX};
use flick_buffers::{HUGE_BYTES, LARGE_BYTES};
use flick_check::Sources;
use flick_compiler::hottest_line;
use flick_ir::data::Module;
use flick_ir::weights::STEPS_PER_US;
use flick_runtime::limits::{SESSION_BACKLOG_BYTES_MAX, WHOLE_BYTES_MAX};
use flick_runtime::state::dict_bytes_of;
use serde::Serialize;

/// Size from which on a message counts as one without a bound: lengths in grammars have 64 bits.
const UNBOUNDED_BYTES: u64 = 1 << 50;

/// A source line and its work.
#[derive(Debug, Serialize)]
pub struct HotLine {
    /// File.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Steps.
    pub steps: u64,
    /// Text of the line.
    pub text: String,
}

impl HotLine {
    fn of(module: &Module, sources: &Sources) -> Option<Self> {
        let found = hottest_line(module, sources)?;
        let range = found.span.range.start as usize..found.span.range.end as usize;
        let (line, _) = sources.line_column(found.span.file, found.span.range.start);
        let source = sources.get(found.span.file)?;
        let text = source.text.get(range).unwrap_or_default().to_owned();
        Some(Self { file: source.name.clone(), line, steps: found.steps, text })
    }
}

/// Resource bounds of one process.
#[derive(Debug, Serialize)]
pub struct ResourceBounds {
    /// Its name.
    pub process: String,
    /// Bytes per session: buffered messages.
    pub session_channel_bytes: u64,
    /// Bytes per session: the parsed message.
    pub session_view_bytes: u64,
    /// Bytes per session: `local` variables.
    pub session_state_bytes: u64,
    /// Bytes per suspended rule, without its replies: saved values and built messages.
    pub suspended_rule_bytes: u64,
    /// Bytes of replies per suspended rule; an array counts as `ASKS_MAX` elements.
    pub reply_bytes_max: u64,
    /// Bytes of state shared by all sessions.
    pub global_state_bytes: u64,
    /// The dictionaries.
    pub dictionaries: Vec<DictionaryBounds>,
    /// Steps per message.
    pub steps_per_message_max: u64,
    /// Estimated time of these steps, in microseconds.
    pub estimated_us_max: u64,
    /// The line with most of these steps.
    pub hottest_line: Option<HotLine>,
    /// Messages sent per message.
    pub sends_per_message_max: u64,
    /// `ask`s per message, without those of whole arrays.
    pub asks_per_message_max: u64,
    /// `ask all`s per message.
    pub array_asks_per_message_max: u64,
    /// Bytes built per message: changed messages, text, lists.
    pub built_bytes_max: u64,
    /// Size of the largest message of any channel; `None` if one is streamed without a bound.
    pub message_bytes_max: Option<u64>,
    /// Bytes of a message that are in memory at one time, if longer ones are streamed.
    pub streamed_bytes: Option<u64>,
    /// Elements of each channel, by name.
    pub elements_max: Vec<(String, u64)>,
}

/// Bounds of a dictionary.
#[derive(Debug, Serialize)]
pub struct DictionaryBounds {
    /// Its name.
    pub name: String,
    /// Maximum number of entries.
    pub entries_max: u64,
    /// Memory of the dictionary.
    pub bytes: u64,
}

impl ResourceBounds {
    /// Computes the bounds.
    pub fn of(module: &Module, sources: &Sources) -> Self {
        let program = &module.program;
        let bounds = &program.bounds;
        let waits = bounds.asks_max > 0 || bounds.array_asks_max > 0;
        let replies = u64::from(bounds.asks_max) + u64::from(bounds.array_asks_max) * ASKS_MAX as u64;
        let dictionary = |dict: &flick_abi::Dict| DictionaryBounds {
            name: dict.name.clone(),
            entries_max: dict.entries_max,
            bytes: dict_bytes_of(dict),
        };
        let dictionaries: Vec<DictionaryBounds> = program.dicts.iter().map(dictionary).collect();
        let counters = (program.counters.len() * size_of::<u64>()) as u64;
        let receiving = program.channels.iter().filter(|channel| channel.view.is_some());
        let heads: u64 = receiving
            .filter_map(|channel| channel.view.as_ref())
            .map(|view| u64::from(view.head_bytes_max))
            .max()
            .unwrap_or(0);
        // A head that does not fit into a large buffer is in a huge one.
        let buffer = u64::from(if heads > WHOLE_BYTES_MAX { HUGE_BYTES } else { LARGE_BYTES });
        // An array in an `ask all` has at most as many elements as a suspended rule can wait for.
        let elements_max =
            if bounds.array_asks_max > 0 { ASKS_MAX as u64 } else { CHANNEL_ELEMENTS_MAX as u64 };
        let backends = program
            .channels
            .iter()
            .map(|channel| (channel.name.clone(), if channel.is_array { elements_max } else { 1 }));
        let message_bytes_max =
            program.protocols.iter().map(|protocol| protocol.message_bytes_max).max().unwrap_or(0);
        Self {
            process: program.name.clone(),
            session_channel_bytes: SESSION_BACKLOG_BYTES_MAX as u64 + buffer,
            session_view_bytes: size_of::<Frame>() as u64 + heads,
            session_state_bytes: u64::from(program.state_words) * size_of::<u64>() as u64,
            suspended_rule_bytes: if waits {
                u64::from(bounds.spill_words) * size_of::<u64>() as u64 + bounds.kept_bytes_max
            } else {
                0
            },
            reply_bytes_max: replies.saturating_mul(buffer),
            global_state_bytes: dictionaries
                .iter()
                .fold(counters, |sum, dict| sum.saturating_add(dict.bytes)),
            dictionaries,
            steps_per_message_max: bounds.steps_per_message_max,
            estimated_us_max: bounds.steps_per_message_max.div_ceil(STEPS_PER_US),
            hottest_line: HotLine::of(module, sources),
            sends_per_message_max: bounds.sends_per_message_max,
            asks_per_message_max: u64::from(bounds.asks_max),
            array_asks_per_message_max: u64::from(bounds.array_asks_max),
            built_bytes_max: bounds.out_bytes_max,
            message_bytes_max: Some(message_bytes_max).filter(|bytes| *bytes < UNBOUNDED_BYTES),
            streamed_bytes: (message_bytes_max > buffer).then_some(buffer),
            elements_max: backends.collect(),
        }
    }

    /// The largest message.
    fn largest_message(&self) -> String {
        let largest = self.message_bytes_max.map(bytes);
        let streamed =
            self.streamed_bytes.map(|at_a_time| format!("streamed, {} at a time", bytes(at_a_time)));
        [largest, streamed].into_iter().flatten().collect::<Vec<_>>().join(", ")
    }

    /// The bounds as text.
    pub fn text(&self) -> String {
        let session = self.session_channel_bytes + self.session_view_bytes + self.session_state_bytes;
        let mut lines = vec![
            format!("bounds of process `{}`", self.process),
            format!("  memory per session      at most {}", bytes(session)),
            format!("    its channels          {}", bytes(self.session_channel_bytes)),
            format!("    its views             {}", bytes(self.session_view_bytes)),
            format!("    its state             {}", bytes(self.session_state_bytes)),
        ];
        if self.suspended_rule_bytes > 0 {
            lines.push(format!("  memory of a suspended rule  at most {}", bytes(self.suspended_rule_bytes)));
            lines.push(format!("    its replies           at most {}", bytes(self.reply_bytes_max)));
        }
        lines.push(format!("  global state            {}", bytes(self.global_state_bytes)));
        for dict in &self.dictionaries {
            lines.push(format!("    `{}`, {} entries: {}", dict.name, dict.entries_max, bytes(dict.bytes)));
        }
        lines.push(format!(
            "  work per message        at most {} steps, an estimated {} us",
            self.steps_per_message_max, self.estimated_us_max
        ));
        if let Some(hot) = &self.hottest_line {
            lines.push(format!(
                "    most of it            {} steps at {}:{}: {}",
                hot.steps, hot.file, hot.line, hot.text
            ));
        }
        lines.push(format!("  sends per message       at most {}", self.sends_per_message_max));
        if self.asks_per_message_max > 0 || self.array_asks_per_message_max > 0 {
            let arrays = match self.array_asks_per_message_max {
                0 => String::new(),
                count => format!(", and {count} `ask all`"),
            };
            lines.push(format!("  asks per message        at most {}{arrays}", self.asks_per_message_max));
        }
        lines.push(format!("  built per message       at most {}", bytes(self.built_bytes_max)));
        lines.push(format!("  largest message         {}", self.largest_message()));
        for (channel, count) in &self.elements_max {
            lines.push(format!("  elements of `{channel}`: at most {count}"));
        }
        lines.push(String::new());
        lines.join("\n")
    }
}

/// A size in the largest unit in which it is at least 1.
pub fn bytes(amount: u64) -> String {
    const UNITS: [&str; 4] = ["B", "KiB", "MiB", "GiB"];
    if amount == u64::MAX {
        return "unlimited".to_owned();
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
    fn bytes_use_the_largest_unit() {
        for (amount, expected) in
            [(0, "0 B"), (512, "512 B"), (1536, "1.5 KiB"), (1 << 20, "1 MiB"), (5 << 30, "5 GiB")]
        {
            assert_eq!(bytes(amount), expected);
        }
    }
}
