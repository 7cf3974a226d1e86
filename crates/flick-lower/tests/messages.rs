//! Messages of every grammar: made from seeds, cut at every byte and at random, read by both engines and by a walk of
//! the grammar's tree that shares nothing with the compiler; fields replaced by themselves give the same bytes.
//! Promises: same verdict, same length, same frames and same output however the bytes were cut (P1, P2); every step
//! asks for more than it has (P4). `FLICK_TEST_CASES` asks for another number of messages of each grammar,
//! `FLICK_SEED` for one message. A million of each:
//! `FLICK_TEST_CASES=1000000 cargo test --profile long -p flick-lower --test messages -- --nocapture --test-threads=1`.

#[path = "suite/engines.rs"]
#[expect(dead_code, reason = "the other tests of this crate use the rest")]
mod engines;
#[path = "suite/source.rs"]
#[expect(dead_code, reason = "the other tests of this crate use the rest")]
mod source;

#[path = "messages/decode.rs"]
mod decode;
#[path = "messages/env.rs"]
mod env;
#[path = "messages/generate.rs"]
mod generate;
#[path = "messages/grammars.rs"]
mod grammars;
#[path = "messages/random.rs"]
mod random;
#[path = "messages/reader.rs"]
mod reader;
#[path = "messages/report.rs"]
mod report;

use flick_testkit::generate::Rng;
use generate::Generator;
use grammars::{BINARY, CALC};
use reader::Reader;
use report::Report;

/// Messages of each grammar.
const CASES: u64 = 300;
/// At least this share of what is made must be of the grammar, in percent, or the test tests refusals only. Most of
/// what the grammar of HTTP has is there to refuse.
const GOOD_PERCENT_MIN: u64 = 4;
/// Bound, excluded, of the value that a request keeps for the parser of its reply (`%keep`).
const ASKED_MAX: u32 = 16;

/// Of messages of both directions, one in this many is sent in the second one too.
const SAME_ONE_IN: u64 = 4;

/// Whether one message is looked for.
fn is_one_seed() -> bool {
    std::env::var_os("FLICK_SEED").is_some()
}

/// The number of messages, or the one seed, to look at.
fn seeds() -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match number("FLICK_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("FLICK_TEST_CASES").unwrap_or(CASES),
    }
}

/// Makes messages of each grammar that the programs receive on the same channel and checks them, as they are and
/// spoiled.
fn check(name: &str, programs: &[String], files: &[(&str, &str)]) {
    let programs: Vec<_> = programs.iter().map(|text| reader::Spoken::new(text, files)).collect();
    for channel in 0..programs[0].channels() {
        let mut readers: Vec<Reader<'_>> =
            programs.iter().filter_map(|spoken| spoken.reader(channel)).collect();
        let Some(first) = readers.first() else { continue };
        let name = format!("{name}, {}", first.channel);
        let generator = Generator::new(first.program, first.unit);
        let mut report = Report::new(&name);
        // Where both directions speak the same, a part of the messages is enough for the second one.
        let is_same =
            channel > 0 && programs[0].reader(0).is_some_and(|other| other.unit.name == first.unit.name);
        for seed in seeds().filter(|seed| !is_same || seed.is_multiple_of(SAME_ONE_IN) || is_one_seed()) {
            let mut rng = Rng::new(seed);
            let asked = u64::from(rng.below(ASKED_MAX));
            let message = generator.message(&mut rng, asked);
            let spoiled = spoiled(message.clone(), &mut rng);
            // The one that passes all on, and one of those that write: each in turn.
            let mut is_good = false;
            let writer = 1 + seed as usize % readers.len().saturating_sub(1).max(1);
            for (index, reader) in
                readers.iter_mut().enumerate().filter(|(index, _)| [0, writer].contains(index))
            {
                let what = || format!("FLICK_SEED={seed} {name}, program {index}");
                is_good |= reader.check(&message, asked, &mut rng, &what);
                reader.check(&spoiled, asked, &mut rng, &|| format!("{}, spoiled", what()));
            }
            report.saw(is_good, message.len());
        }
        report.end(&readers, GOOD_PERCENT_MIN);
    }
}

