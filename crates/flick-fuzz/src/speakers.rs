//! Programs that read and write messages of every grammar of the library, ready to run on both engines.

use std::sync::OnceLock;

use flick_abi::FuncId;
use flick_codegen::{Compiled, Options};
use flick_ir::Interpreter;
use flick_ir::data::Module;

use crate::targets;

/// Grammars of examples, which `use` finds beside the standard library, by name.
pub const EXAMPLES: &[(&str, &str)] = &[
    ("mqtt", include_str!("../../../examples/mqtt_gateway/mqtt.flick")),
    ("stomp", include_str!("../../../examples/stomp_gateway/stomp.flick")),
];

/// Grammars that are read: library, what clients send, what they receive.
const SPOKEN: &[[&str; 3]] = &[
    ["frames", "frame8", "frame16"],
    ["frames", "frame32", "frame32_little"],
    ["frames", "frame16_little", "frame16_little"],
    ["hadoop", "kv", "kv"],
    ["http", "request", "response"],
    ["lines", "line", "crlf_line"],
    ["memcached_binary", "cmd", "cmd"],
    ["memcached_text", "command", "reply"],
    ["mqtt", "packet", "packet"],
    ["pcap", "record", "record"],
    ["raw", "raw", "raw"],
    ["resp", "command", "reply"],
    ["stomp", "frame", "frame"],
];

/// Messages that are written: library, what clients send, what they receive, what is kept of a message `m` for the
/// next one, and what is made of it with what was kept of the one before, `old`.
const WRITTEN: &[[&str; 5]] = &[
    [
        "http",
        "request",
        "response",
        r#"(m.headers["x-b"] else m.target)[..200]"#,
        r#"m with headers["x-a"] = old"#,
    ],
    [
        "http",
        "request",
        "response",
        r#"(m.headers["x-b"] else m.target)[..200]"#,
        r#"m with headers["x-a"] = old, headers["x-b"] = none"#,
    ],
    [
        "http",
        "request",
        "response",
        r#"(m.headers["cookie"] else m.target)[..200]"#,
        r#"request{method = "GET", target = "/" + old, headers = [("host", "h"), ("cookie", old)]}"#,
    ],
    ["http", "response", "response", "m.reason[..200]", "m with reason = old"],
    [
        "memcached_text",
        "command",
        "reply",
        "m.key[..200]",
        r#"if old == "" or m.fault != "": m
  else: m with key = old"#,
    ],
    ["memcached_text", "command", "reply", "m.key[..200]", r#"command{wire = "get " + old + "\r\n"}"#],
    ["memcached_binary", "cmd", "cmd", "m.key[..200]", "if old == \"\": m\n  else: m with key = old"],
    [
        "memcached_binary",
        "cmd",
        "cmd",
        "m.key[..200]",
        "if old == \"\": m\n  else: m with key = old, value = raw(m.key), extras = raw(old[..20])",
    ],
    [
        "memcached_binary",
        "cmd",
        "cmd",
        "m.key[..200]",
        "if old == \"\": m\n  else: cmd{magic_code = magic.request, opcode = opcode.set, key = old, extras = raw(\"12345678\"), value = raw(m.key)}",
    ],
    ["resp", "command", "reply", "m.key[..200]", "m with key = old"],
    ["resp", "command", "reply", "m.line[..200]", "m with line = old"],
    ["resp", "command", "reply", "m.key[..200]", r#"command{count = 2, verb = "get", key = old}"#],
    [
        "resp",
        "reply",
        "reply",
        "text(wire(m))[..200]",
        r#"reply{wire = "$" + str(len(old)) + "\r\n" + old + "\r\n"}"#,
    ],
    ["hadoop", "kv", "kv", "m.key[..200]", "m with key = old, value = m.key"],
    ["hadoop", "kv", "kv", "m.value[..200]", "kv{key = old, value = m.value}"],
    ["frames", "frame8", "frame8", "text(m.data)[..200]", "m with data = raw(old)"],
    ["frames", "frame16", "frame16", "text(m.data)[..200]", "m with data = raw(old)"],
    ["frames", "frame32_little", "frame32_little", "text(m.data)[..200]", "frame32_little{data = raw(old)}"],
    ["lines", "line", "line", "m.text[..200]", "m with text = old"],
    ["lines", "crlf_line", "crlf_line", "m.text[..200]", "crlf_line{text = old}"],
    ["pcap", "record", "record", "text(m.packet)[..200]", "m with packet = raw(old), size = len(old)"],
    ["mqtt", "packet", "packet", "m.topic[..200]", "m with id = len(old)"],
    ["stomp", "frame", "frame", r#"(m.headers["b"] else m.rest)[..200]"#, r#"m with headers["a"] = old"#],
    ["stomp", "frame", "frame", r#"(m.headers["b"] else m.rest)[..200]"#, "m with rest = old[..15]"],
    ["stomp", "frame", "frame", "m.text[..200]", "m with text = old"],
];

/// A program with both engines.
pub struct Speaker {
    /// The program in the reference interpreter.
    pub interpreter: Interpreter,
    /// The same in machine code.
    pub compiled: Compiled,
    /// Parsers of its channels.
    pub parsers: Vec<FuncId>,
    /// Whether the messages that it writes can be parsed again: the program does not put them together from bytes.
    pub reads_back: bool,
}

impl Speaker {
    /// Compiles a module.
    pub fn new(module: Module) -> Self {
        let compiled = flick_compiler::generate(&module, &Options::default());
        let compiled =
            compiled.unwrap_or_else(|error| panic!("a well-formed module does not compile: {error}"));
        let views = module.program.channels.iter().filter_map(|channel| channel.view.as_ref());
        let parsers =
            views.flat_map(|view| [view.parse_request, view.parse_reply, view.parse_asked]).collect();
        Self { interpreter: Interpreter::new(module), compiled, parsers, reads_back: false }
    }

    fn of(text: &str) -> Self {
        let module = targets::ir(text.as_bytes()).unwrap_or_else(|| panic!("a speaker is refused:\n{text}"));
        // Of memcached's requests the grammar says more than of messages; what a program makes of one may be none.
        let is_request = text.contains("use memcached_binary") && text.contains("m with");
        Self { reads_back: !text.contains("wire = ") && !is_request, ..Self::new(module) }
    }
}

/// Those that read.
pub fn readers() -> &'static [Speaker] {
    static READY: OnceLock<Vec<Speaker>> = OnceLock::new();
    READY.get_or_init(|| {
        let texts = SPOKEN.iter().map(|[library, request, reply]| {
            format!(
                "use {library}\n\nproc P: ({request}/{reply} client, {reply}/{request} backend)\n  client <=> backend\n"
            )
        });
        texts.map(|text| Speaker::of(&text)).collect()
    })
}

/// Those that write.
pub fn writers() -> &'static [Speaker] {
    static READY: OnceLock<Vec<Speaker>> = OnceLock::new();
    READY.get_or_init(|| {
        let texts = WRITTEN.iter().map(|[library, request, reply, kept, made]| {
            format!(
                "use {library}\n\nproc P: ({request}/{reply} client, {reply}/{request} server)\n  local given: string<200> := \"\"\n  \
                 | client => forth() => server\n  | server => client\n\nfun forth: (m: {request}) -> ({request})\n  \
                 let old = given\n  given := {kept}\n  {made}\n"
            )
        });
        texts.map(|text| Speaker::of(&text)).collect()
    })
}
