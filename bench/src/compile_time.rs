//! From text to machine code: every example, and a generated program of 5,000 lines.
//! Promises: each phase is timed alone; the best of some rounds counts, because what other processes take is no property
//! of the compiler.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use flick_codegen::{Options, compile};
use flick_testkit::generate::{Size, program};

use crate::cli::CompileArgs;

/// Lines of the generated program.
const LINES_MIN: usize = 5_000;

/// Times of the phases.
#[derive(Clone, Copy)]
struct Phases {
    check: Duration,
    lower: Duration,
    compile: Duration,
}

impl Phases {
    fn all(&self) -> Duration {
        self.check + self.lower + self.compile
    }
}

/// Measures and prints a table.
pub fn run(args: &CompileArgs) -> std::io::Result<()> {
    let mut table = String::from(
        "| program | lines | check, ms | lower, ms | compile, ms | all, ms |\n|---|--:|--:|--:|--:|--:|\n",
    );
    let mut row = |name: &str, text: &str| -> std::io::Result<()> {
        let phases = measure(name, text, args.rounds).map_err(std::io::Error::other)?;
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let (check, lower, compile) = (ms(phases.check), ms(phases.lower), ms(phases.compile));
        let all = ms(phases.all());
        let lines = text.lines().count();
        let _ = writeln!(table, "| {name} | {lines} | {check:.1} | {lower:.1} | {compile:.1} | {all:.1} |");
        Ok(())
    };
    for entry in std::fs::read_dir("examples")? {
        let folder = entry?.path();
        let Some(name) = folder.file_name().and_then(|name| name.to_str()) else { continue };
        let text = std::fs::read_to_string(folder.join(format!("{name}.flick")))?;
        row(name, &text)?;
    }
    row("generated", &large())?;
    println!("{table}");
    Ok(())
}

/// A generated program of at least [`LINES_MIN`] lines, all of which is compiled, that the checker accepts.
fn large() -> String {
    let accepted = |text: &String| flick_check::check("generated", text, &|_: &str| None).0.is_some();
    (0..)
        .map(|seed| {
            let mut functions = 400;
            loop {
                let text = program(seed, Size { functions, ..Size::MANY });
                if text.lines().count() >= LINES_MIN {
                    return text;
                }
                functions += functions / 4;
            }
        })
        .take(50)
        .find(accepted)
        .unwrap_or_default()
}

fn measure(name: &str, text: &str, rounds: u32) -> Result<Phases, String> {
    let mut best: Option<Phases> = None;
    for _ in 0..rounds {
        let start = Instant::now();
        let (program, diagnostics, sources) = flick_check::check(name, text, &load);
        let program = program.ok_or_else(|| {
            diagnostics.iter().map(|found| flick_check::render(found, &sources, false)).collect::<String>()
        })?;
        let check = start.elapsed();
        let start = Instant::now();
        let module = flick_lower::lower(&program);
        let lower = start.elapsed();
        let start = Instant::now();
        compile(&module, &Options::default()).map_err(|error| error.to_string())?;
        let phases = Phases { check, lower, compile: start.elapsed() };
        if best.is_none_or(|best| phases.all() < best.all()) {
            best = Some(phases);
        }
    }
    best.ok_or_else(|| "no rounds were asked for".to_owned())
}

/// Libraries of the standard library.
fn load(name: &str) -> Option<(String, String)> {
    let path = Path::new("stdlib").join(format!("{name}.flick"));
    let text = std::fs::read_to_string(&path).ok()?;
    Some((path.display().to_string(), text))
}
