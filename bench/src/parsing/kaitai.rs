//! The parsers that Kaitai Struct generates, on the same messages: its output in Java, which is the one whose runtime
//! library is in a registry. Compiler and runtime are fetched when the benchmark runs: it needs npm, Maven and a JDK.
//! Promises: both sides read every message whole, check the same lengths, and are timed alternately, in whole
//! processes.
//! Not here: formats that Kaitai cannot express, and the rules beyond lengths that the library's grammars also check.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Compiled, Parser, batch, median, memcached};
use crate::cli::KaitaiArgs;
use crate::page;
use crate::process::ScratchDir;

/// Files of the Kaitai Struct side, written to the scratch directory: the generator script, the grammars and the Java
/// program that measures them.
const FILES: [(&str, &str); 4] = [
    ("generate.js", include_str!("../../rivals/kaitai/generate.js")),
    ("memcached_binary.ksy", include_str!("../../rivals/kaitai/memcached_binary.ksy")),
    ("pcap_record.ksy", include_str!("../../rivals/kaitai/pcap_record.ksy")),
    ("Measure.java", include_str!("../../rivals/kaitai/Measure.java")),
];
/// Versions of its compiler and runtime.
const COMPILER: &str = "kaitai-struct-compiler@0.11.0";
const YAML: &str = "js-yaml@4.1.0";
const RUNTIME: &str = "io.kaitai:kaitai-struct-runtime:0.11";
/// Batches of one round.
const BATCHES: usize = 10;

/// Measures both sides and prints a table.
pub(crate) fn run(args: &KaitaiArgs) -> Result<(), String> {
    let scratch = ScratchDir::new("kaitai").map_err(|error| error.to_string())?;
    generate(&scratch.0)?;
    let memcached = Compiled::new(
        "memcached_proxy",
        include_str!("../../../examples/memcached_proxy/memcached_proxy.flick"),
        false,
    )?;
    let pcap = Compiled::new(
        "packet_counter",
        include_str!("../../../examples/packet_counter/packet_counter.flick"),
        false,
    )?;
    let sides = [
        ("memcached_binary", memcached.requests()?, memcached::requests()),
        ("pcap_record", pcap.requests()?, records()),
    ];
    let mut table =
        String::from("| messages | flick, ns | rival | rival, ns | times as fast |\n|---|--:|---|--:|--:|\n");
    for (grammar, parser, messages) in sides {
        let theirs = theirs(&scratch.0, grammar, args.batches.rounds, &messages)?;
        for ((name, message), theirs) in messages.iter().zip(theirs) {
            let ours = ours(parser, args.batches.rounds, message);
            let _ = writeln!(
                table,
                "| {grammar}, {name}, {} bytes | {ours:.1} | Kaitai, Java | {theirs:.1} | {:.2} |",
                message.len(),
                theirs / ours
            );
        }
    }
    println!("{table}");
    if let Some(results) = &args.batches.results {
        let text = format!(
            "# Parsers of grammars beside Kaitai Struct's\n\n{COMPILER} (Java), {RUNTIME}, {}; median over rounds of the \
             best batch, in nanoseconds per message; see METHOD.md.\n\nOf Kaitai's other outputs: no crate holds the \
             runtime library for Rust (the crate `kaitai` is an unrelated macro with a runtime of its own), and Debian \
             has none for C++; those for Python and JavaScript were not tried. Kaitai reads and copies every field; flick \
             decodes what the program reads, and checks memcached's shapes of requests besides.\n\n{table}",
            java_version()
        );
        page::write(results, "kaitai.md", &text).map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn ours(parser: Parser<'_>, rounds: u32, message: &[u8]) -> f64 {
    assert_eq!(parser.repeat(message, 1), message.len() as u64, "a message is whole");
    let round =
        |_| (0..BATCHES).map(|_| batch(&|calls| parser.repeat(message, calls))).fold(f64::INFINITY, f64::min);
    median((0..rounds).map(round).collect())
}

/// Times the other side on `messages`.
fn theirs(
    dir: &Path,
    grammar: &str,
    rounds: u32,
    messages: &[(&'static str, Vec<u8>)],
) -> Result<Vec<f64>, String> {
    let mut command = Command::new("java");
    command.args(["-cp", &class_path(), "Measure", grammar, &rounds.to_string()]);
    for (at, (_, message)) in messages.iter().enumerate() {
        let path = dir.join(format!("{grammar}-{at}"));
        fs::write(&path, message).map_err(|error| error.to_string())?;
        command.arg(path);
    }
    let printed = output_of(dir, command)?;
    let times: Vec<f64> = printed.lines().filter_map(|line| line.parse().ok()).collect();
    if times.len() == messages.len() { Ok(times) } else { Err(format!("java printed {printed:?}")) }
}

/// Fetches compiler and runtime, generates the classes and compiles them.
fn generate(dir: &Path) -> Result<(), String> {
    for (name, text) in FILES {
        fs::write(dir.join(name), text).map_err(|error| error.to_string())?;
    }
    let run = |program: &str, args: &[&str]| {
        let mut command = Command::new(program);
        command.args(args);
        output_of(dir, command)
    };
    run("npm", &["install", "--no-audit", "--no-fund", "--prefix", ".", COMPILER, YAML])?;
    run("node", &["generate.js", "."])?;
    let (fetch, copy) =
        (format!("-Dartifact={RUNTIME}"), ["-DoutputDirectory=.", "-Dmdep.stripVersion=true"]);
    run("mvn", &["-q", "dependency:get", &fetch])?;
    run("mvn", &["-q", "dependency:copy", &fetch, copy[0], copy[1]])?;
    run("javac", &["-cp", &class_path(), "Measure.java"])?;
    Ok(())
}

fn class_path() -> String {
    ".:kaitai-struct-runtime.jar".to_owned()
}

/// Runs a command in `dir` and returns its standard output.
fn output_of(dir: &Path, mut command: Command) -> Result<String, String> {
    let name = PathBuf::from(command.get_program());
    let output = command.current_dir(dir).output();
    let output = output.map_err(|error| format!("{}: {error}", name.display()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("{}: {}", name.display(), String::from_utf8_lossy(&output.stderr)))
}

fn java_version() -> String {
    let output =
        Command::new("java").arg("-version").output().map(|output| output.stderr).unwrap_or_default();
    String::from_utf8_lossy(&output).lines().next().unwrap_or("Java").to_owned()
}

/// Packets as short as they get, and as long as a wire's frames are.
fn records() -> Vec<(&'static str, Vec<u8>)> {
    let record = |bytes: u32| {
        let mut record = Vec::new();
        for word in [1_700_000_000, 123_456, bytes, bytes] {
            record.extend(u32::to_le_bytes(word));
        }
        record.resize(record.len() + bytes as usize, 0x55);
        record
    };
    vec![("a short packet", record(60)), ("a long packet", record(1_460))]
}
