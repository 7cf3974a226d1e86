//! `cargo xtask fuzz TARGET`: looks for texts that break the compiler and for bytes that the engines read differently,
//! with libFuzzer on the stable toolchain.
//! Promises: seeds are every program of the repository; the corpus stays in `target/fuzz`, so that the next run
//! continues where this one ended; a failing input is kept there, and the command that runs it again is printed.
//! `--keep` writes the smallest set of inputs with the corpus's coverage to `crates/flick-fuzz/corpus`, which the tests
//! run.
//! Not here: what must hold for a text (`fuzz/src/targets.rs`).

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::run::{self, Outcome};
use crate::tidy::files;

const TARGETS: &[&str] = &["text", "checker", "ir", "programs", "messages", "rewritten"];
const SECONDS_DEFAULT: u64 = 60;
/// Longest time for one text: thousands of times what the slowest of this length takes.
const INPUT_SECONDS_MAX: u32 = 10;
/// Most memory, in MiB; the parser needs about a hundred bytes for a byte of source.
const MEMORY_MIB_MAX: u32 = 1024;
/// Longest text. Longer ones are for the tests of the parser.
const TEXT_BYTES_MAX: u32 = 16 * 1024;
/// Longest message: long enough for a list with all elements it may have (256 of four bytes each). With inputs of 16
/// KiB, libFuzzer runs a twentieth as many in the same time.
const MESSAGE_BYTES_MAX: u32 = 1024;

/// Compiler flags that make code count the edges it takes. Comparisons are not traced: that takes half of the time of
/// an input, nearly all of it for comparisons inside the engines. The values that programs compare with are in the
/// dictionary.
const COVERAGE: &[&str] = &[
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=3",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
];
/// Environment variable with the prefixes of the crates whose edges are counted: all that read a text, or those that
/// read messages. The edges of other crates do not guide the fuzzer, and reading their counters takes as long as an
/// input.
const COUNTED: &str = "FLICK_FUZZ_COUNTED";
const COUNTED_OF_TEXTS: &str = "flick_";
const COUNTED_OF_MESSAGES: &str = "flick_ir,flick_fuzz";
/// Longest input that is kept for the tests, in bytes.
const KEPT_BYTES_MAX: usize = 256;
/// Longest word of the dictionary, in bytes.
const WORD_BYTES_MAX: usize = 64;

