//! Mutated programs and random texts: errors are reported at the change, and nothing panics.
//! Promises: the seeds are fixed and part of every message, so that a failure repeats.

use flick_check::Severity;
use proptest::prelude::*;

use crate::support::{assert_known, check, read};

/// Mutations of each example.
const MUTATIONS: u64 = 1_000;
/// Minimum percentage of rejected mutations that are reported on the changed line.
const ON_LINE_PERCENT_MIN: usize = 95;
/// Replacements of a token, besides the other tokens of the same text.
const STRAY_TOKENS: &[&str] = &[
    "(", ")", "[", "]", "{", "}", ":", ",", ";", "=>", "->", "=", "==", "<", "+", "-", "/", "mod", "if",
    "let", "0", "7", "\"x\"", "true", "cmd", "key", "client", "zzz", "string", "uint8", "%", "&", "self",
    "$$", "else", "|", ".", "proc",
];

/// The splitmix64 generator.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % below.max(1) as u64) as usize
    }
}

/// The ranges of the tokens of a text: words, numbers, strings and operators, without comments and white space.
fn tokens(text: &str) -> Vec<std::ops::Range<usize>> {
    let bytes = text.as_bytes();
    let mut out = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        match bytes[at] {
            b'#' => at += text[at..].find('\n').unwrap_or(text.len() - at),
            byte if byte.is_ascii_whitespace() => at += 1,
            byte if is_word(byte) => {
                at += bytes[at..].iter().take_while(|byte| is_word(**byte)).count();
                out.push(start..at);
            }
            b'"' => {
                at += 1 + text[at + 1..].find('"').map_or(text.len() - at - 1, |end| end + 1);
                out.push(start..at);
            }
            _ => {
                let pair = text.get(at..at + 2).unwrap_or_default();
                at += if ["=>", "->", "==", "!=", "<=", ">=", "$$"].contains(&pair) { 2 } else { 1 };
                out.push(start..at);
            }
        }
    }
    out
}

/// Removes, doubles, replaces or swaps one token. Returns the text and the range of the change.
fn mutate(text: &str, seed: u64) -> (String, std::ops::Range<usize>) {
    let mut numbers = Numbers(seed);
    let tokens = tokens(text);
    let index = numbers.next(tokens.len());
    let token = tokens[index].clone();
    let (before, own, after) = (&text[..token.start], &text[token.clone()], &text[token.end..]);
    let new = match numbers.next(4) {
        0 => String::new(),
        1 => format!("{own} {own}"),
        2 => STRAY_TOKENS[numbers.next(STRAY_TOKENS.len())].to_owned(),
        _ => text[tokens[numbers.next(tokens.len())].clone()].to_owned(),
    };
    (format!("{before}{new}{after}"), token.start..token.start + new.len())
}

fn lines_of(text: &str, range: &std::ops::Range<usize>) -> std::ops::RangeInclusive<usize> {
    let line =
        |at: usize| text.as_bytes()[..at.min(text.len())].iter().filter(|byte| **byte == b'\n').count();
    line(range.start)..=line(range.end.max(range.start))
}

/// The same for grammars with conditions of many lines, where a missing bracket is found later.
const ON_LINE_PERCENT_MIN_OF_LONG: usize = 80;

/// Checks `MUTATIONS` mutations of one text.
fn check_mutations(path: &str, on_line_percent_min: usize) {
    let original = read(path);
    let (mut rejected, mut on_line) = (0usize, 0usize);
    let mut other_lines = Vec::new();
    for seed in 0..MUTATIONS {
        let (text, location) = mutate(&original, seed);
        let (program, diagnostics, sources) = check(path, &text);
        program.iter().for_each(assert_known);
        diagnostics.iter().for_each(|found| {
            flick_check::render(found, &sources, false);
        });
        let errors: Vec<_> = diagnostics.iter().filter(|found| found.severity == Severity::Error).collect();
        if errors.is_empty() {
            continue;
        }
        rejected += 1;
        let changed = lines_of(&text, &location);
        let overlaps = |found: &flick_check::hir::Span| {
            let lines = lines_of(&text, &(found.range.start as usize..found.range.end as usize));
            found.file == 0 && lines.start() <= changed.end() && changed.start() <= lines.end()
        };
        let hits = errors
            .iter()
            .any(|found| overlaps(&found.span) || found.labels.iter().any(|label| overlaps(&label.span)));
        if hits {
            on_line += 1;
        } else {
            let first = errors[0];
            let (line, _) = sources.line_column(first.span.file, first.span.range.start);
            other_lines.push(format!(
                "seed {seed}: changed line {}, reported {line}: {}",
                changed.start() + 1,
                first.title
            ));
        }
    }
    println!("{path}: {rejected} rejected, {on_line} on the changed line\n{}", other_lines.join("\n"));
    assert!(rejected > 0, "{path}: no mutation was rejected");
    assert!(
        on_line * 100 >= rejected * on_line_percent_min,
        "{path}: {on_line} of {rejected} on the changed line\n{}",
        other_lines.join("\n")
    );
}

