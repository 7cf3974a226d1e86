//! Report of a run over many messages: its progress, the number of messages that the grammar accepts, and the blocks of
//! the parsers that were not reached.

use std::time::{Duration, Instant};

use crate::reader::Reader;

/// Between two lines of a long run.
const LINE_EVERY: Duration = Duration::from_secs(20);

/// One grammar's counts.
pub struct Report {
    name: String,
    start: Instant,
    last_line: Instant,
    messages: u64,
    good: u64,
    bytes: u64,
}

impl Report {
    /// Nothing was seen.
    pub fn new(name: &str) -> Self {
        let now = Instant::now();
        Self { name: name.to_owned(), start: now, last_line: now, messages: 0, good: 0, bytes: 0 }
    }

    /// A message was checked.
    pub fn saw(&mut self, is_good: bool, len: usize) {
        self.messages += 1;
        self.good += u64::from(is_good);
        self.bytes += len as u64;
        if self.last_line.elapsed() >= LINE_EVERY {
            self.last_line = Instant::now();
            println!("{}", self.line());
        }
    }

    fn line(&self) -> String {
        format!(
            "{}: {} messages, {} % of the grammar, {} bytes on average, {} s",
            self.name,
            self.messages,
            self.good * 100 / self.messages.max(1),
            self.bytes / self.messages.max(1),
            self.start.elapsed().as_secs()
        )
    }

    /// All were checked: says what was reached, and insists that enough were of the grammar.
    pub fn end(&self, readers: &[Reader<'_>], good_percent_min: u64) {
        println!("{}", self.line());
        for (index, reader) in readers.iter().enumerate() {
            println!("{}, program {index}: read {} times", self.name, reader.parses);
            self.reached(reader);
        }
        let percent = self.good * 100 / self.messages.max(1);
        assert!(
            self.messages < 100 || percent >= good_percent_min,
            "{}: only {percent} % are messages",
            self.name
        );
    }

    /// Says which blocks of the parsers no message came to.
    fn reached(&self, reader: &Reader<'_>) {
        let module = &reader.engines.module;
        let mut functions: Vec<u32> = reader.visited.keys().map(|(function, _)| *function).collect();
        functions.dedup();
        for function in functions {
            let blocks = &module.functions[function as usize].blocks;
            let missed: Vec<_> = (0..blocks.len() as u32)
                .filter(|block| !reader.visited.contains_key(&(function, *block)))
                .collect();
            println!(
                "{}, `{}`: {} of {} blocks reached",
                self.name,
                module.functions[function as usize].name,
                blocks.len() - missed.len(),
                blocks.len()
            );
            if std::env::var_os("FLICK_TEST_REACH").is_some() {
                missed.iter().for_each(|block| println!("  not b{block}: {:?}", blocks[*block as usize].end));
            }
        }
    }
}
