//! `flick store`: a memcached-compatible cache, which is the program of `examples/key_value_server`.
//! Promises: runs as `flick run` does, with all its options; items and their index take the memory that is set.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser};
use flick_check::limits::DICT_ENTRIES_MAX;
use flick_net::Endpoint;

use crate::commands::run::Run;
use crate::console;
use crate::failure::{Failure, Outcome};
use crate::settings::{Bounded, EmbeddedProgram, RunFlags, Size, Workers, binding};
use crate::sys::HeldSignals;

/// Name of the program in messages.
const PROGRAM: &str = "store.flick";
/// The program: one process for each grammar.
const TEXT: &str = include_str!("../../../../examples/key_value_server/both_protocols.flick");
/// The files that it uses.
const LIBRARIES: [(&str, &str); 4] = [
    (ITEMS, include_str!("../../../../examples/key_value_server/memcached_items.flick")),
    (
        "memcached_text_commands",
        include_str!("../../../../examples/key_value_server/memcached_text_commands.flick"),
    ),
    (
        "memcached_meta_commands",
        include_str!("../../../../examples/key_value_server/memcached_meta_commands.flick"),
    ),
    (
        "memcached_binary_commands",
        include_str!("../../../../examples/key_value_server/memcached_binary_commands.flick"),
    ),
];
/// The file that declares the dictionaries.
const ITEMS: &str = "memcached_items";
/// The size of the items in the text of the program.
const ITEMS_SIZE: &str = "max 100000 entries, 64MiB bytes";
/// The same of the memory alone.
const ITEMS_MEMORY: &str = "64MiB";
/// The sizes of the dictionaries beside them, and their names in snapshots.
const SMALL_SIZES: [(&str, &str); 2] = [("max 1 entries", "serial"), ("max 2 entries", "flushes")];
/// Least memory: it holds the longest items beside the index.
const MEMORY_MIN: u64 = 16 << 20;
/// Least memory for each entry: its share of the index (19 bytes), and more than a block of 96 bytes. Fewer bytes would
/// hold more of the shortest items, and less of all others.
const BYTES_PER_ENTRY: u64 = 200;
/// Most memory: the blocks of one dictionary are 48 GiB, and the index of its most entries nearly 5 GiB.
const MEMORY_MAX: u64 = 52 << 30;
/// State beside the items.
const OTHER_STATE: u64 = 64 << 20;

/// Runs a memcached-compatible cache.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  flick store --memory 1GiB
  flick store --listen 0.0.0.0:11211 --memory 4GiB --workers 2 --snapshot /var/lib/flick
  flick store --memory 1GiB -- --admin 9900 --max-connections 5000")]
pub struct Store {
    /// Addresses that clients connect to, with any of the protocols: `0.0.0.0:11211`, `unix:/run/store.sock`.
    #[arg(long, value_name = "ADDRESS[,...]", default_value = "127.0.0.1:11211")]
    listen: String,
    /// Memory of all items, with their keys and the index, 16MiB to 52GiB. When it is full, items that were not used
    /// lately are evicted.
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    memory: Size,
    /// Number of worker threads. [default: one per core]
    #[arg(long, value_name = "N")]
    workers: Option<Workers>,
    /// Directory in which items survive a restart. They are written there at an interval and at the end. It is created
    /// if it is missing, but not its parent. [default: none]
    #[arg(long, value_name = "DIR")]
    snapshot: Option<PathBuf>,
    /// Time between two snapshots: what a crash may lose. From 1s to 24h.
    #[arg(long, value_name = "DURATION", default_value = "30s", requires = "snapshot")]
    snapshot_interval: Bounded<1_000_000, 86_400_000_000>,
    /// Options of `flick run`, behind `--`.
    #[arg(last = true, value_name = "OPTION")]
    options: Vec<OsString>,
}

/// The options of `flick run`.
#[derive(Debug, Parser)]
#[command(name = "flick store --", no_binary_name = true)]
struct RunOptions {
    #[command(flatten)]
    flags: RunFlags,
}

impl Store {
    /// Starts the program, and returns when it has ended.
    pub fn run(self, held: Option<HeldSignals>) -> Outcome {
        Run { flags: self.flags()? }.run(held)
    }