/// The arguments.
#[derive(Debug, PartialEq, Eq)]
struct Request {
    target: String,
    seconds: u64,
    replay: Option<PathBuf>,
    keep: bool,
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
    // Programs are not messages: the seeds would not help.
    let (inputs, bytes_max) = match speaks(&asked.target) {
        true => (vec![&corpus], MESSAGE_BYTES_MAX),
        false => (vec![&corpus, &seeds], TEXT_BYTES_MAX),
    };
    if asked.keep {
        return keep(fuzzer, &asked.target, &inputs, &home);
    }
    let dictionary = home.join("dictionary");
    write_dictionary(&dictionary)?;
    fuzzer
        .env("FLICK_FUZZ_SEEDS", &seeds)
        .arg(format!("-dict={}", dictionary.display()))
        .arg(format!("-max_total_time={}", asked.seconds))
        .arg(format!("-max_len={bytes_max}"))
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

/// Writes the smallest set of inputs with the corpus's coverage to the directory that the tests run, one input per
/// line.
fn keep(mut fuzzer: Command, target: &str, inputs: &[&PathBuf], home: &Path) -> Outcome {
    let least = home.join(target).join("least");
    let _ = fs::remove_dir_all(&least);
    fs::create_dir_all(&least).map_err(|error| format!("cannot make {}: {error}", least.display()))?;
    fuzzer.env("FLICK_FUZZ_SEEDS", home.join("seeds"));
    fuzzer.args(["-merge=1", &format!("-max_len={KEPT_BYTES_MAX}")]).arg(&least).args(inputs);
    run::run(fuzzer)?;
    let failed = |error: std::io::Error| format!("cannot read {}: {error}", least.display());
    let mut lines = BTreeSet::new();
    for entry in fs::read_dir(&least).map_err(failed)? {
        let bytes = fs::read(entry.map_err(failed)?.path()).map_err(failed)?;
        if bytes.len() <= KEPT_BYTES_MAX {
            lines.insert(format!("{}\n", bytes.escape_ascii()));
        }
    }
    let path = run::root().join(format!("crates/flick-fuzz/corpus/{target}.txt"));
    println!("{} inputs in {}", lines.len(), path.display());
    fs::write(&path, lines.into_iter().collect::<String>())
        .map_err(|error| format!("cannot write {}: {error}", path.display()))
}

fn parse(args: &[String]) -> Result<Request, String> {
    let usage =
        || format!("usage: cargo xtask fuzz {} [--seconds N] [--replay FILE] [--keep]", TARGETS.join("|"));
    let (target, mut rest) = args.split_first().ok_or_else(usage)?;
    if !TARGETS.contains(&target.as_str()) {
        return Err(usage());
    }
    let mut asked = Request { target: target.clone(), seconds: SECONDS_DEFAULT, replay: None, keep: false };
    if let ["--keep"] = rest.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        (asked.keep, rest) = (true, &[]);
    }
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

/// Whether the inputs of this target are messages.
fn speaks(target: &str) -> bool {
    matches!(target, "messages" | "rewritten")
}

/// Builds one target with coverage; returns its path.
fn build(target: &str, directory: &Path) -> Result<PathBuf, String> {
    let version = run::output(run::command("rustc", &["-vV"]))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.ok_or("`rustc -vV` does not say what it runs on")?;
    let (kind, counted) =
        if speaks(target) { ("messages", COUNTED_OF_MESSAGES) } else { ("texts", COUNTED_OF_TEXTS) };
    let directory = directory.join(kind);
    let this = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    // With `--target` the flags are not for build scripts and macros, which have no fuzzer to report to.
    let mut cargo = run::cargo(&["build", "--quiet", "--release", "--manifest-path", "fuzz/Cargo.toml"]);
    cargo.args(["--bin", target, "--target", host]).arg("--target-dir").arg(&directory);
    cargo
        .env("CARGO_ENCODED_RUSTFLAGS", "--cfg\u{1f}fuzzing")
        .env("RUSTC_WRAPPER", this)
        .env(COUNTED, counted);
    run::run(cargo)?;
    Ok(directory.join(host).join("release").join(target))
}

/// Runs the compiler, if cargo called this program as its wrapper ([`COUNTED`] is set). Counted crates get the flags of
/// [`COVERAGE`]; cargo has no way to pass flags for some crates only.
pub fn as_compiler() -> Option<ExitCode> {
    let counted = std::env::var(COUNTED).ok()?;
    let mut args = std::env::args_os().skip(1);
    let mut compiler = Command::new(args.next()?);
    let args: Vec<OsString> = args.collect();
    let name = args.windows(2).find(|pair| pair[0] == "--crate-name").map(|pair| pair[1].to_string_lossy());
    let is_counted = name.is_some_and(|name| counted.split(',').any(|start| name.starts_with(start)));
    compiler.args(&args).args(if is_counted { COVERAGE } else { &[] });
    match compiler.status() {
        Ok(status) if status.success() => Some(ExitCode::SUCCESS),
        Ok(_) => Some(ExitCode::FAILURE),
        Err(error) => {
            eprintln!("error: cannot start the compiler: {error}");
            Some(ExitCode::FAILURE)
        }
    }
}

/// Writes the strings of all programs as a dictionary of libFuzzer.
fn write_dictionary(path: &Path) -> Outcome {
    let texts = files::read_all(&run::root())?;
    let programs = texts.iter().filter(|text| text.path.ends_with(".flick"));
    let words: BTreeSet<Vec<u8>> = programs.flat_map(|program| words(&program.text)).collect();
    let quoted = words.iter().map(|word| {
        let bytes: String = word.iter().map(|byte| format!("\\x{byte:02x}")).collect();
        format!("\"{bytes}\"\n")
    });
    fs::write(path, quoted.collect::<String>())
        .map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// The texts between quotation marks of a program, none longer than its line.
fn words(program: &str) -> Vec<Vec<u8>> {
    let quoted = program.lines().flat_map(|line| line.split('"').skip(1).step_by(2));
    quoted.filter_map(unescaped).filter(|word| (1..=WORD_BYTES_MAX).contains(&word.len())).collect()
}

/// The bytes of a string literal; `None` if it is too long or complex for a dictionary.
fn unescaped(text: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut rest) = (Vec::new(), text);
    while let Some((plain, escaped)) = rest.split_once('\\') {
        bytes.extend(plain.as_bytes());
        let (byte, len) = match escaped.as_bytes().first()? {
            b'r' => (b'\r', 1),
            b'n' => (b'\n', 1),
            b't' => (b'\t', 1),
            b'0' => (0, 1),
            b'\\' => (b'\\', 1),
            b'x' => (u8::from_str_radix(escaped.get(1..3)?, 16).ok()?, 3),
            _ => return None,
        };
        bytes.push(byte);
        rest = &escaped[len..];
    }
    bytes.extend(rest.as_bytes());
    Some(bytes)
}

/// Writes every program of the repository into one directory: files, and examples in Markdown.
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

/// The programs in a page: the blocks between "```flick" and "```".
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
    use super::{Request, blocks, parse, words};

    fn check(args: &[&str], expected: Option<Request>) {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        assert_eq!(parse(&args).ok(), expected, "{args:?}");
    }

    #[test]
    fn arguments() {
        let asked = |seconds, replay: Option<&str>| Request {
            target: "text".to_owned(),
            seconds,
            replay: replay.map(Into::into),
            keep: false,
        };
        check(&["text"], Some(asked(60, None)));
        check(&["text", "--seconds", "1800"], Some(asked(1800, None)));
        check(&["text", "--replay", "a b"], Some(asked(60, Some("a b"))));
        check(&["text", "--keep"], Some(Request { keep: true, ..asked(60, None) }));
        check(&["text", "--keep", "1"], None);
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

    #[test]
    fn words_of_a_program() {
        let program = "a = \"GET\" # b\nc: \"\\x80\\r\\n\", \"\"\n%busy \"d\\\\\"";
        assert_eq!(words(program), [&b"GET"[..], b"\x80\r\n", b"d\\"]);
        assert!(words("no quotation").is_empty());
        assert!(words("\"\\q\"").is_empty(), "not known");
    }
}
