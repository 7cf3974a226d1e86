//! Parsers that grammars become beside parsers in Rust, on whole messages.
//! Promises: both sides read the same bytes, and what flick has found is compared with the rival's before anything is
//! timed; the sides alternate and the best batch counts.
//! Refuses: messages in pieces, which the rivals here read again from the start.

mod messages;
mod scanning;

use std::fmt::Write as _;
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::time::Instant;

use flick_abi::{BytesRef, Engine, Frame, FuncId, Step};
use flick_codegen::{Options, compile};

use crate::cli::ParsingArgs;

/// Calls of one batch.
const CALLS: usize = 20_000;
/// Batches of one round.
const BATCHES: usize = 10;
/// Fields that both sides have room for.
const FIELDS_MAX: usize = 100;

/// One comparison: what reads the messages on each side, and adds up what it has found.
struct Row<'a> {
    name: String,
    flick: Box<dyn Fn(usize) -> u64 + 'a>,
    rival_name: &'static str,
    rival: Box<dyn Fn(usize) -> u64 + 'a>,
}

/// Measures all rows and prints a table.
pub fn run(args: &ParsingArgs) -> Result<(), String> {
    let (http, scans) = (http_parsers(args)?, scanning::Scans::new()?);
    let rows = http.iter().flat_map(Parser::rows).chain(scans.rows());
    let mut table =
        String::from("| messages | flick, ns | rival | rival, ns | times as fast |\n|---|--:|---|--:|--:|\n");
    for row in rows {
        if args.only.as_ref().is_some_and(|only| !row.name.contains(only)) {
            continue;
        }
        let (flick, rival) = measure(&row, args.rounds);
        let _ = writeln!(
            table,
            "| {} | {flick:.1} | {} | {rival:.1} | {:.2} |",
            row.name,
            row.rival_name,
            rival / flick
        );
    }
    println!("{table}");
    if let Some(results) = &args.results {
        std::fs::create_dir_all(results).map_err(|error| error.to_string())?;
        let path = results.join("parsing.md");
        let heading = "# Parsers of grammars beside parsers in Rust\n\nMedian over rounds of the best batch, in nanoseconds per \
                       message; see METHOD.md.\n\n";
        std::fs::write(&path, format!("{heading}{table}")).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// A parser of HTTP requests for one program.
struct Parser {
    what: &'static str,
    engine: Box<dyn Engine>,
    parser: FuncId,
}

fn http_parsers(args: &ParsingArgs) -> Result<Vec<Parser>, String> {
    let programs = [
        ("two fields", include_str!("../scenarios/parsing/http_two.flick")),
        ("all fields", include_str!("../scenarios/parsing/http_all.flick")),
    ];
    programs.map(|(what, text)| parser(what, text, args.asm)).into_iter().collect()
}

fn parser(what: &'static str, text: &str, listings: bool) -> Result<Parser, String> {
    let library = |name: &str| match name {
        "http" => Some(("http.flick".to_owned(), include_str!("../../stdlib/http.flick").to_owned())),
        _ => None,
    };
    let (program, diagnostics, sources) = flick_check::check(what, text, &library);
    let program = program.ok_or_else(|| {
        let texts = diagnostics.iter().map(|diagnostic| flick_check::render(diagnostic, &sources, false));
        texts.collect::<String>()
    })?;
    let module = flick_lower::lower(&program);
    let options = Options { listings, ..Options::default() };
    let compiled = compile(&module, &options).map_err(|error| error.to_string())?;
    let view = module.program.channels[0].view.as_ref().ok_or("the client channel receives")?;
    let parser = view.parse_request;
    if listings {
        let mut optimised = module.clone();
        flick_ir::passes::optimise(&mut optimised);
        let index = parser.0 as usize;
        println!("{}", flick_ir::text::print_function(index, &optimised.functions[index]));
        println!("{}", compiled.functions()[index].asm);
    }
    Ok(Parser { what, engine: Box::new(compiled), parser })
}

impl Parser {
    fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        messages::REQUESTS.iter().map(move |(name, message)| {
            let message = message.as_bytes();
            self.check(message);
            Row {
                name: format!("HTTP, {}, {name}, {} bytes", self.what, message.len()),
                flick: Box::new(move |calls| self.parse(message, calls)),
                rival_name: "httparse",
                rival: Box::new(move |calls| httparse(message, calls)),
            }
        })
    }

    /// Compares what is found in a message with what the rival finds.
    fn check(&self, message: &[u8]) {
        let mut frame = Frame::new();
        frame.restart();
        let step = self.engine.parse(self.parser, &mut frame, message);
        assert!(step == Step::Done, "the messages are whole: {step:?}");
        let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
        let mut request = httparse::Request::new(&mut fields);
        let head = request.parse(message);
        assert_eq!(head, Ok(httparse::Status::Complete(frame.head_bytes() as usize)));
        let found: Vec<&[u8]> = frame
            .slots
            .iter()
            .chain(frame.items())
            .filter_map(|word| BytesRef(*word).resolve(|_| Some(message), &[], &[]))
            .collect();
        let target = request.path.unwrap_or_default().as_bytes();
        assert!(found.contains(&target), "the target is found");
        let has_all = request.headers.iter().all(|field| {
            field.name != "Host"
                || found.iter().any(|found| found.trim_ascii().ends_with(field.value.trim_ascii()))
        });
        assert!(has_all, "the field that is read is found");
    }

    fn parse(&self, message: &[u8], calls: usize) -> u64 {
        let mut frame = Frame::new();
        let mut sum = 0;
        for _ in 0..calls {
            frame.restart();
            let step = self.engine.parse(self.parser, &mut frame, black_box(message));
            assert!(step == Step::Done, "the messages are whole");
            sum += frame.head_bytes();
        }
        sum
    }
}

fn httparse(message: &[u8], calls: usize) -> u64 {
    let mut sum = 0;
    for _ in 0..calls {
        // As fast as it goes: the room for fields is not filled before.
        let mut fields = [MaybeUninit::<httparse::Header<'_>>::uninit(); FIELDS_MAX];
        let mut request = httparse::Request::new(&mut []);
        let parsed = request.parse_with_uninit_headers(black_box(message), &mut fields);
        if let Ok(httparse::Status::Complete(head)) = parsed {
            sum += head as u64;
        }
        black_box(&request);
    }
    sum
}

/// Nanoseconds per message of both: medians over rounds of the best batch.
fn measure(row: &Row<'_>, rounds: u32) -> (f64, f64) {
    let batch = |parse: &dyn Fn(usize) -> u64| {
        let started = Instant::now();
        black_box(parse(black_box(CALLS)));
        started.elapsed().as_secs_f64() * 1e9 / CALLS as f64
    };
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

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