    fn flags(self) -> Result<RunFlags, Failure> {
        let mut flags = RunOptions::try_parse_from(&self.options)
            .unwrap_or_else(|error| console::exit_with(&error))
            .flags;
        let memory = self.memory.0;
        if memory < MEMORY_MIN {
            return Err(Failure::usage("`--memory` is at least 16MiB"));
        }
        if memory > MEMORY_MAX {
            return Err(Failure::usage(
                "`--memory` is at most 52GiB; for more, run several stores behind a proxy that distributes keys",
            ));
        }
        let own = [
            ("a program", !flags.programs.is_empty()),
            ("`--config`", flags.config.is_some()),
            ("`--connect`", !flags.connect.is_empty()),
            ("`--listen`: write it before `--`", !flags.listen.is_empty()),
            ("`--workers`: write it before `--`", flags.workers.is_some()),
            ("`--state-dir`: write `--snapshot` before `--`", flags.state_dir.is_some()),
        ];
        if let Some((name, _)) = own.iter().find(|(_, is_given)| *is_given) {
            return Err(Failure::usage(format!("the store does not take {name}")));
        }
        for process in ["Text", "Binary"] {
            let bound = binding(&format!("{process}.client={}", self.listen)).map_err(Failure::usage)?;
            let is_shared = |endpoint: &Endpoint| matches!(endpoint, Endpoint::Tcp(_) | Endpoint::Unix(_));
            if let Some(other) = bound.endpoints.iter().find(|endpoint| !is_shared(endpoint)) {
                return Err(Failure::usage(format!(
                    "the store cannot listen on {other}, where its protocols cannot share an address; listen on TCP: \
                     connections within this host move to shared memory by themselves"
                )));
            }
            flags.listen.push(bound);
        }
        flags.programs = vec![PathBuf::from(PROGRAM)];
        let interval = self.snapshot.as_ref().map(|_| self.snapshot_interval.0);
        flags.embedded = Some(program(memory, interval));
        flags.workers = self.workers;
        flags.state_dir = self.snapshot;
        flags.limits.default_state_memory(memory.saturating_add(OTHER_STATE));
        Ok(flags)
    }
}

/// The program with items of this many bytes, and with snapshots at an interval if items are to survive a restart.
fn program(memory: u64, interval: Option<Duration>) -> EmbeddedProgram {
    let sized = |(name, text): (&'static str, &str)| {
        let snapshot = |of: &str| match interval {
            Some(interval) => format!(", snapshot \"{of}\" every {}ms", interval.as_millis()),
            None => String::new(),
        };
        let entries = (memory / BYTES_PER_ENTRY).min(DICT_ENTRIES_MAX);
        let mut text = text
            .replace(ITEMS_SIZE, &format!("max {entries} entries, {memory} bytes{}", snapshot("items")))
            .replace(ITEMS_MEMORY, &memory.to_string());
        for (size, of) in SMALL_SIZES {
            text = text.replace(size, &format!("{size}{}", snapshot(of)));
        }
        (name, text)
    };
    EmbeddedProgram {
        text: TEXT,
        libraries: LIBRARIES.map(sized).to_vec(),
        dictionary_remedy: "lower `--memory`",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{ITEMS, ITEMS_SIZE, LIBRARIES, SMALL_SIZES, program};

    #[test]
    fn sizes_and_snapshots_are_set_where_the_program_declares_its_dictionaries() {
        let (_, items) = LIBRARIES.iter().find(|(name, _)| *name == ITEMS).expect("a file of the program");
        let declared = items.lines().filter(|line| line.starts_with("global ") && line.contains("dict<"));
        let sizes = SMALL_SIZES.iter().map(|(size, _)| *size).chain([ITEMS_SIZE]);
        // One is of this run alone.
        let sizes: Vec<&str> = sizes.chain(["max 3 entries"]).collect();
        let each = |line: &str| sizes.iter().filter(|size| line.contains(**size)).count();
        let found: Vec<usize> = declared.map(each).collect();
        assert_eq!(found, vec![1; sizes.len()]);
        let bounded = program(1 << 30, Some(Duration::from_secs(5)));
        let (_, items) = bounded.libraries.iter().find(|(name, _)| *name == ITEMS).expect("it is kept");
        let declared = "max 5368709 entries, 1073741824 bytes, snapshot \"items\" every 5000ms\n";
        assert!(items.contains(declared), "{items}");
        assert_eq!(items.matches(", snapshot \"").count(), sizes.len() - 1);
        assert!(bounded.libraries.iter().all(|(_, text)| !text.contains("64MiB")));
    }
}
