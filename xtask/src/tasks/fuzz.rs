//! `cargo xtask fuzz TARGET`: looks for texts that break the compiler, and bytes that engines read differently, with libFuzzer, on the stable toolchain.
//! Promises: seeds are every program of the repository; the corpus stays in `target/fuzz`, so that the next run goes on
//! where this one ended; a text that was found is kept there, and the way to run it again is printed.
//! Not here: what must hold for a text (`fuzz/src/targets.rs`).

use std::fs;
use std::path::{Path, PathBuf};

use crate::run::{self, Outcome};
use crate::tidy::files;

const TARGETS: &[&str] = &["text", "checker", "ir", "programs", "messages", "rewritten"];
const SECONDS_DEFAULT: u64 = 60;
/// Longest time for one text: thousands of times what the slowest of this length takes.
const INPUT_SECONDS_MAX: u32 = 10;
/// Most memory, in MiB; the parser needs about a hundred bytes for a byte of source.
const MEMORY_MIB_MAX: u32 = 1024;
/// Longest text. Longer ones are for the tests of the parser.
const INPUT_BYTES_MAX: u32 = 16 * 1024;

/// Has the compiler report what it reaches: counters of edges, and the operands of comparisons.
const COVERAGE: &[&str] = &[
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "--cfg",
    "fuzzing",
];

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    target: String,
    seconds: u64,
    replay: Option<PathBuf>,
}

/// Builds the target and runs it.
pub fn run(args: &[String]) -> Outcome {
    let asked = parse(args)?;
    let home = run::root().join("target/fuzz");
    let binary = build(&asked.target, &home.join("build"))?;
    let mut fuzzer = run::command(&binary.to_string_lossy(), &[]);
    fuzzer.arg(format!("-timeout={INPUT_SECONDS_MAX}")).arg(format!("-rss_limit_mb={MEMORY_MIB_MAX}"));
    if let Some(file) = &asked.replay {
        fuzzer.arg(file);
        return run::run(fuzzer);
    }
    let [seeds, corpus, found] =
        ["seeds".to_owned(), format!("{}/corpus", asked.target), format!("{}/found", asked.target)]
            .map(|name| home.join(name));
    for directory in [&seeds, &corpus, &found] {
        fs::create_dir_all(directory)
            .map_err(|error| format!("cannot make {}: {error}", directory.display()))?;
    }
    write_seeds(&seeds)?;
    // Programs are no messages.
    let inputs = match asked.target.as_str() {
        "messages" | "rewritten" => vec![&corpus],
        _ => vec![&corpus, &seeds],
    };
    fuzzer
        .env("FLICK_FUZZ_SEEDS", &seeds)
        .arg(format!("-max_total_time={}", asked.seconds))
        .arg(format!("-max_len={INPUT_BYTES_MAX}"))
        .arg(format!("-artifact_prefix={}/", found.display()))
        .args(["-print_final_stats=1", "-verbosity=1"])
        .args(inputs);
    run::run(fuzzer).map_err(|failure| {
        format!(
            "{failure}\nthe text is in {}; run it again with `cargo xtask fuzz {} --replay FILE`, \
             then keep it as a test named after its symptom",
            found.display(),
            asked.target
        )
    })
}

fn parse(args: &[String]) -> Result<Asked, String> {
    let usage = || format!("usage: cargo xtask fuzz {} [--seconds N] [--replay FILE]", TARGETS.join("|"));
    let (target, mut rest) = args.split_first().ok_or_else(usage)?;
    if !TARGETS.contains(&target.as_str()) {
        return Err(usage());
    }
    let mut asked = Asked { target: target.clone(), seconds: SECONDS_DEFAULT, replay: None };
    while let [name, value, others @ ..] = rest {
        match name.as_str() {
            "--seconds" => asked.seconds = value.parse().map_err(|_| usage())?,
            "--replay" => asked.replay = Some(PathBuf::from(value)),
            _ => return Err(usage()),
        }
        rest = others;
    }
    if rest.is_empty() { Ok(asked) } else { Err(usage()) }
}

/// Builds one target with coverage; returns its path.
fn build(target: &str, directory: &Path) -> Result<PathBuf, String> {
    let version = run::output(run::command("rustc", &["-vV"]))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.ok_or("`rustc -vV` does not say what it runs on")?;
    // With `--target` the flags are not for build scripts and macros, which have no fuzzer to report to.
    let mut cargo = run::cargo(&["build", "--quiet", "--release", "--manifest-path", "fuzz/Cargo.toml"]);
    cargo.args(["--bin", target, "--target", host]).arg("--target-dir").arg(directory);
    cargo.env("CARGO_ENCODED_RUSTFLAGS", COVERAGE.join("\u{1f}"));
    run::run(cargo)?;
    Ok(directory.join(host).join("release").join(target))
}

/// Writes every program of the repository into one directory: files, and examples in pages.
fn write_seeds(directory: &Path) -> Outcome {
    for text in files::read_all(&run::root())? {
        let name = text.path.replace('/', "_");
        let programs: Vec<&str> = if text.path.ends_with(".flick") {
            vec![text.text.as_str()]
        } else if text.path.ends_with(".md") {
            blocks(&text.text)
        } else {
            Vec::new()
        };
        for (index, program) in programs.iter().enumerate() {
            let path = directory.join(format!("{name}.{index}"));
            fs::write(&path, program).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        }
    }
    Ok(())
}

/// The programs in a page: what stands between "```flick" and "```".
fn blocks(page: &str) -> Vec<&str> {
    let starts = page.split("```flick").skip(1);
    starts
        .filter_map(|rest| rest.split_once('\n'))
        .filter_map(|(_, body)| body.split_once("```"))
        .map(|(program, _)| program)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{Asked, blocks, parse};

    fn check(args: &[&str], expected: Option<Asked>) {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        assert_eq!(parse(&args).ok(), expected, "{args:?}");
    }

    #[test]
    fn arguments() {
        let asked = |seconds, replay: Option<&str>| Asked {
            target: "text".to_owned(),
            seconds,
            replay: replay.map(Into::into),
        };
        check(&["text"], Some(asked(60, None)));
        check(&["text", "--seconds", "1800"], Some(asked(1800, None)));
        check(&["text", "--replay", "a b"], Some(asked(60, Some("a b"))));
        check(&[], None);
        check(&["tree"], None);
        check(&["text", "--seconds"], None);
        check(&["text", "--seconds", "long"], None);
        check(&["text", "--second", "1"], None);
    }

    #[test]
    fn programs_in_a_page() {
        assert_eq!(
            blocks("a\n```flick\nuse b\n```\n```sh\nc\n```\n```flick\nuse d\n```"),
            ["use b\n", "use d\n"]
        );
        assert!(blocks("```flick").is_empty());
    }
}