#[test]
fn mutated_memcached_proxy_is_reported_on_the_changed_line() {
    check_mutations("examples/memcached_proxy/memcached_proxy.flick", ON_LINE_PERCENT_MIN);
}

#[test]
fn mutated_http_grammar_is_mostly_reported_on_the_changed_line() {
    check_mutations("stdlib/http.flick", ON_LINE_PERCENT_MIN_OF_LONG);
}

#[test]
fn mutated_redis_grammar_is_mostly_reported_on_the_changed_line() {
    check_mutations("stdlib/resp.flick", ON_LINE_PERCENT_MIN_OF_LONG);
}

#[test]
fn mutated_structured_messages_are_reported_on_the_changed_line() {
    check_mutations("tests/golden/ok/structured_request.flick", ON_LINE_PERCENT_MIN);
}

#[test]
fn mutated_memcached_grammar_is_reported_on_the_changed_line() {
    check_mutations("stdlib/memcached_binary.flick", ON_LINE_PERCENT_MIN);
}

#[test]
fn mutated_longer_program_is_reported_on_the_changed_line() {
    check_mutations("tests/golden/ok/switch_on_everything.flick", ON_LINE_PERCENT_MIN);
    check_mutations("tests/golden/ok/enums.flick", ON_LINE_PERCENT_MIN);
}

#[test]
fn mutated_values_are_reported_on_the_changed_line() {
    check_mutations("tests/golden/ok/values.flick", ON_LINE_PERCENT_MIN);
    check_mutations("tests/golden/ok/list_values.flick", ON_LINE_PERCENT_MIN);
}

#[test]
fn mutated_options_and_times_are_reported_on_the_changed_line() {
    check_mutations("tests/golden/ok/options.flick", ON_LINE_PERCENT_MIN);
    check_mutations("tests/golden/ok/times.flick", ON_LINE_PERCENT_MIN);
}

/// Checks a text for the one thing that holds of every text: it is a program, or something is said.
fn check_any(text: &str) {
    let (program, diagnostics, sources) = check("random.flick", text);
    let has_errors = diagnostics.iter().any(|found| found.severity == Severity::Error);
    assert_eq!(program.is_none(), has_errors, "{text:?}");
    program.iter().for_each(assert_known);
    for found in &diagnostics {
        assert!(flick_check::render(found, &sources, true).contains(found.code), "{text:?}");
    }
}

/// A text made of the words of the language, which gets further than random letters.
fn wordy() -> impl Strategy<Value = String> {
    let words: Vec<&'static str> = vec![
        "use memcached_binary\n",
        "type ",
        "cmd",
        ": record\n  ",
        "key",
        " : ",
        "string",
        "<",
        "250",
        ">",
        "\n",
        "  ",
        "\n  ",
        "proc P: (",
        "cmd/cmd client",
        ", ",
        "[cmd/cmd] backends",
        ")\n  | ",
        "client",
        " => ",
        "backends",
        "[",
        "]",
        "(",
        ")",
        "fun f: (",
        "req: cmd",
        ") -> (",
        "int",
        ")\n  ",
        "let x = ",
        "hash",
        "len",
        "fold x in ",
        "map x in ",
        "filter x in ",
        "for x in ",
        ", acc = ",
        "0..9",
        "none",
        "some(",
        " else ",
        "option<",
        "type v: variant\n  a : int\n  b\n",
        "v.a(1)",
        "switch ",
        "a y: ",
        "5ms",
        "now()",
        "[..2]",
        ".0",
        "split(",
        "req.key",
        " mod ",
        " with ",
        " = ",
        "unit {",
        "};\n",
        "%byteorder = big;",
        "uint16",
        "uint8",
        "enum uint8 { a = 1, b }",
        ";",
        "&length = ",
        "&requires = ",
        "self.",
        "var v : uint8 &parse = ",
        "$$",
        "if ",
        ":",
        "else: ",
        "switch ",
        "map ",
        " in {",
        "}",
        "1",
        "\"s\"",
        "-",
        " + ",
        " and ",
        "not ",
        "%on timeout = ",
        "cmd{",
        "%echo = ",
        "%loud self.a = ",
        "&serialize = self.a = ",
        "true",
        "...",
        "local x := 1",
    ];
    proptest::collection::vec(proptest::sample::select(words), 0..60).prop_map(|words| words.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_terminates_with_a_result(text in "\\PC{0,200}") {
        check_any(&text);
    }

    #[test]
    fn any_text_of_keywords_terminates_with_a_result(text in wordy()) {
        check_any(&text);
    }
}
