//! The work that messages cause, and what is announced of it. The interpreter stops a test whose call takes more steps
//! than its certificate says.

use std::path::Path;

use flick_abi::{Frame, ParseStep};
use flick_compiler::{EngineKind, Input, MESSAGE_WORK_MAX, compile, hottest_line};
use flick_ir::Interpreter;

use crate::source;

/// Most steps that the head of a request or response of HTTP may take.
const HTTP_HEAD_STEPS_MAX: u64 = 200_000;

/// A proxy that decodes what the examples do.
const PROXY: &str = "use http\n\nproc P: (request/response client, [response/request] backends)\n  | backends => client\n  | client => send(backends)\n\nfun send: ([-/request] backends, req: request) -> ()\n  req => backends[hash(req.path) mod len(backends)]\n";

/// Heads that make a parser work: fields, tokens of lists, and blanks as many and as long as they may be.
fn hostile_heads() -> Vec<Vec<u8>> {
    let line = "GET / HTTP/1.1\r\nHost: a\r\n";
    let many = |field: &str, times: usize| format!("{line}{}\r\n", field.repeat(times));
    let connection = |list: &str, bytes: usize, times: usize| {
        many(&format!("Connection: {}\r\n", list.repeat(bytes / list.len())), times)
    };
    let heads = [
        many("a:\r\n", 99),
        many("a:b\r\nConnection: close\r\n", 4),
        many(&format!("{}: {}\r\n", "n".repeat(250), "v".repeat(1000)), 12),
        many(&format!("x: {}\r\n", " ".repeat(8000)), 2),
        connection(",", 8000, 1),
        connection(",", 3900, 4),
        connection("close,", 3900, 4),
        connection("clos,", 8000, 2),
        connection("x-a,", 120, 4),
        connection(" ", 8000, 2),
        many("Content-Length: 5\r\n", 2),
        many(&format!("Host: {}\r\n", "b".repeat(8000)), 1),
        format!("CONNECT {} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(7900)),
        format!("GET {} HTTP/1.1\r\nHost: a\r\n\r\n", "/".repeat(7900)),
        format!("GET /{}", "x".repeat(16_000)),
    ];
    heads.into_iter().map(String::into_bytes).collect()
}

#[test]
fn hostile_heads_of_http_take_no_more_steps_than_announced() {
    let module = source::lower(PROXY, source::library());
    let (requests, steps_max) = {
        let view = module.program.channels[0].view.as_ref().expect("the client sends");
        let bounds = flick_ir::bounds::bounds(&module);
        (view.parse_request, bounds[view.parse_request.0 as usize].all_steps())
    };
    assert!(steps_max <= HTTP_HEAD_STEPS_MAX, "{steps_max} steps");
    let engine = Interpreter::new(module);
    let mut most = 0;
    for head in hostile_heads() {
        // Whole, and as it comes in pieces.
        for pieces in [1, 7, 500] {
            let mut frame = Frame::new();
            frame.restart();
            for piece in 1..=pieces {
                let have = head.len() * piece / pieces;
                let (step, steps) = engine.parse_counted(requests, &mut frame, &head[..have]);
                most = most.max(steps);
                if !matches!(step, ParseStep::NeedMore(_)) {
                    break;
                }
            }
        }
    }
    // What is announced is not far from what some head takes.
    assert!(most * 16 > steps_max, "{most} of {steps_max} steps");
}

#[test]
fn replies_of_http_are_parsed_in_no_more_steps_than_a_head_has() {
    let module = source::lower(PROXY, source::library());
    let view = module.program.channels[1].view.as_ref().expect("backends send");
    let steps = flick_ir::bounds::bounds(&module)[view.parse_reply.0 as usize].all_steps();
    assert!(steps <= HTTP_HEAD_STEPS_MAX, "{steps} steps");
}

#[test]
fn examples_and_their_hottest_lines_are_within_the_default_budget() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut count = 0;
    for folder in std::fs::read_dir(examples).unwrap() {
        let folder = folder.unwrap().path();
        let files = if folder.is_dir() { std::fs::read_dir(folder).unwrap().collect() } else { Vec::new() };
        for file in files.into_iter().map(|file| file.unwrap().path()) {
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            if file.extension().is_none_or(|extension| extension != "flick") || !text.contains("\nproc ") {
                continue;
            }
            let compiled = compile(&Input::file(&file).unwrap(), EngineKind::Interpreter);
            let within = compiled.and_then(|compiled| compiled.within(MESSAGE_WORK_MAX));
            let within = within.unwrap_or_else(|failure| panic!("{}: {failure}", file.display()));
            for module in within.executables.iter().map(|executable| &executable.module) {
                let most = module.program.bounds.steps_per_message_max;
                let hot = hottest_line(module, &within.sources).expect("some line does something");
                assert!(hot.steps <= most, "{}: {} of {most} steps", file.display(), hot.steps);
            }
            count += 1;
        }
    }
    assert!(count > 20, "{count} programs");
}

/// Steps for one message of a program that runs `body` for each of `rounds` numbers.
fn steps_of(rounds: u32, body: &str) -> u64 {
    let text = format!(
        "use memcached_binary\n\ntype cmd: record\n  key : string<250>\n\nglobal seen: dict<string<250>, int> max 1000 entries\n\nproc P: (cmd/cmd client, [cmd/cmd] backends)\n  | backends => client\n  | client => pick(backends)\n\nfun pick: ([-/cmd] backends, req: cmd) -> ()\n  let n = fold i in 0..{rounds}, n = 0: n + {body}\n  req => backends[n mod len(backends)]\n"
    );
    source::lower(&text, source::library()).program.bounds.steps_per_message_max
}

#[test]
fn one_more_round_of_contains_is_not_a_thousand_times_the_work() {
    let body = "(if contains(req.key, \"abc\"): 1 else: 0)";
    let (forty, one_more) = (steps_of(40, body), steps_of(41, body));
    assert!(forty < one_more && one_more - forty < forty / 20, "{forty} steps, then {one_more}");
}

#[test]
fn built_ins_are_charged_by_what_they_do() {
    let nothing = steps_of(100, "1");
    let each = |body: &str| (steps_of(100, body) - nothing) / 100;
    let update = each("(update seen[req.key] from old: (old else 0) + 1)");
    let (contains, table) =
        (each("(if contains(req.key, \"abc\"): 1 else: 0)"), each("ketama(backends, req.key)"));
    let (choices, all) = (each("two_choices(backends)"), each("rendezvous(backends, req.key)"));
    // What is searched for may begin at every position, and each is compared.
    let longer =
        |bytes: usize| each(&format!("(if contains(req.key, \"{}\"): 1 else: 0)", "z".repeat(bytes)));
    assert!(longer(2) * 3 < contains && contains * 2 < longer(32) && longer(32) < longer(200));
    // Eight attempts, each with a look-up and a write.
    assert!(update > 8 * 768 && update < 8 * 1000, "{update}");
    assert!(contains > 500 && contains < 700, "{contains}");
    assert!(table < choices && choices < all && all > 1024 * 8, "{table} {choices} {all}");
}
