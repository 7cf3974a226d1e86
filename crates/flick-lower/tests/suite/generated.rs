//! Generated programs: both engines do the same with them, and the verifier has nothing against their code.

use flick_abi::FailureReason;
use flick_testkit::generate::{Rng, Size, program};

use crate::engines::Engines;
use crate::random::cases;
use crate::session::Session;
use crate::source;

/// A message of the generator's grammar.
fn message(rng: &mut Rng) -> Vec<u8> {
    let kind = [1, 2, 3, 77][rng.below(4) as usize];
    let key: Vec<u8> = (0..rng.below(12)).map(|_| b'a' + rng.below(5) as u8).collect();
    let value: Vec<u8> = (0..rng.below(30)).map(|_| rng.below(256) as u8).collect();
    let mut bytes = vec![kind, rng.below(256) as u8];
    bytes.extend((rng.below(1 << 16) as u16).to_be_bytes());
    bytes.extend((rng.below(50) as u32).to_be_bytes());
    for _ in 0..2 {
        bytes.extend(if rng.one_in(2) { 7 } else { rng.word() }.to_be_bytes());
    }
    bytes.push(key.len() as u8);
    bytes.extend((value.len() as u16).to_be_bytes());
    [bytes, key, value].concat()
}

#[test]
fn generated_programs_do_the_same_on_both_engines() {
    let (mut accepted, mut total) = (0, 0);
    for seed in 0..cases(40) {
        total += 1;
        let text = program(seed, Size::PAGE);
        let Some(module) = source::try_lower(&text) else { continue };
        accepted += 1;
        println!("seed {seed}");
        let engines = Engines::new(module);
        let mut session = Session::new(&engines, 3);
        let mut rng = Rng::new(seed);
        let mut replies = Rng::new(!seed);
        for _ in 0..6 {
            session.with_platform(|platform| platform.now_ns += 7_000_000);
            session.receive("client", &message(&mut rng), &mut |_, _| match replies.below(4) {
                0 => Err(FailureReason::Timeout),
                _ => Ok(message(&mut replies)),
            });
            session.receive("backends", &message(&mut rng), &mut |_, _| Err(FailureReason::Unavailable));
        }
        for handler in &engines.module.program.handlers {
            session.event(handler.rule, 1);
        }
        for timer in &engines.module.program.timers {
            session.event(timer.rule, 0);
        }
    }
    assert!(accepted * 2 > total, "the checker takes most: {accepted} of {total}");
}
