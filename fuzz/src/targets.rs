//! What must hold for any text, and for any bytes from a peer, one function per target.

use std::sync::OnceLock;

use flick_abi::{Engine, Frame, FuncId};
use flick_check::{Severity, hir};
use flick_codegen::{Compiled, Options};
use flick_ir::Interpreter;
use flick_syntax::limits::{ERRORS_MAX, NESTING_DEPTH_MAX};
use flick_syntax::{Parse, SyntaxNode};
use flick_testkit::feed::feed;

use crate::limits::FORMATTED_BYTES_MAX;

/// Nodes that one level of nesting may add; as in the tests of the parser.
const NODES_PER_LEVEL_MAX: usize = 6;

/// What `use` finds: the standard library, by name.
const LIBRARY: &[(&str, &str)] = &[
    ("frames", include_str!("../../stdlib/frames.flick")),
    ("hadoop", include_str!("../../stdlib/hadoop.flick")),
    ("http", include_str!("../../stdlib/http.flick")),
    ("lines", include_str!("../../stdlib/lines.flick")),
    ("memcached_binary", include_str!("../../stdlib/memcached_binary.flick")),
    ("memcached_text", include_str!("../../stdlib/memcached_text.flick")),
    ("pcap", include_str!("../../stdlib/pcap.flick")),
    ("raw", include_str!("../../stdlib/raw.flick")),
    ("resp", include_str!("../../stdlib/resp.flick")),
];

/// Programs whose messages are fuzzed: each of the library's grammars, in both directions.
const SPEAKERS: &[(&str, &str)] = &[
    (
        "frames",
        "use frames\n\nproc P: (frame16/frame32_little client, frame32_little/frame16 backend)\n  client <=> backend\n",
    ),
    ("hadoop", "use hadoop\n\nproc P: (kv/- client, -/kv backend)\n  client => backend\n"),
    (
        "http",
        "use http\n\nproc P: (request/response client, response/request backend)\n  client <=> backend\n",
    ),
    (
        "lines",
        "use lines\n\nproc P: (line/crlf_line client, crlf_line/line backend)\n  client <=> backend\n",
    ),
    (
        "memcached_binary",
        "use memcached_binary\n\nproc P: (cmd/cmd client, cmd/cmd backend)\n  client <=> backend\n",
    ),
    (
        "memcached_text",
        "use memcached_text\n\nproc P: (command/reply client, reply/command backend)\n  client <=> backend\n",
    ),
    (
        "pcap",
        "use pcap\n\nproc P: (record/record client, record/record backend)\n  client <=> backend\n",
    ),
    (
        "raw",
        "use raw\n\nproc P: (raw/raw client, raw/raw backend)\n  client <=> backend\n",
    ),
    (
        "resp",
        "use resp\n\nproc P: (command/reply client, reply/command backend)\n  client <=> backend\n",
    ),
];

/// Text to tree: the tree is the text, errors lie in it, the height is bounded; a text without errors has a layout
/// that has the same tree and is a layout already.
pub fn text(data: &[u8]) {
    let source = String::from_utf8_lossy(data);
    let parse = flick_syntax::parse(&source);
    assert_eq!(parse.syntax().text(), source.as_ref(), "the tree is not the text");
    assert!(parse.errors().len() <= ERRORS_MAX);
    for error in parse.errors() {
        assert!(source.get(error.range.clone()).is_some(), "{error:?} does not lie in the source");
        assert!(!error.title.is_empty() && !error.help.is_empty());
    }
    let height_max = (NESTING_DEPTH_MAX as usize + 4) * NODES_PER_LEVEL_MAX;
    assert!(height(&parse.syntax()) <= height_max, "the tree is too high");
    if parse.errors().is_empty() && source.len() <= FORMATTED_BYTES_MAX {
        layout(&parse);
    }
}

fn layout(before: &Parse) {
    let formatted = flick_syntax::format(before);
    let after = flick_syntax::parse(&formatted);
    assert_eq!(after.errors(), [], "a layout with errors:\n{formatted}");
    assert_eq!(shape(before), shape(&after), "a layout with another tree:\n{formatted}");
    assert_eq!(flick_syntax::format(&after), formatted, "a layout that is none");
}