/// The message with something wrong, something missing, or something behind it.
fn spoiled(mut message: Vec<u8>, rng: &mut Rng) -> Vec<u8> {
    let odd: [&[u8]; 8] = [b"\r", b"\n", b"\0", b" ", b"-1", b"\xff", b"\r\n\r\n", b"99999999999999999999"];
    for _ in 0..=rng.below(2) {
        let at = rng.below(message.len() as u32 + 1) as usize;
        match rng.below(5) {
            0 => message.truncate(at),
            1 if at < message.len() => message[at] ^= 1 << rng.below(8),
            2 if at < message.len() => drop(message.remove(at)),
            3 => drop(message.splice(at..at, rng.pick(&odd).iter().copied())),
            _ => message.extend((0..rng.below(4)).map(|_| rng.below(256) as u8)),
        }
    }
    message
}

#[test]
fn choices_runs_and_numbers_in_text() {
    let units = ["msg", "msg"];
    let programs = [
        balancer("calc", "msg", "msg", "key"),
        rewriter(
            "calc",
            units,
            "m with verb = m.verb, count = m.count, key = m.key",
            "m with data = m.data, count = m.count",
        ),
        rewriter("calc", units, "m with count = m.count", "msg{wire = wire(m)}"),
    ];
    check("calc", &programs, &[("calc", CALC)]);
}

#[test]
fn bits_lists_trees_and_what_streams() {
    let units = ["msg", "answer"];
    let programs = [
        balancer("binary", "msg", "answer", "vint"),
        rewriter("binary", units, "m with version = m.version, kind = m.kind", "m"),
        rewriter("binary", units, "m with id = m.id, signed = m.signed, vint = m.vint", "m"),
        rewriter("binary", units, "m with size = m.size, vint = m.vint", "m"),
    ];
    check("binary", &programs, &[("binary", BINARY)]);
}

#[test]
fn a_minus_sign_without_digits_is_no_number() {
    let grammar = "type msg = unit { %order = in_order; n : decimal<3> &signed; \";\"; };";
    let spoken = reader::Spoken::new(&relay("signed", ["msg", "msg"]), &[("signed", grammar)]);
    let mut reader = spoken.reader(0).expect("messages arrive on the first channel");
    for (message, is_one) in [("-123;", true), ("123;", true), ("0123;", false), ("-0123;", false)] {
        let what = || message.to_owned();
        assert_eq!(reader.check(message.as_bytes(), 0, &mut Rng::new(1), &what), is_one, "{message}");
    }
}

/// A balancer over what a library's units are.
fn balancer(library: &str, request: &str, reply: &str, field: &str) -> String {
    format!(
        "use {library}\n\nproc P: ({request}/{reply} client, [{reply}/{request}] backends)\n  | backends => client\n  \
         | client => pick(backends)\n\nfun pick: ([-/{request}] backends, req: {request}) -> ()\n  \
         req => backends[hash(req.{field}) mod len(backends)]\n"
    )
}

/// A service that passes all on.
fn relay(library: &str, [request, reply]: [&str; 2]) -> String {
    format!(
        "use {library}\n\nproc P: ({request}/{reply} client, {reply}/{request} server)\n  | client => server\n  \
         | server => client\n"
    )
}

/// A service that makes this of requests `m` and that of replies `m`.
fn rewriter(library: &str, [request, reply]: [&str; 2], forth: &str, back: &str) -> String {
    format!(
        "use {library}\n\nproc P: ({request}/{reply} client, {reply}/{request} server)\n  | client => forth() => server\n  \
         | server => back() => client\n\nfun forth: (m: {request}) -> ({request})\n  {forth}\n\n\
         fun back: (m: {reply}) -> ({reply})\n  {back}\n"
    )
}

macro_rules! libraries {
    ($($test:ident: $file:literal, $library:literal, [$request:literal, $reply:literal], $($forth:literal => $back:literal),*;)*) => {
        $(
            #[test]
            fn $test() {
                const TEXT: &str = include_str!(concat!("../../../", $file, ".flick"));
                let units = [$request, $reply];
                let programs = [relay($library, units), $(rewriter($library, units, $forth, $back)),*];
                check($library, &programs, &[($library, TEXT)]);
            }
        )*
    };
}

