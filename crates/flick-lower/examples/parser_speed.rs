//! Measures the speed of the parsers of Listing 1, from source text to machine code, in nanoseconds per message: best
//! of many.
//! Run: `cargo run --release -p flick-lower --example parser_speed`

use std::hint::black_box;
use std::time::Instant;

use flick_abi::{Engine, Frame, ParseStep};
use flick_codegen::{Options, compile};
use flick_compiler::{Checked, Input, check};

const LISTING_1: &str = include_str!("../../../examples/memcached_proxy/memcached_proxy.flick");
const CALLS: usize = 100_000;
const BATCHES: usize = 100;

fn main() {
    let accepted = check(&Input::text("listing_1", LISTING_1)).and_then(Checked::accept);
    let accepted = accepted.expect("Listing 1 has no errors");
    let started = Instant::now();
    let module = accepted.module(&accepted.program).expect("Listing 1 is within the limits");
    println!("lower {:?}", started.elapsed());
    let view = module.program.channels[0].view.clone().expect("the client is received from");
    let reply_view = module.program.channels[1].view.clone().expect("backends are received from");
    let compiled = compile(&module, &Options { listings: true, ..Options::default() }).expect("it compiles");
    println!("compile {:?}", compiled.compile_time());
    if std::env::args().any(|arg| arg == "--asm") {
        println!("{}", compiled.asm());
    }
    let engine: &dyn Engine = black_box(&compiled);
    for (name, parser, magic) in
        [("request", view.parse_request, 0x80), ("reply", reply_view.parse_reply, 0x81)]
    {
        let messages = messages(magic);
        let best = (0..BATCHES)
            .map(|_| {
                let mut frame = Frame::new();
                let started = Instant::now();
                for index in 0..CALLS {
                    frame.restart();
                    let step = engine.parse(black_box(parser), &mut frame, black_box(&messages[index & 7]));
                    assert!(step == ParseStep::Done, "the messages are whole");
                }
                black_box(&frame);
                started.elapsed().as_secs_f64() * 1e9 / CALLS as f64
            })
            .fold(f64::INFINITY, f64::min);
        println!("{name} {best:.2} ns");
    }
}

/// Messages of several operations, with keys and extras of several lengths.
fn messages(magic: u8) -> Vec<Vec<u8>> {
    let message = |(opcode, extras, key, value): (u8, u8, u8, u32)| {
        let total = u32::from(extras) + u32::from(key) + value;
        let mut message = vec![magic, opcode, 0, key, extras, 0, 0, 0];
        message.extend(total.to_be_bytes());
        message.resize(24 + usize::from(extras) + usize::from(key), b'k');
        message
    };
    let kinds = [
        (0x00, 0, 16, 0),
        (0x01, 8, 32, 100),
        (0x00, 0, 64, 0),
        (0x09, 0, 8, 0),
        (0x11, 8, 250, 1_000),
        (0x0a, 0, 0, 0),
        (0x0c, 0, 30, 0),
        (0x02, 8, 20, 5),
    ];
    kinds.map(message).into()
}