/// Text to meaning: a program exactly when there is no error; every diagnostic can be shown. Returns the program.
pub fn checker(data: &[u8]) -> Option<hir::Program> {
    let source = String::from_utf8_lossy(data);
    let loader = |name: &str| {
        let known = LIBRARY.iter().find(|(known, _)| *known == name);
        known.map(|(name, text)| (format!("{name}.flick"), (*text).to_owned()))
    };
    let (program, diagnostics, sources) = flick_check::check("fuzz.flick", &source, &loader);
    let has_errors = diagnostics.iter().any(|diagnostic| diagnostic.severity == Severity::Error);
    assert_eq!(program.is_none(), has_errors, "a program and an error, or neither");
    for diagnostic in &diagnostics {
        assert!(!flick_check::render(diagnostic, &sources, false).is_empty());
    }
    program
}

/// Text to code: an accepted program with a process is lowered to code that is well-formed, and reads back as written.
pub fn ir(data: &[u8]) {
    let Some(program) = checker(data).filter(|program| program.process.is_some()) else { return };
    if !flick_lower::crowded(&program).is_empty() {
        return;
    }
    let module = flick_lower::lower(&program);
    // What a rule needs too much of is the author's to change; only the code tells.
    if !flick_ir::bounds::excesses(&module).is_empty() {
        return;
    }
    let errors = flick_ir::verify(&module);
    assert!(errors.is_empty(), "lowering made code that is not well-formed: {}", errors[0]);
    let text = flick_ir::text::print(&module);
    let read = flick_ir::text::parse(&text).unwrap_or_else(|error| panic!("{error:?} in\n{text}"));
    assert_eq!(flick_ir::text::print(&read), text, "code does not read back as written");
}

/// A speaker with both engines.
struct Speaker {
    interpreter: Interpreter,
    compiled: Compiled,
    /// Parsers of its channels.
    parsers: Vec<FuncId>,
}

fn speakers() -> &'static [Speaker] {
    static SPEAKERS_READY: OnceLock<Vec<Speaker>> = OnceLock::new();
    SPEAKERS_READY.get_or_init(|| SPEAKERS.iter().map(|(name, text)| speaker(name, text)).collect())
}

fn speaker(name: &str, text: &str) -> Speaker {
    let program = checker(text.as_bytes()).unwrap_or_else(|| panic!("the speaker of {name} is refused"));
    let module = flick_lower::lower(&program);
    let errors = flick_ir::verify(&module);
    assert!(errors.is_empty(), "{name}: {}", errors[0]);
    let compiled = flick_codegen::compile(&module, &Options::default());
    let compiled = compiled.unwrap_or_else(|error| panic!("{name}: {error}"));
    let views = module.program.channels.iter().filter_map(|channel| channel.view.as_ref());
    let parsers = views.flat_map(|view| [view.parse_request, view.parse_reply, view.parse_asked]).collect();
    Speaker { interpreter: Interpreter::new(module), compiled, parsers }
}

/// Bytes to messages: the first four bytes choose a grammar, a parser, what was asked and where to cut; both engines say the same of
/// the rest, and the same when it comes in two pieces.
pub fn messages(data: &[u8]) {
    let [grammar, parser, asked, cut, rest @ ..] = data else { return };
    let speakers = speakers();
    let speaker = &speakers[usize::from(*grammar) % speakers.len()];
    let parser = speaker.parsers[usize::from(*parser) % speaker.parsers.len()];
    let asked = u64::from(*asked) % 4;
    let both = |frame: &mut Frame, have: &[u8]| {
        let mut other = frame.clone();
        let step = speaker.compiled.parse(parser, frame, have);
        assert_eq!(step, speaker.interpreter.parse(parser, &mut other, have), "the engines differ");
        assert_eq!(frame.slots, other.slots, "the engines' frames differ");
        step
    };
    let whole = feed(both, rest, asked, &[rest.len()]).0;
    let cut = usize::from(*cut).min(rest.len());
    assert_eq!(feed(both, rest, asked, &[cut, rest.len()]).0, whole, "cut at {cut}");
}

fn height(root: &SyntaxNode) -> usize {
    let mut deepest = 0;
    let mut open = vec![(root.clone(), 1)];
    while let Some((node, depth)) = open.pop() {
        deepest = deepest.max(depth);
        open.extend(node.children().map(|child| (child, depth + 1)));
    }
    deepest
}

/// The tree without white space and comments, one node or token to a line.
fn shape(parse: &Parse) -> Vec<String> {
    let elements = parse.syntax().descendants_with_tokens();
    let solid = elements.filter(|element| !element.kind().is_trivia());
    solid
        .map(|element| match element.into_token() {
            Some(token) => format!("{:?} {}", token.kind(), token.text()),
            None => "(".to_owned(),
        })
        .collect()
}
