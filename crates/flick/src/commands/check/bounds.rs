//! What a process needs at most, computed before it runs: the author's side of every limit.
//! Promises: every figure is an upper bound over all inputs; the platform enforces those that depend on it.
//! Source: a program is refused unless it has these bounds, so this never fails.

use flick_abi::Frame;
use flick_abi::limits::{ASKS_MAX, CHANNEL_ELEMENTS_MAX};
use flick_buffers::{HUGE_BYTES, LARGE_BYTES};
use flick_check::Sources;
use flick_ir::data::Module;
use flick_runtime::limits::{SESSION_BACKLOG_BYTES_MAX, WHOLE_BYTES_MAX};
use flick_runtime::state::dict_bytes_of;
use serde::Serialize;

use super::costliest::{Place, costliest};

/// Needs of one process.
#[derive(Debug, Serialize)]
pub struct Needs {
    /// Its name.
    pub process: String,
    /// Bytes of one session: messages on its channels, at most.
    pub session_channel_bytes: u64,
    /// Bytes of one session: the parsed message under way.
    pub session_view_bytes: u64,
    /// Bytes of one session: its `local`s.
    pub session_state_bytes: u64,
    /// Bytes of one rule that waits for replies, without the replies: what it keeps and has built.
    pub waiting_bytes: u64,
    /// Bytes of the replies that one such rule keeps; those of arrays are counted with `ASKS_MAX` elements.
    pub reply_bytes_max: u64,
    /// Bytes of state that all sessions share.
    pub global_state_bytes: u64,
    /// Each dictionary.
    pub dictionaries: Vec<Dictionary>,
    /// Steps that one message can cost.
    pub steps_per_message_max: u64,
    /// Where most of them go.
    pub costliest: Option<Place>,
    /// Messages that one message can cause.
    pub sends_per_message_max: u64,
    /// Asks that one message can cause, those of whole arrays left out.
    pub asks_per_message_max: u64,
    /// Times that one message can cause all elements of an array to be asked.
    pub array_asks_per_message_max: u64,
    /// Bytes that one activation builds: changed messages, text, lists.
    pub built_bytes_max: u64,
    /// Largest message of any channel, in bytes.
    pub message_bytes_max: u64,
    /// Backends of each channel, by name.
    pub backends_max: Vec<(String, u64)>,
}

/// A dictionary and its memory.
#[derive(Debug, Serialize)]
pub struct Dictionary {
    /// Its name.
    pub name: String,
    /// Entries at most.
    pub entries_max: u64,
    /// Bytes set aside for it.
    pub bytes: u64,
}

impl Needs {
    /// Computes them.
    pub fn of(module: &Module, sources: &Sources) -> Self {
        let program = &module.program;
        let functions = flick_ir::bounds::bounds(module);
        let bounds = &program.bounds;
        let waits = bounds.asks_max > 0 || bounds.array_asks_max > 0;
        let replies = u64::from(bounds.asks_max) + u64::from(bounds.array_asks_max) * ASKS_MAX as u64;
        let dictionary = |dict: &flick_abi::Dict| Dictionary {
            name: dict.name.clone(),
            entries_max: dict.entries_max,
            bytes: dict_bytes_of(dict),
        };
        let dictionaries: Vec<Dictionary> = program.dicts.iter().map(dictionary).collect();
        let counters = (program.counters.len() * size_of::<u64>()) as u64;
        let receiving = program.channels.iter().filter(|channel| channel.view.is_some());
        let heads: u64 = receiving
            .filter_map(|channel| channel.view.as_ref())
            .map(|view| u64::from(view.head_bytes_max))
            .max()
            .unwrap_or(0);
        // What a program looks at beyond a large buffer lies in a huge one.
        let buffer = u64::from(if heads > WHOLE_BYTES_MAX { HUGE_BYTES } else { LARGE_BYTES });
        // An array that is asked as a whole is as long as one suspension can wait for.
        let elements_max =
            if bounds.array_asks_max > 0 { ASKS_MAX as u64 } else { CHANNEL_ELEMENTS_MAX as u64 };
        let backends = program
            .channels
            .iter()
            .map(|channel| (channel.name.clone(), if channel.is_array { elements_max } else { 1 }));
        Self {
            process: program.name.clone(),
            session_channel_bytes: SESSION_BACKLOG_BYTES_MAX as u64 + buffer,
            session_view_bytes: size_of::<Frame>() as u64 + heads,
            session_state_bytes: u64::from(program.state_words) * size_of::<u64>() as u64,
            waiting_bytes: if waits {
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
            costliest: costliest(module, &functions, sources),
            sends_per_message_max: bounds.sends_per_message_max,
            asks_per_message_max: u64::from(bounds.asks_max),
            array_asks_per_message_max: u64::from(bounds.array_asks_max),
            built_bytes_max: bounds.out_bytes_max,
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
        ];
        if self.waiting_bytes > 0 {
            lines.push(format!("  memory of a rule that waits  at most {}", bytes(self.waiting_bytes)));
            lines.push(format!("    the replies it keeps  at most {}", bytes(self.reply_bytes_max)));
        }
        lines.push(format!("  memory of all sessions  {} of global state", bytes(self.global_state_bytes)));
        for dict in &self.dictionaries {
            lines.push(format!("    `{}`, {} entries: {}", dict.name, dict.entries_max, bytes(dict.bytes)));
        }
        lines.extend([format!("  work for a message      at most {} steps", self.steps_per_message_max)]);
        if let Some(place) = &self.costliest {
            lines.push(format!(
                "    most of it            {} steps at {}:{}: {}",
                place.steps, place.file, place.line, place.text
            ));
        }
        lines.push(format!("  messages caused by one  at most {}", self.sends_per_message_max));
        if self.asks_per_message_max > 0 || self.array_asks_per_message_max > 0 {
            let arrays = match self.array_asks_per_message_max {
                0 => String::new(),
                count => format!(", and all elements of an array {count} times"),
            };
            lines.push(format!("  asks caused by one      at most {}{arrays}", self.asks_per_message_max));
        }
        lines.push(format!("  built for one message   at most {}", bytes(self.built_bytes_max)));
        lines.push(format!("  largest message         {}", bytes(self.message_bytes_max)));
        for (channel, count) in &self.backends_max {
            lines.push(format!("  ends of `{channel}`: at most {count}"));
        }
        lines.push(String::new());
        lines.join("\n")
    }
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
