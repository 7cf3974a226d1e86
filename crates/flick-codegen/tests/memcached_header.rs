//! The memcached binary header with a view of the key, on both engines: every cut, every refusal, and the length
//! arithmetic against exact integers.

use flick_abi::frame::{SLOT_HEAD, SLOT_TOTAL};
use flick_abi::{BytesRef, Engine, FaultCause, Frame, FuncId, ParseStep};
use flick_codegen::{Optimise, Options, compile};
use flick_ir::Interpreter;

const HEADER: &str = include_str!("../../flick-ir/fixtures/memcached_header.ir");

fn engines() -> Vec<(&'static str, Box<dyn Engine>)> {
    let module = flick_ir::text::parse(HEADER).expect("the fixture is of the form");
    assert_eq!(flick_ir::verify(&module), []);
    let compiled = |optimise| {
        let options = Options { optimise, clif_verifier: true, regalloc_checker: true, listings: true };
        Box::new(compile(&module, &options).expect("the fixture compiles"))
    };
    let none = compiled(Optimise::None);
    let speed = compiled(Optimise::Speed);
    vec![("interpreter", Box::new(Interpreter::new(module))), ("none", none), ("speed", speed)]
}

fn header(magic: u8, key_len: u16, extras_len: u8, total_len: u32) -> Vec<u8> {
    let mut header = vec![0; 24];
    header[0] = magic;
    header[2..4].copy_from_slice(&key_len.to_be_bytes());
    header[4] = extras_len;
    header[8..12].copy_from_slice(&total_len.to_be_bytes());
    header
}

/// Parses `data` at once and in every pair of pieces; all must come to the same end.
fn check(data: &[u8], expected: ParseStep) -> Frame {
    let mut last = Frame::new();
    for (name, engine) in engines() {
        for cut in 0..=data.len() {
            let mut frame = Frame::new();
            let mut step = engine.parse(FuncId(0), &mut frame, &data[..cut]);
            if let ParseStep::NeedMore(need) = step {
                assert!(need > cut as u64, "{name}, cut at {cut}: asks for what it has");
                step = engine.parse(FuncId(0), &mut frame, data);
            }
            assert_eq!(step, expected, "{name}, cut at {cut}");
            last = frame;
        }
    }
    last
}

#[test]
fn a_request_is_parsed_at_every_cut() {
    let mut data = header(0x80, 5, 8, 5 + 8 + 100);
    data.extend(b"\0\0\0\0\0\0\0\0hello");
    let frame = check(&data, ParseStep::Done);
    let key = BytesRef(frame.slots[12]);
    assert_eq!(key.resolve(|_| Some(&data[..]), &[], &[]), Some(&b"hello"[..]));
    assert_eq!((frame.slots[SLOT_TOTAL], frame.slots[SLOT_HEAD]), (24 + 113, 24 + 13));
}

#[test]
fn nonsense_is_refused_at_its_first_byte() {
    let fault = ParseStep::Fault { field: 0, cause: FaultCause::Malformed };
    check(b"GET / HTTP/1.0\r\n\r\n", fault);
    for (name, engine) in engines() {
        assert_eq!(engine.parse(FuncId(0), &mut Frame::new(), b"G"), fault, "{name}");
        assert_eq!(engine.parse(FuncId(0), &mut Frame::new(), b""), ParseStep::NeedMore(1), "{name}");
    }
}

#[test]
fn the_length_of_the_value_never_wraps() {
    let engines = engines();
    for extras_len in [0, 1, 4, 8, 20, 127, 128, 255] {
        for key_len in (0..300).step_by(7).chain([249, 250, 251, 65533, 65534, 65535]) {
            let sum = i128::from(key_len) + i128::from(extras_len);
            let totals = [0, sum - 2, sum - 1, sum, sum + 1, 1 << 31, (1 << 31) - 1, i128::from(u32::MAX)];
            for total in totals.into_iter().filter_map(|total| u32::try_from(total).ok()) {
                let data = header(0x80, key_len, extras_len, total);
                let expected = if i128::from(total) - sum < 0 {
                    ParseStep::Fault { field: 9, cause: FaultCause::Arithmetic }
                } else if key_len > 250 {
                    ParseStep::Fault { field: 11, cause: FaultCause::TooLong }
                } else if sum > 0 {
                    ParseStep::NeedMore(24 + sum as u64)
                } else {
                    ParseStep::Done
                };
                for (name, engine) in &engines {
                    let step = engine.parse(FuncId(0), &mut Frame::new(), &data);
                    assert_eq!(step, expected, "{name}: extras {extras_len}, key {key_len}, total {total}");
                }
            }
        }
    }
}

#[test]
fn listings_name_every_function() {
    let module = flick_ir::text::parse(HEADER).expect("the fixture is of the form");
    let compiled =
        compile(&module, &Options { listings: true, ..Options::default() }).expect("the fixture compiles");
    let function = &compiled.functions()[0];
    assert_eq!(function.name, "parse_request.client");
    assert!(function.address != 0 && function.size_bytes > 0);
    assert!(compiled.clif().contains("parse_request.client") && compiled.clif().contains("return"));
    assert!(compiled.asm().contains("parse_request.client") && compiled.asm().contains("ret"));
}

#[test]
fn what_the_verifier_refuses_is_not_compiled() {
    let broken = HEADER.replace("need 24", "need 8");
    let module = flick_ir::text::parse(&broken).expect("the text is still of the form");
    let error = compile(&module, &Options::default()).expect_err("a load is not covered");
    assert!(error.to_string().contains("no `need` covers the load of bytes 8 to 12"), "{error}");
}

#[test]
fn a_function_runs_only_in_its_role() {
    for (name, engine) in engines() {
        let run = std::panic::AssertUnwindSafe(|| engine.build(FuncId(0), &Frame::new(), &mut [0; 64]));
        assert!(std::panic::catch_unwind(run).is_err(), "{name} builds with a parser");
    }
}

/// Linux tells what each page may be used for.
#[cfg(target_os = "linux")]
#[test]
fn code_is_never_writable_and_executable() {
    let module = flick_ir::text::parse(HEADER).expect("the fixture is of the form");
    let compiled = compile(&module, &Options::default()).expect("the fixture compiles");
    let maps = std::fs::read_to_string("/proc/self/maps").expect("Linux shows a process its mappings");
    let mode_of = |address: usize| {
        let mapping = maps.lines().find(|line| {
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            let range = range.and_then(|(from, to)| {
                Some(usize::from_str_radix(from, 16).ok()?..usize::from_str_radix(to, 16).ok()?)
            });
            range.is_some_and(|range| range.contains(&address))
        });
        mapping.and_then(|line| line.split(' ').nth(1)).map(str::to_owned)
    };
    assert_eq!(mode_of(compiled.functions()[0].address).as_deref(), Some("r-xp"));
    let both =
        |line: &str| line.split(' ').nth(1).is_some_and(|mode| mode.contains('w') && mode.contains('x'));
    assert!(!maps.lines().any(both), "no mapping is writable and executable");
}
