//! From text to machine code: every example, and a generated program of 5,000 lines.
//! Promises: each phase is timed alone; the best of some rounds counts, because other processes only add time.

use std::fmt::Write as _;
use std::time::Duration;

use flick_compiler::{EngineKind, Input, PhaseTimes, compile};
use flick_testkit::generate::{Size, program};

use crate::cli::CompileArgs;

/// Lines of the generated program.
const LINES_MIN: usize = 5_000;

/// Measures and prints a table.
pub fn run(args: &CompileArgs) -> std::io::Result<()> {
    let mut table = String::from(
        "| program | lines | check, ms | lower, ms | compile, ms | all, ms |\n|---|--:|--:|--:|--:|--:|\n",
    );
    let mut row = |name: &str, input: &Input<'_>| -> std::io::Result<()> {
        let times = measure(input, args.rounds).map_err(std::io::Error::other)?;
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let (check, lower, compile) = (ms(times.parse + times.check), ms(times.lower), ms(times.generate));
        let all = ms(times.total());
        let lines = input.text.lines().count();
        let _ = writeln!(table, "| {name} | {lines} | {check:.1} | {lower:.1} | {compile:.1} | {all:.1} |");
        Ok(())
    };
    for entry in std::fs::read_dir("examples")? {
        let folder = entry?.path();
        let Some(name) = folder.file_name().and_then(|name| name.to_str()) else { continue };
        let input = Input::file(&folder.join(format!("{name}.flick"))).map_err(std::io::Error::other)?;
        row(name, &input)?;
    }
    row("generated", &Input::text("generated", large()))?;
    println!("{table}");
    Ok(())
}

/// A generated program of at least [`LINES_MIN`] lines, all of which is compiled, that the checker accepts.
fn large() -> String {
    let accepted = |text: &String| {
        flick_compiler::check(&Input::text("generated", text)).is_ok_and(|checked| checked.program.is_some())
    };
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

fn measure(input: &Input<'_>, rounds: u32) -> Result<PhaseTimes, String> {
    let mut best: Option<PhaseTimes> = None;
    for _ in 0..rounds {
        let compiled = compile(input, EngineKind::Native).map_err(|failure| failure.to_string())?;
        let times = compiled.into_first().times;
        if best.is_none_or(|best| times.total() < best.total()) {
            best = Some(times);
        }
    }
    best.ok_or_else(|| "no rounds were asked for".to_owned())
}
