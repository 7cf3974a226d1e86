//! The time of a step for each kind of work: the calibration of `flick_ir::weights`.
//! Promises: steps are counted by the interpreter on the message that is timed in machine code.
//! Not here: calls of the platform that need one (picks); what sending costs, whose steps are left out; what the kernel
//! does with a message; dictionaries that no cache holds (`worst_message.rs`).

use std::fmt::Write as _;
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use flick_abi::limits::{OUT_BYTES_MAX, SPILL_WORDS_MAX};
use flick_abi::{AskList, Engine, Frame, FuncId, Host, Policy, RuleAction, RuleCall, SendList};
use flick_codegen::Options;
use flick_compiler::{Input, generate};
use flick_dict::{DictConfig, Dictionary, Seed};
use flick_ir::Interpreter;
use flick_ir::weights::{SEND_STEPS, STEPS_PER_US};

use super::{FRAME, message};

/// Time of one batch.
const BATCH_NS: f64 = 2e6;
/// Batches of which the best counts.
const BATCHES: usize = 20;

/// The work of a row: a function of a message, or the head of a request.
enum Work {
    /// An expression over `req`, and the bytes of which the value is made.
    Rule(&'static str, &'static str),
    /// A head of HTTP: its target and fields.
    Head(&'static str, usize),
}

/// Kinds of work. Where an input could be slow, it is the slowest that is known.
const KINDS: &[(&str, Work)] = &[
    ("arithmetic", Work::Rule("fold i in 0..255, n = 7: (n * 31 + i) mod 1000003", "")),
    (
        "branches",
        Work::Rule("fold i in 0..255, n = 0: if n > i * 3: n - i else: (if i > 9: n + 2 else: n + 1)", ""),
    ),
    ("bytes, one by one", Work::Rule("fold i in 0..len(req.key), n = 7: n + (req.key[i] else 0)", "")),
    (
        "comparison with constants",
        Work::Rule("if req.key in [\"get\", \"set\", \"delete\", \"add\"]: 1 else: 2", ""),
    ),
    ("hash, 1000 bytes", Work::Rule("hash(req.value) mod 16", "a")),
    // Texts of which every position may be the one, by the bytes that a search looks for first.
    ("contains, 3 bytes", Work::Rule("if contains(text(req.value), \"zze\"): 1 else: 0", "z")),
    ("find, 8 bytes", Work::Rule("find(text(req.value), \"zzzzzzze\") else 0", "z")),
    ("find, 32 bytes", Work::Rule("find(text(req.value), \"zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzze\") else 0", "z")),
    (
        "find, 64 bytes",
        Work::Rule(
            "find(text(req.value), \"zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzze\") else 0",
            "z",
        ),
    ),
    ("find, a byte", Work::Rule("find(text(req.value), \"e\") else 0", "z")),
    ("has_token, commas", Work::Rule("if has_token(text(req.value), \"close\"): 1 else: 0", ",")),
    ("has_token, tokens", Work::Rule("if has_token(text(req.value), \"close\"): 1 else: 0", "closx, ")),
    ("same_text, 1000 bytes", Work::Rule("if same_text(text(req.value), text(req.value)): 1 else: 0", "aB")),
    ("trim, blanks", Work::Rule("len(trim(text(req.value)))", " ")),
    ("parse_int, zeros", Work::Rule("parse_int(text(req.value)) else 0", "0")),
    ("is_digits, 1000 bytes", Work::Rule("if is_digits(text(req.value)): 1 else: 0", "7")),
    ("str and parse_int", Work::Rule("fold i in 0..50, n = 0: n + (parse_int(str(i * 1234567)) else 0)", "")),
    ("lower, 1000 bytes", Work::Rule("len(lower(text(req.value)))", "aB")),
    ("split, 100 parts", Work::Rule("len(split(text(req.value), \",\", 100))", "abcdefghi,")),
    (
        "concatenation, 8 KiB",
        Work::Rule(
            "len(req.value + req.value + req.value + req.value + req.value + req.value + req.value + req.value)",
            "a",
        ),
    ),
    ("percent_decode, 1000 bytes", Work::Rule("len(percent_decode(text(req.value)) else \"\")", "%41")),
    ("base64_encode, 1000 bytes", Work::Rule("len(base64_encode(req.value))", "a")),
    ("dictionary in the cache, read", Work::Rule("seen[req.key] else 0", "")),
    ("dictionary in the cache, update", Work::Rule("update seen[req.key] from old: (old else 0) + 1", "")),
    ("dictionary in the cache, read of 900 bytes", Work::Rule("len(kept[req.key] else raw(\"\"))", "")),
    (
        "HTTP, a browser's head",
        Work::Head(
            "Host: www.example.com\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:109.0)\r\nAccept: text/html,*/*;q=0.8\r\nAccept-Encoding: gzip, deflate\r\nConnection: keep-alive\r\nCookie: a=1234567890; b=abcdefghijklmnop\r\n",
            1,
        ),
    ),
    ("HTTP, 98 short fields", Work::Head("a:\r\n", 98)),
    (
        "HTTP, fields of 1000 bytes",
        Work::Head(
            "x-name: 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789\r\n",
            90,
        ),
    ),
    (
        "HTTP, four lists of tokens",
        Work::Head(
            "Connection: clos,clos,clos,clos,clos,clos,clos,clos,clos,clos,clos,clos,clos,clos,clos,clos,clos,clos,clos\r\n",
            4,
        ),
    ),
];

/// Globals that the functions use.
const GLOBALS: &str = "global seen: dict<string<255>, int> max 1000 entries\n\
                       global kept: dict<string<255>, bytes<1000>> max 1000 entries\n";

/// Measures all kinds of work whose name contains `only` and prints a table.
pub(super) fn run(only: Option<&str>, results: Option<&Path>) -> Result<(), String> {
    let mut table = String::from("| work | ns | steps | ns per step |\n|---|--:|--:|--:|\n");
    for (name, work) in KINDS.iter().filter(|(name, _)| only.is_none_or(|only| name.contains(only))) {
        let (ns, steps) = measure(name, work)?;
        let _ = writeln!(table, "| {name} | {ns:.0} | {steps} | {:.2} |", ns / steps as f64);
    }
    let text = format!("A microsecond counts as {STEPS_PER_US} steps.\n\n{table}");
    println!("{text}");
    if let Some(results) = results {
        let page = format!("# The time of a step\n\n{text}\n{}", include_str!("steps_notes.md"));
        crate::page::write(results, "steps.md", &page).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Nanoseconds of the best batch, and steps.
fn measure(name: &str, work: &Work) -> Result<(f64, u64), String> {
    let text = match work {
        Work::Rule(body, _) => format!("{GLOBALS}{FRAME}fun kernel: (req: msg) -> (int)\n  int({body})\n"),
        Work::Head(..) => "use http\n\nproc P: (request/response client, [response/request] backends)\n  | backends => client\n  | client => backends[0]\n".to_owned(),
    };
    let text = text.replace("int(hash", "(hash").replace("int(fold", "(fold");
    let module = flick_compiler::module(&Input::text(name, text)).map_err(|failure| failure.to_string())?;
    let compiled = generate(&module, &Options::default()).map_err(|failure| failure.to_string())?;
    let parser = module.program.channels[0].view.as_ref().ok_or("the client channel receives")?.parse_request;
    let rule = module.program.rules.iter().find(|rule| rule.source == 0).map(|rule| rule.action);
    let interpreter = Interpreter::new(module);
    let message = match work {
        Work::Rule(_, of) => message("user:1234", &of.repeat(1000 / of.len().max(1))[..]),
        Work::Head(fields, times) => {
            format!("GET /index.html HTTP/1.1\r\nHost: a\r\n{}\r\n", fields.repeat(*times))
                .replacen("Host: a\r\nHost: ", "Host: ", 1)
                .into_bytes()
        }
    };
    let mut frame = Frame::new();
    frame.restart();
    compiled.parse(parser, &mut frame, &message);
    match (work, rule) {
        (Work::Rule(..), Some(RuleAction::Run { rule })) => {
            let mut bench = Activation::new();
            let steps =
                bench.call(&frame, &message, |call| interpreter.run_counted(rule, call).1) - SEND_STEPS;
            let ns = best(|| bench.call(&frame, &message, |call| run_once(&compiled, rule, call)));
            Ok((ns, steps))
        }
        (Work::Rule(..), _) => Err(format!("`{name}` has no rule that runs")),
        (Work::Head(..), _) => {
            let mut counted = Frame::new();
            counted.restart();
            let steps = interpreter.parse_counted(parser, &mut counted, &message).1;
            let ns = best(|| {
                frame.restart();
                black_box(compiled.parse(parser, &mut frame, black_box(&message)));
            });
            Ok((ns, steps))
        }
    }
}

fn run_once(engine: &dyn Engine, rule: FuncId, call: &mut RuleCall<'_>) {
    black_box(engine.run(rule, call));
}

/// Nanoseconds of one call in the best of some batches.
fn best(mut call: impl FnMut()) -> f64 {
    let started = Instant::now();
    (0..100).for_each(|_| call());
    let each = (started.elapsed().as_nanos() as f64 / 100.0).max(1.0);
    let calls = (BATCH_NS / each).max(10.0) as u32;
    let batch = |_| {
        let started = Instant::now();
        (0..calls).for_each(|_| call());
        started.elapsed().as_nanos() as f64 / f64::from(calls)
    };
    (0..BATCHES).map(batch).fold(f64::INFINITY, f64::min)
}

/// Everything that rules run with.
struct Activation {
    out: Vec<u8>,
    sends: SendList,
    asks: AskList,
    spills: Vec<u64>,
    host: Dictionaries,
}

impl Activation {
    fn new() -> Self {
        let (sends, asks) = (SendList::new(), AskList::new());
        let spills = vec![0; SPILL_WORDS_MAX];
        Self { out: vec![0; OUT_BYTES_MAX], sends, asks, spills, host: Dictionaries::new() }
    }

    fn call<T>(&mut self, frame: &Frame, message: &[u8], run: impl FnOnce(&mut RuleCall<'_>) -> T) -> T {
        self.sends.clear();
        run(&mut RuleCall {
            frame,
            message,
            others: &[],
            source_element: 0,
            channel_lens: &[1, 16],
            counters: &[],
            out: &mut self.out,
            out_len: 0,
            sends: &mut self.sends,
            asks: &mut self.asks,
            answers: &[],
            spills: &mut self.spills,
            resume: 0,
            state: &mut [],
            failure: None,
            host: &mut self.host,
        })
    }
}

/// A platform that has dictionaries and nothing else.
struct Dictionaries {
    all: Vec<Dictionary>,
    begun: Option<flick_dict::PendingUpdate>,
}

impl Dictionaries {
    fn new() -> Self {
        let make = |value_bytes_max| {
            let config = DictConfig {
                entries_max: 1000,
                bytes_max: None,
                key_bytes_max: 255,
                value_bytes_max,
                expire_ns: None,
                evict: flick_dict::Evict::Lru,
                seed: Seed::Random,
            };
            let dictionary = Dictionary::new(config).expect("small dictionaries fit");
            dictionary.put(b"user:1234", &vec![0; value_bytes_max.min(900) as usize], 1);
            dictionary
        };
        Self { all: vec![make(8), make(1000)], begun: None }
    }
}

impl Host for Dictionaries {
    fn now_ns(&mut self) -> i64 {
        1
    }
    fn random(&mut self) -> u64 {
        1
    }
    fn log(&mut self, _text: &[u8]) {}
    fn counter_add(&mut self, _counter: u32, _amount: i64) {}
    fn gauge_set(&mut self, _gauge: u32, _value: i64) {}
    fn counter_get(&mut self, _counter: u32) -> i64 {
        0
    }
    fn alive(&mut self, _channel: u32, _element: u64) -> bool {
        true
    }
    fn load(&mut self, _channel: u32, _element: u64) -> i64 {
        0
    }
    fn peer(&mut self, _channel: u32, _element: u64) -> [u8; 18] {
        [0; 18]
    }
    fn pick(&mut self, _policy: Policy, _channel: u32, _key: &[u8]) -> i64 {
        0
    }
    fn dict_get(&mut self, dict: u32, key: &[u8], out: &mut [u8]) -> Option<usize> {
        self.all[dict as usize].get(key, 1, out)
    }
    fn dict_has(&mut self, dict: u32, key: &[u8]) -> bool {
        self.all[dict as usize].has(key, 1)
    }
    fn dict_put(&mut self, dict: u32, key: &[u8], value: &[u8]) {
        self.all[dict as usize].put(key, value, 1);
    }
    fn dict_remove(&mut self, dict: u32, key: &[u8]) -> bool {
        self.all[dict as usize].remove(key, 1)
    }
    fn dict_len(&mut self, dict: u32) -> i64 {
        self.all[dict as usize].len() as i64
    }
    fn dict_bytes(&mut self, dict: u32) -> i64 {
        self.all[dict as usize].bytes_used() as i64
    }
    fn dict_evictions(&mut self, dict: u32) -> i64 {
        self.all[dict as usize].counts().evictions as i64
    }
    fn open_clients(&mut self) -> i64 {
        0
    }
    fn dict_begin(&mut self, dict: u32, key: &[u8], attempt: i64, out: &mut [u8]) -> Option<usize> {
        let is_last = attempt + 1 >= flick_abi::limits::DICT_ATTEMPTS_MAX;
        let (found, begun) = self.all[dict as usize].begin(key, 1, is_last, out);
        self.begun = Some(begun);
        found
    }
    fn dict_commit(&mut self, dict: u32, key: &[u8], value: Option<&[u8]>) -> bool {
        let begun = self.begun.take().expect("an update has begun");
        self.all[dict as usize].commit(begun, key, value, 1)
    }
}
