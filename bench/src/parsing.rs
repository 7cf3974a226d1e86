//! Parsers that grammars become beside parsers in Rust, on whole messages.
//! Promises: both sides read the same bytes, and what flick has found is compared with the rival's before anything is
//! timed; the sides alternate and the best batch counts.
//! Refuses: messages in pieces, which the rivals here read again from the start.

mod http;
mod kaitai;
mod memcached;
mod messages;
mod resp;
mod scanning;

use std::fmt::Write as _;
use std::hint::black_box;
use std::time::Instant;

use flick_abi::View;
use flick_abi::{BytesRef, Engine, Frame, FuncId, MessageFlags, ParseStep};
use flick_codegen::Options;
use flick_compiler::{Input, generate};

use crate::cli::ParsingArgs;
use crate::page;

pub(crate) use kaitai::run as kaitai;

/// Calls of one batch.
const CALLS: usize = 20_000;
/// Batches of one round.
const BATCHES: usize = 10;

/// One comparison: what reads the messages on each side, and adds up what it has found.
struct Row<'a> {
    name: String,
    flick: Box<dyn Fn(usize) -> u64 + 'a>,
    rival_name: &'static str,
    rival: Box<dyn Fn(usize) -> u64 + 'a>,
}

/// Measures all rows and prints a table.
pub fn run(args: &ParsingArgs) -> Result<(), String> {
    let (http, resp) = (http::Http::new(args.asm)?, resp::Resp::new(args.asm)?);
    let (memcached, scans) = (memcached::Memcached::new(args.asm)?, scanning::Scans::new()?);
    let rows = http.rows()?.into_iter().chain(resp.rows()?).chain(memcached.rows()?).chain(scans.rows());
    let mut table =
        String::from("| messages | flick, ns | rival | rival, ns | times as fast |\n|---|--:|---|--:|--:|\n");
    for row in rows {
        if args.only.as_ref().is_some_and(|only| !row.name.contains(only)) {
            continue;
        }
        let (flick, rival) = measure(&row, args.batches.rounds);
        let _ = writeln!(
            table,
            "| {} | {flick:.1} | {} | {rival:.1} | {:.2} |",
            row.name,
            row.rival_name,
            rival / flick
        );
    }
    println!("{table}");
    if let Some(results) = &args.batches.results {
        let heading = "# Parsers of grammars beside parsers in Rust\n\nMedian over rounds of the best batch, in nanoseconds per \
                       message; see METHOD.md.\n\n";
        page::write(results, "parsing.md", &format!("{heading}{table}"))
            .map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// A program of one process with a client's channel and a backend's, compiled.
struct Compiled {
    engine: Box<dyn Engine>,
    module: flick_ir::data::Module,
}

impl Compiled {
    /// Compiles the program `text`, which may use the library.
    fn new(name: &str, text: &str, listings: bool) -> Result<Self, String> {
        let module =
            flick_compiler::module(&Input::text(name, text)).map_err(|failure| failure.to_string())?;
        let options = Options { listings, ..Options::default() };
        let compiled = generate(&module, &options).map_err(|failure| failure.to_string())?;
        if listings {
            let mut optimised = module.clone();
            optimised.functions.iter_mut().for_each(flick_ir::passes::optimise);
            for (number, channel) in module.program.channels.iter().enumerate() {
                let Some(view) = &channel.view else { continue };
                let parser = if number == 0 { view.parse_request } else { view.parse_reply };
                let index = parser.0 as usize;
                println!("{}", flick_ir::text::print_function(index, &optimised.functions[index]));
                println!("{}", compiled.functions()[index].asm);
            }
        }
        Ok(Self { engine: Box::new(compiled), module })
    }

    /// The parser of what clients send.
    fn requests(&self) -> Result<Parser<'_>, String> {
        Ok(Parser { engine: &*self.engine, parser: self.view(0)?.parse_request })
    }

    /// The parser of what backends send.
    fn replies(&self) -> Result<Parser<'_>, String> {
        Ok(Parser { engine: &*self.engine, parser: self.view(1)?.parse_reply })
    }

    fn view(&self, channel: usize) -> Result<&View, String> {
        self.module.program.channels[channel].view.as_ref().ok_or_else(|| "the channel receives".to_owned())
    }
}

/// One parser, called as a worker calls it: through a table, with one frame for all messages.
#[derive(Clone, Copy)]
struct Parser<'a> {
    engine: &'a dyn Engine,
    parser: FuncId,
}

impl Parser<'_> {
    /// Parses the whole of `message`, part after part where the grammar gives parts, and returns its length in bytes.
    fn whole(self, frame: &mut Frame, message: &[u8]) -> u64 {
        frame.restart();
        let mut bytes = 0;
        loop {
            let step = self.engine.parse(self.parser, frame, &message[bytes as usize..]);
            assert!(step == ParseStep::Done, "the messages are whole: {step:?}");
            bytes += frame.total_bytes();
            if !frame.flags().has(MessageFlags::PARTS) {
                return bytes;
            }
            frame.next_part();
        }
    }

    /// Parses `message` that many times.
    fn repeat(self, message: &[u8], calls: usize) -> u64 {
        let mut frame = Frame::new();
        (0..calls).map(|_| self.whole(&mut frame, black_box(message))).sum()
    }
}

/// The bytes that a frame's slots and items refer to.
fn found<'a>(frame: &Frame, message: &'a [u8]) -> Vec<&'a [u8]> {
    let words = frame.slots.iter().chain(frame.items());
    words.filter_map(|word| BytesRef(*word).resolve(|_| Some(message), &[], &[])).collect()
}

/// Nanoseconds per message of both: medians over rounds of the best batch.
fn measure(row: &Row<'_>, rounds: u32) -> (f64, f64) {
    let mut all = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let mut best = (f64::INFINITY, f64::INFINITY);
        for _ in 0..BATCHES {
            best.0 = best.0.min(batch(&*row.flick));
            best.1 = best.1.min(batch(&*row.rival));
        }
        all.0.push(best.0);
        all.1.push(best.1);
    }
    (median(all.0), median(all.1))
}

/// Nanoseconds per message of one batch.
fn batch(parse: &dyn Fn(usize) -> u64) -> f64 {
    let started = Instant::now();
    black_box(parse(black_box(CALLS)));
    started.elapsed().as_secs_f64() * 1e9 / CALLS as f64
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::{http, memcached, resp, scanning};

    #[test]
    fn both_sides_read_every_message_alike() {
        // Making the rows compares what both find.
        let (http, resp) =
            (http::Http::new(false).expect("compiles"), resp::Resp::new(false).expect("compiles"));
        let memcached = memcached::Memcached::new(false).expect("compiles");
        let scans = scanning::Scans::new().expect("compiles");
        let rows = [http.rows(), resp.rows(), memcached.rows(), Ok(scans.rows().collect())];
        for row in rows.into_iter().flat_map(|rows| rows.expect("the programs have both channels")) {
            assert_eq!((row.flick)(3), (row.rival)(3), "{}", row.name);
        }
    }
}
