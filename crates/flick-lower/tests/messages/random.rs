//! Random grammars, each with random messages: read by both engines, in pieces, beside the walk of the grammar's
//! tree, and written again. What one construct does to another is in no hand-written grammar. `FLICK_TEST_GRAMMARS`
//! asks for another number of grammars, `FLICK_GRAMMAR` for one, `FLICK_TEST_CASES` for another number of messages of
//! each.

use std::panic::{AssertUnwindSafe, catch_unwind};

use flick_testkit::generate::{Grammar, Rng, grammar};

use crate::generate::Generator;
use crate::reader::{Reader, Spoken};
use crate::{ASKED_MAX, balancer, relay, rewriter, spoiled};

/// Grammars of one run.
const GRAMMARS: u64 = 60;
/// Messages of each.
const CASES: u64 = 30;
/// Fields that a program writes at once.
const WRITTEN_MAX: usize = 4;
/// At least this share of the grammars must be accepted, in percent, or the test tests the checker only.
const ACCEPTED_PERCENT_MIN: u64 = 40;
/// At least this share of the messages must be of their grammar, in percent.
const GOOD_PERCENT_MIN: u64 = 30;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("the variable is a number"))
}

#[test]
fn random_grammars_read_and_write_as_their_trees_say() {
    let grammars = match number("FLICK_GRAMMAR") {
        Some(seed) => seed..seed + 1,
        None => 0..number("FLICK_TEST_GRAMMARS").unwrap_or(GRAMMARS),
    };
    let cases = number("FLICK_TEST_CASES").unwrap_or(CASES);
    let (mut tried, mut accepted, mut good, mut all, mut written) = (0, 0, 0, 0, 0);
    for seed in grammars {
        let grammar = grammar(seed);
        tried += 1;
        let result = catch_unwind(AssertUnwindSafe(|| check(&grammar, seed, cases)));
        let Some(counts) = result.unwrap_or_else(|_| panic!("FLICK_GRAMMAR={seed}:\n{}", grammar.text))
        else {
            continue;
        };
        accepted += 1;
        good += counts.good;
        all += counts.all;
        written += counts.written;
        if tried % 1000 == 0 {
            println!("{tried} grammars tried, {accepted} accepted, {all} messages, {good} of their grammar");
        }
    }
    println!(
        "{tried} grammars tried, {accepted} accepted, {written} written again, {all} messages, {good} of their grammar"
    );
    assert!(
        tried < 20 || accepted * 100 >= tried * ACCEPTED_PERCENT_MIN,
        "only {accepted} of {tried} are grammars"
    );
    assert!(all < 100 || good * 100 >= all * GOOD_PERCENT_MIN, "only {good} of {all} are messages");
}

/// Numbers of messages that a grammar was tested with, and of programs that write them.
#[derive(Default)]
struct Counts {
    good: u64,
    all: u64,
    /// Programs that write its messages.
    written: u64,
}

/// `None`: the checker takes no such grammar.
fn check(grammar: &Grammar, seed: u64, cases: u64) -> Option<Counts> {
    let files = [("random", grammar.text.as_str())];
    let units = ["msg", "msg"];
    let mut programs = vec![Spoken::try_new(&relay("random", units), &files)?];
    let mut rng = Rng::new(seed);
    let mut fields = grammar.fields.clone();
    // What is read decides what is kept.
    if !fields.is_empty() {
        let read = rng.pick(&fields).clone();
        programs.extend(Spoken::try_new(&balancer("random", "msg", "msg", &read), &files));
    }
    let mut counts = Counts::default();
    for _ in 0..2 {
        let mut chosen = Vec::new();
        while chosen.len() < WRITTEN_MAX && !fields.is_empty() {
            chosen.push(fields.swap_remove(rng.below(fields.len() as u32) as usize));
        }
        let change = |fields: &[String]| {
            let parts: Vec<_> = fields.iter().map(|field| format!("{field} = m.{field}")).collect();
            let with = format!("m with {}", parts.join(", "));
            Spoken::try_new(&rewriter("random", units, &with, "m"), &files)
        };
        // All at once, else one after the other until one can be written.
        let all = if chosen.is_empty() { None } else { change(&chosen) };
        let writer = all.or_else(|| chosen.iter().find_map(|field| change(std::slice::from_ref(field))));
        counts.written += u64::from(writer.is_some());
        programs.extend(writer);
    }
    let mut readers: Vec<Reader<'_>> = programs.iter().filter_map(|program| program.reader(0)).collect();
    readers.extend(programs[0].reader(1));
    let generator = Generator::new(readers[0].program, readers[0].unit);
    for case in 0..cases {
        let mut rng = Rng::new(seed << 20 ^ case);
        let asked = u64::from(rng.below(ASKED_MAX));
        let message = generator.message(&mut rng, asked);
        let spoiled = spoiled(message.clone(), &mut rng);
        let mut is_good = false;
        for (index, reader) in readers.iter_mut().enumerate() {
            let what = || format!("message {case}, reader {index}");
            is_good |= reader.check(&message, asked, &mut rng, &what);
            reader.check(&spoiled, asked, &mut rng, &|| format!("{}, spoiled", what()));
        }
        counts.all += 1;
        counts.good += u64::from(is_good);
    }
    Some(counts)
}