libraries! {
    http: "stdlib/http", "http", ["request", "response"],
        "m with method = m.method, target = m.target, minor = m.minor"
            => "m with minor = m.minor, status = m.status, reason = m.reason",
        "request{wire = wire(m)}" => "response{wire = wire(m)}";
    memcached_text: "stdlib/memcached_text", "memcached_text", ["command", "reply"],
        "m with verb = m.verb, key = m.key, flags = m.flags, exptime = m.exptime, size = m.size, unique = m.unique"
            => "m with key = m.key, flags = m.flags, size = m.size",
        "m with number = m.number" => "m with word = m.word, text = m.text",
        "m with verb = m.verb, delay = m.delay" => "m with length = m.length",
        "m with rest = m.rest" => "m",
        "command{wire = wire(m)}" => "reply{wire = wire(m)}";
    memcached_binary: "stdlib/memcached_binary", "memcached_binary", ["cmd", "cmd"],
        "m with magic_code = m.magic_code, opcode = m.opcode, status_or_v_bucket = m.status_or_v_bucket, cas = m.cas"
            => "m with extras = m.extras, key = m.key, value = m.value, opaque = m.opaque",
        "m with key = m.key" => "m with value = m.value",
        "m with value = m.value" => "cmd{magic_code = m.magic_code, opcode = m.opcode, status_or_v_bucket = m.status_or_v_bucket, cas = m.cas, extras = m.extras, key = m.key, value = m.value, opaque = m.opaque}";
    resp: "stdlib/resp", "resp", ["command", "reply"],
        "m with verb = m.verb, key = m.key" => "reply{wire = wire(m)}",
        "m with line = m.line" => "m",
        "command{wire = wire(m)}" => "m";
    hadoop: "stdlib/hadoop", "hadoop", ["kv", "kv"],
        "m with key = m.key, value = m.value" => "m with value = m.value",
        "m with key = m.key" => "kv{key = m.key, value = m.value}";
    frames_8_and_16: "stdlib/frames", "frames", ["frame8", "frame16"],
        "m with data = m.data" => "m with data = m.data",
        "frame8{data = m.data}" => "frame16{data = m.data}";
    frames_32: "stdlib/frames", "frames", ["frame32", "frame32_little"],
        "m with data = m.data" => "m with data = m.data",
        "frame32{data = m.data}" => "frame32_little{data = m.data}";
    frames_16_little: "stdlib/frames", "frames", ["frame16_little", "frame16_little"],
        "m with data = m.data" => "frame16_little{data = m.data}",
        "frame16_little{data = m.data}" => "m";
    lines: "stdlib/lines", "lines", ["line", "crlf_line"],
        "m with text = m.text" => "m with text = m.text",
        "line{text = m.text}" => "crlf_line{text = m.text}",
        "line{wire = wire(m)}" => "crlf_line{wire = wire(m)}";
    pcap: "stdlib/pcap", "pcap", ["record", "record"],
        "m with first = m.first, minor = m.minor, snap_len = m.snap_len, link = m.link" => "m with fraction = m.fraction, size = m.size",
        "m with major = m.major" => "m with packet = m.packet",
        "record{wire = wire(m)}" => "record{wire = wire(m)}";
    pcap_big: "stdlib/pcap_big", "pcap_big", ["record", "record"],
        "m with first = m.first, minor = m.minor, snap_len = m.snap_len, link = m.link" => "m with packet = m.packet",
        "m with major = m.major" => "record{wire = wire(m)}";
    raw: "stdlib/raw", "raw", ["raw", "raw"],;
    mqtt: "examples/mqtt_gateway/mqtt", "mqtt", ["packet", "packet"],
        "m with kind = m.kind, dup = m.dup, qos = m.qos, retain = m.retain" => "m with level = m.level, alive_s = m.alive_s",
        "m with id = m.id" => "packet{wire = wire(m)}";
    stomp: "examples/stomp_gateway/stomp", "stomp", ["frame", "frame"],
        "m with rest = m.rest, text = m.text" => "m with rest = m.rest",
        "frame{wire = wire(m)}" => "frame{wire = wire(m)}";
}
