//! Lists that end because they are full, and what one request carries to the next: where a message ends depends on its
//! bytes alone, and only for a program that looks whether it did.

use flick_abi::frame::{SLOT_CARRIED, SLOT_ITEMS};
use flick_abi::{FaultCause, Frame, ParseStep};

use crate::engines::Engines;
use crate::source::lower_with;

/// Words of a line, at most four in a message; a line that goes on begins with the number of words before.
const GRAMMAR: &str = r#"
type letter = class { "a".."z" };
type blank = class { " " };
type word = unit { text : string<4000> &of = letter; : string<9> &of = blank &min = 0; };
type text = unit { text : string<30> &until = "\n"; };
type line = unit {
  var before : uint64 &carried;
  switch self.before {
    0: { "="; }
    else: {}
  };
  words : [word]<4> &until = "\n";
  var is_full : bool &full = self.words;
  var count : uint32 &sum = map len(self.words.text) { 0: 0, else: 1 };
  %replies = text;
  %carry = map self.is_full { true: self.before + self.count, else: 0 };
};
type line: record
  words   : [string<4000>]
  before  : uint64
  is_full : bool
"#;

fn engines(rule: &str) -> Engines {
    engines_of(GRAMMAR, rule)
}

fn engines_of(grammar: &str, rule: &str) -> Engines {
    let text = format!(
        "{grammar}\nproc P: (line/text client)\n  client => answered() => client\n\n\
         fun answered: (req: line) -> (text)\n  {rule}\n"
    );
    Engines::new(lower_with(&text, &[]))
}

/// The messages at the front of `data`, cut at every byte: bytes, words and what each carries.
fn messages(engines: &Engines, data: &[u8]) -> Vec<(u64, u64, u64)> {
    let parser = engines.find("parse_request.client");
    let (mut at, mut carried, mut found) = (0, 0, Vec::new());
    while at < data.len() {
        let (mut whole, mut byte_by_byte) = (Frame::new(), Frame::new());
        (whole.slots[SLOT_CARRIED], byte_by_byte.slots[SLOT_CARRIED]) = (carried, carried);
        if engines.parse(parser, &mut whole, &data[at..]) != ParseStep::Done {
            break;
        }
        let mut wanted = 0;
        for end in at..=data.len() {
            if ((end - at) as u64) < wanted {
                continue;
            }
            let step = engines.parse(parser, &mut byte_by_byte, &data[at..end]);
            let ParseStep::NeedMore(bytes) = step else {
                assert_eq!(step, ParseStep::Done);
                break;
            };
            wanted = bytes;
        }
        let seen = |frame: &Frame| (frame.total_bytes(), frame.slots[SLOT_ITEMS], frame.slots[SLOT_CARRIED]);
        assert_eq!(seen(&whole), seen(&byte_by_byte), "at {at}");
        found.push(seen(&whole));
        (at, carried) = (at + whole.total_bytes() as usize, whole.slots[SLOT_CARRIED]);
    }
    found
}

const READS: &str = "text{text = if req.is_full: str(len(req.words)) else: \"all\"}";

#[test]
fn a_line_of_more_words_than_a_list_holds_is_several_messages() {
    let engines = engines(READS);
    assert_eq!(messages(&engines, b"=a b c\n"), [(7, 3, 0)]);
    assert_eq!(messages(&engines, b"=a b c d\n"), [(9, 4, 0)], "the list is full, and its end is there");
    assert_eq!(messages(&engines, b"=a b c d e\n=f\n"), [(9, 4, 4), (2, 1, 0), (3, 1, 0)]);
    assert_eq!(messages(&engines, b"=a b  c d e f g h\n"), [(10, 4, 4), (8, 4, 0)]);
    assert_eq!(messages(&engines, b"=a b c d e f g h i\n"), [(9, 4, 4), (8, 4, 8), (2, 1, 0)]);
}

#[test]
fn a_line_of_long_words_ends_where_another_one_might_not_fit_into_a_head() {
    let engines = engines_of(&GRAMMAR.replace("<4>", "<8>"), READS);
    let word = |len: usize| "x".repeat(len);
    let three = format!("={0} {0} {0} ", word(4000));
    let whole = format!("{three}{}\n", word(4000));
    assert_eq!(messages(&engines, whole.as_bytes()), [(16_005, 4, 0)]);
    // The longest word has 4009 bytes and the end of a line one: behind 12374 bytes there may be no room for them.
    let fits = format!("{three}{} b\n", word(369));
    assert_eq!(messages(&engines, fits.as_bytes()), [(12_376, 5, 0)]);
    let full = format!("{three}{} b\n", word(370));
    assert_eq!(messages(&engines, full.as_bytes()), [(12_375, 4, 4), (2, 1, 0)]);
}

#[test]
fn a_line_is_too_long_for_a_program_that_does_not_look_whether_it_goes_on() {
    let engines = engines("text{text = str(len(req.words))}");
    let parser = engines.find("parse_request.client");
    assert_eq!(engines.parse_at_every_cut(parser, b"=a b c d\n").0, ParseStep::Done);
    let (step, _) = engines.parse_at_every_cut(parser, b"=a b c d e\n");
    assert!(matches!(step, ParseStep::Fault { cause: FaultCause::TooLong, .. }), "{step:?}");
}

#[test]
fn a_rule_sees_what_was_carried_to_its_message_not_what_it_carries() {
    let engines = engines("text{text = if req.is_full: str(req.before) else: \"all\"}");
    let (parser, rule) = (engines.find("parse_request.client"), engines.find("rule.1"));
    for (carried, expected) in [(0, "0\n"), (4, "4\n")] {
        let mut frame = Frame::new();
        frame.slots[SLOT_CARRIED] = carried;
        let message: &[u8] = if carried == 0 { b"=a b c d e" } else { b"a b c d e" };
        assert_eq!(engines.parse(parser, &mut frame, message), ParseStep::Done);
        let sent = engines.run(rule, &frame, &message[..frame.total_bytes() as usize], &[1]);
        assert_eq!(sent, [(0, 0, expected.as_bytes().to_vec())]);
    }
}
