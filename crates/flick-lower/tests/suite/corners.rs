//! Corners of parsers that neither the grammars of the library nor random ones come to, from trees written by hand:
//! whole and cut at every byte.

use flick_abi::frame::{SLOT_ASKED, SLOT_NON_QUIET};
use flick_abi::limits::FRAME_HEAD_SLOTS;
use flick_abi::{FaultCause, Frame, ParseStep};
use flick_check::hir::{
    BinaryOp, Choice, Class, DecodedField, Expr, ExprKind, Facts, Field, FieldId, FieldKind, Item, Keyed,
    List, ListEnd, Span, Ty,
};

use crate::engines::Engines;
use crate::hand::{self, arithmetic, bytes_field, compare, field, int, int_field, repr};
use crate::source::{lower_with, lowered, program_with};
use crate::structured::{
    BLANK, LINE, Subject, WORD, bytes, item, items, literal, named, number, parts, program, run, same, slot,
    streams, text, until,
};

/// Longest bytes of a part that are waited for.
const PART_BYTES: usize = 8192;

fn list(body: Vec<Item>, end: ListEnd) -> List {
    List {
        body,
        end,
        max: Some(8),
        element: None,
        keyed: None,
        elem_bytes_max: 100,
        elem_text: false,
        fields_end: 0,
        streamed: false,
        bare: None,
    }
}

/// `self.field`, a text.
fn text_field(id: u32) -> Expr {
    let ty = Ty::Bytes { max: 8, text: true };
    Expr { kind: ExprKind::SelfField(FieldId(id)), ty, span: Span::default() }
}

/// One row where the first field is 0, else another.
fn forms(row: Vec<Item>, otherwise: Vec<Item>) -> Item {
    let (arms, otherwise) = (vec![(vec![int(0)], row)], Some(otherwise));
    Item::Switch(Choice {
        on: field(0),
        arms,
        otherwise,
        cause: FaultCause::Unsupported,
        span: Span::default(),
    })
}

#[test]
fn a_body_of_one_form_passes_though_another_form_ends_with_the_connection() {
    let spare = || FieldKind::Var { repr: repr(8), parse: field(0), sum: None };
    let fields = vec![
        named("kind", number(10, 1)),
        named("rest", FieldKind::ToClose { text: false }),
        named("spare", spare()),
        named("other", spare()),
        int_field("len", repr(4), None),
        named("body", bytes(field(4), None)),
    ];
    let to_close = vec![item(1), forms(vec![item(2)], vec![item(3)])];
    let body = vec![item(0), forms(to_close, vec![item(4), item(5)])];
    let program = program(fields, body, Facts::default(), &[0, 4]);
    let subject = Subject::new(&program, "parse_request");
    // More than a head may have.
    let data = [b"1\x00\x00\x4e\x20", &[b'x'; 20_000][..]].concat();
    assert_eq!(parts(&subject, &data), [(5, 20_005)]);
}

#[test]
fn a_body_passes_though_something_without_bytes_stands_behind_it() {
    let spare = || FieldKind::Var { repr: repr(8), parse: field(0), sum: None };
    let fields = vec![
        int_field("len", repr(4), None),
        named("body", bytes(field(0), None)),
        named("spare", spare()),
        named("other", spare()),
    ];
    for behind in [item(2), forms(vec![item(2)], vec![item(3)])] {
        let body = vec![item(0), item(1), behind];
        let subject = Subject::new(&program(fields.clone(), body, Facts::default(), &[0]), "parse_request");
        let data = [&20_000_u32.to_be_bytes()[..], &[b'x'; 20_000]].concat();
        assert_eq!(parts(&subject, &data), [(4, 20_004)]);
    }
}

#[test]
fn elements_pass_one_by_one_where_each_field_fits_a_part() {
    let check = |max: usize, expected: &[(u64, u64)]| {
        let mut program = streams(ListEnd::Bytes(field(0)));
        program.units[0].fields[3].kind = bytes(field(2), Some(max as u32));
        assert_eq!(parts(&Subject::new(&program, "parse_reply"), b"9\n0:1:a2:bc"), expected, "{max}");
    };
    check(PART_BYTES, &[(2, 2), (2, 2), (3, 3), (4, 4)]);
    // What may be longer ends a part itself, before it is there.
    check(PART_BYTES + 1, &[(2, 2), (2, 2), (2, 3), (2, 4), (0, 0)]);
}

#[test]
fn a_fact_known_before_long_data_is_not_evaluated_again_after_it() {
    let fields = vec![
        named("kind", number(10, 1)),
        named("verb", run(WORD, 1, 8)),
        named("len", number(10, 6)),
        named("data", bytes(field(2), None)),
    ];
    let row = vec![item(1), literal(b" "), item(2), literal(b"\r\n"), item(3), literal(b"\r\n")];
    let choice = Choice {
        on: field(0),
        arms: vec![(vec![int(7)], row)],
        otherwise: Some(Vec::new()),
        cause: FaultCause::Unsupported,
        span: Span::default(),
    };
    let facts = Facts { request: Some(same(text_field(1), text(b"put"))), ..Facts::default() };
    let mut program = program(fields, vec![item(0), Item::Switch(choice)], facts, &[2]);
    let view = &mut program.process.as_mut().expect("the program has a process").channels[0].view;
    view.push(DecodedField { field: FieldId(3), max: Some(4), optional: true });
    let subject = Subject::new(&program, "parse_request");
    let message = |len: usize| [format!("7put {len}\r\n").as_bytes(), &vec![b'x'; len], b"\r\n"].concat();
    assert_eq!(parts(&subject, &message(9000)), [(11, 9011), (2, 2)]);
    subject.done(&message(4));
    assert_eq!(subject.fault(b"7get 2\r\nab\r\n"), FaultCause::Malformed);
}

#[test]
fn blanks_at_the_end_of_a_trimmed_text_are_no_part_of_it() {
    let mut line = until(Some(LINE), b"\r\n", 20);
    let FieldKind::Text { trim, .. } = &mut line else { panic!("it is a text") };
    *trim = true;
    let program = program(vec![named("line", line)], vec![item(0)], Facts::default(), &[0]);
    let subject = Subject::new(&program, "parse_request");
    let check = |data: &[u8], expected: &[u8]| {
        assert_eq!(slot(&subject.done(data), 0, data), Some(expected), "\"{}\"", data.escape_ascii());
    };
    check(b"a b\r\n", b"a b");
    check(b"a b \t \r\n", b"a b");
    check(b" \r\n", b"");
    check(b"\r\n", b"");
}

#[test]
fn a_run_may_follow_one_of_all_that_it_is_not_made_of() {
    let fields = vec![named("word", run(WORD, 1, 8)), named("other", run(LINE + 1, 1, 8))];
    let mut program = program(fields, vec![item(0), item(1), literal(b"x")], Facts::default(), &[0, 1]);
    let set = program.classes[WORD as usize].set.map(|word| !word);
    program.classes.push(Class { name: "other".to_owned(), set, span: Span::default() });
    let subject = Subject::new(&program, "parse_request");
    let data = b"ab?! x";
    let frame = subject.done(data);
    assert_eq!((slot(&frame, 0, data), slot(&frame, 1, data)), (Some(&b"ab"[..]), Some(&b"?! "[..])));
}

#[test]
fn a_text_variable_behind_data_holds_up_no_more_than_what_it_is_made_of() {
    let variable = |of: u32| FieldKind::TextVar { text: true, max_bytes: 8, parse: text_field(of) };
    let fields = vec![
        named("verb", run(WORD, 1, 8)),
        named("len", number(10, 6)),
        named("data", bytes(field(1), None)),
        named("said", variable(0)),
        named("again", variable(3)),
    ];
    let body =
        vec![item(0), literal(b" "), item(1), literal(b"\n"), item(2), literal(b"\n"), item(3), item(4)];
    let subject = Subject::new(&program(fields, body, Facts::default(), &[4]), "parse_request");
    let data = [b"put 9000\n", &[b'x'; 9000][..], b"\n"].concat();
    assert_eq!(parts(&subject, &data), [(9, 9009), (1, 1)]);
}

#[test]
fn a_text_longer_than_an_option_of_the_view_is_none_and_no_fault() {
    let line = named("line", until(Some(LINE), b"\r\n", 8));
    let mut program = program(vec![line], vec![item(0)], Facts::default(), &[0]);
    let view = &mut program.process.as_mut().expect("the program has a process").channels[0].view;
    (view[0].max, view[0].optional) = (Some(4), true);
    let subject = Subject::new(&program, "parse_request");
    let check = |data: &[u8], expected: Option<&[u8]>| {
        assert_eq!(slot(&subject.done(data), 0, data), expected, "\"{}\"", data.escape_ascii());
    };
    check(b"abcd\r\n", Some(b"abcd"));
    check(b"abcde\r\n", None);
    assert_eq!(subject.fault(b"abcdefghi\r\n"), FaultCause::TooLong);
}

#[test]
fn an_element_that_is_read_is_in_one_piece_with_its_list() {
    let all = List {
        element: Some(FieldId(4)),
        ..list(vec![item(2), literal(b":"), item(3), item(4)], ListEnd::Count(field(0)))
    };
    let fields = vec![
        named("n", number(10, 1)),
        named("all", FieldKind::List(Box::new(all))),
        named("all.len", number(10, 6)),
        named("all.data", bytes(field(2), None)),
        named("all.tag", until(None, b";", 8)),
    ];
    let body = vec![item(0), literal(b"\n"), item(1)];
    let subject = Subject::new(&program(fields, body, Facts::default(), &[0, 1]), "parse_request");
    let data = [b"2\n2:xxa;9000:", &[b'x'; 9000][..], b"bc;"].concat();
    assert_eq!(parts(&subject, &data), [(data.len() as u64, data.len() as u64)]);
    let data = b"2\n2:xxa;1:xbc;";
    let frame = subject.done(data);
    let found = (1..4).find(|index| (frame.slots[FRAME_HEAD_SLOTS + index] >> 32) == 2);
    assert_eq!(items(&frame, found.expect("the list is kept"), data), [&b"a"[..], b"bc"]);
}

#[test]
fn a_rule_ran_before_the_last_field_of_a_list_that_it_reads_had_come() {
    let all = list(vec![item(2), literal(b":"), item(3)], ListEnd::Count(field(0)));
    let fields = vec![
        named("n", number(10, 1)),
        named("all", FieldKind::List(Box::new(all))),
        named("all.len", number(10, 6)),
        named("all.data", bytes(field(2), Some(10_000))),
    ];
    let body = vec![item(0), literal(b"\n"), item(1)];
    let subject = Subject::new(&program(fields, body, Facts::default(), &[0, 1]), "parse_request");
    let data = [b"2\n2:xx9000:", &[b'x'; 9000][..]].concat();
    assert_eq!(parts(&subject, &data), [(data.len() as u64, data.len() as u64)]);
}

/// Lines of a name and a value behind data.
fn data_and_lines(value: FieldKind) -> Vec<Field> {
    let keyed = Keyed {
        key: FieldId(3),
        value: FieldId(4),
        nocase: true,
        keys: vec![b"a".to_vec()],
        once: Vec::new(),
        cut: Vec::new(),
        cut_listed: None,
        keep_cut: None,
        follows: Vec::new(),
    };
    let lines = List {
        keyed: Some(keyed),
        ..list(vec![item(3), literal(b":"), item(4)], ListEnd::Until(b"\r\n".to_vec()))
    };
    vec![
        named("len", number(10, 6)),
        named("data", bytes(field(0), None)),
        named("lines", FieldKind::List(Box::new(lines))),
        named("lines.name", run(WORD, 1, 8)),
        named("lines.value", value),
    ]
}

#[test]
fn unread_lines_do_not_delay_the_data_before_them() {
    let fields = data_and_lines(until(Some(LINE), b"\r\n", 20));
    let body = vec![item(0), literal(b"\n"), item(1), item(2)];
    let subject = Subject::new(&program(fields, body, Facts::default(), &[0, 2]), "parse_request");
    let data = [b"9000\n", &[b'x'; 9000][..], b"a:b\r\n\r\n"].concat();
    assert_eq!(parts(&subject, &data), [(5, 9005), (7, 7)]);
}

#[test]
fn lines_whose_values_must_not_be_empty_are_refused_where_one_is() {
    let mut value = until(Some(LINE), b"\r\n", 20);
    let FieldKind::Text { min_bytes, .. } = &mut value else { panic!("it is a text") };
    *min_bytes = 1;
    let fields = data_and_lines(value);
    let subject = Subject::new(&program(fields, vec![item(2)], Facts::default(), &[]), "parse_request");
    subject.done(b"a:b\r\nb:c\r\n\r\n");
    assert_eq!(subject.fault(b"a:b\r\nb:\r\n\r\n"), FaultCause::Malformed);
    assert_eq!(subject.fault(b"a:\r\n\r\n"), FaultCause::Malformed);
}

#[test]
fn lines_end_where_their_end_stands_though_a_name_might_begin_so() {
    let mut fields = data_and_lines(until(Some(LINE), b"\r\n", 20));
    fields[3].kind = run(LINE + 1, 1, 8);
    let mut program = program(fields, vec![item(2), literal(b"foo:x\r\n")], Facts::default(), &[]);
    let mut set = program.classes[WORD as usize].set;
    set[0] |= 1 << b'\r' | 1 << b'\n';
    program.classes.push(Class { name: "broken".to_owned(), set, span: Span::default() });
    Subject::new(&program, "parse_request").done(b"a:b\r\n\r\nfoo:x\r\n");
}

#[test]
fn lines_whose_names_have_a_least_length_are_refused_where_one_is_shorter() {
    let mut fields = data_and_lines(until(Some(LINE), b"\r\n", 20));
    fields[3].kind = run(WORD, 2, 8);
    let subject = Subject::new(&program(fields, vec![item(2)], Facts::default(), &[]), "parse_request");
    subject.done(b"ab:c\r\n\r\n");
    assert_eq!(subject.fault(b"ab:c\r\nd:e\r\n\r\n"), FaultCause::Malformed);
}

#[test]
fn lines_whose_values_must_stand_behind_a_blank_are_refused_where_one_does_not() {
    let mut fields = data_and_lines(until(Some(LINE), b"\r\n", 20));
    let FieldKind::List(lines) = &mut fields[2].kind else { panic!("it is a list") };
    lines.body.insert(2, item(5));
    fields.push(named("lines.blank", run(BLANK, 1, 4)));
    let subject = Subject::new(&program(fields, vec![item(2)], Facts::default(), &[]), "parse_request");
    subject.done(b"a: b\r\n\r\n");
    assert_eq!(subject.fault(b"a: b\r\nb:c\r\n\r\n"), FaultCause::Malformed);
}

#[test]
fn what_stands_behind_the_separator_may_be_the_key() {
    let mut fields = data_and_lines(until(Some(LINE), b"\r\n", 20));
    let FieldKind::List(lines) = &mut fields[2].kind else { panic!("it is a list") };
    let keyed = lines.keyed.as_mut().expect("it is looked into by key");
    (keyed.key, keyed.value, keyed.cut) = (FieldId(4), FieldId(3), vec![0]);
    let subject = Subject::new(&program(fields, vec![item(2)], Facts::default(), &[]), "parse_request");
    let frame = subject.done(b"a:x\r\nx:a\r\n\r\n");
    assert_eq!(frame.cuts().collect::<Vec<_>>(), [(5, 10)]);
}

#[test]
fn lines_may_end_in_three_bytes() {
    let mut fields = data_and_lines(until(Some(LINE), b"\r\n\n", 20));
    let FieldKind::List(lines) = &mut fields[2].kind else { panic!("it is a list") };
    lines.end = ListEnd::Until(b"\r\n\n".to_vec());
    let subject = Subject::new(&program(fields, vec![item(2)], Facts::default(), &[]), "parse_request");
    subject.done(b"a:b\r\n\nb:c\r\n\n\r\n\n");
}

#[test]
fn a_head_fits_an_integer_of_variable_length() {
    let fields = vec![named("n", FieldKind::Vint { derived: None })];
    let subject = Subject::new(&program(fields, vec![item(0)], Facts::default(), &[0]), "parse_request");
    let frame = subject.done(&[0x8e, 0x01, 0x2c]);
    assert_eq!(frame.slots[FRAME_HEAD_SLOTS], 300);
    let frame = subject.done(&[0x88, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
    assert_eq!(frame.slots[FRAME_HEAD_SLOTS], i64::MAX as u64);
}

#[test]
fn a_number_that_replies_are_found_by_lies_behind_the_literals_in_front_of_it() {
    let fields = vec![int_field("kind", repr(1), None), int_field("id", repr(4), None)];
    let facts = Facts { correlate: Some(FieldId(1)), ..Facts::default() };
    let body = vec![literal(b"abc"), item(0), literal(b":"), item(1)];
    let subject = Subject::new(&program(fields, body, facts, &[]), "parse_reply");
    subject.done(b"abc\x01:\x00\x00\x00\x07");
    let id = subject.engines.module.program.protocols[0].correlated().expect("replies have a number");
    assert_eq!((id.request.offset, id.request.width_bytes), (5, 4));
}

#[test]
fn kept_values_and_non_quiet_twins_follow_from_requests() {
    let fields = vec![int_field("id", repr(1), None), int_field("quiet", repr(1), None)];
    let facts = Facts {
        keep: Some(field(0)),
        loud: Some((FieldId(1), arithmetic(BinaryOp::Add, field(0), int(1)))),
        ..Facts::default()
    };
    let program = program(fields, vec![item(0), item(1)], facts, &[]);
    let check = |parser: &str, expected: (u64, u64)| {
        let frame = Subject::new(&program, parser).done(b"\x07\x00");
        assert_eq!((frame.slots[SLOT_ASKED], frame.slots[SLOT_NON_QUIET]), expected, "{parser}");
    };
    check("parse_request", (7, 8));
    check("parse_reply", (0, 0));
}

#[test]
fn a_head_fits_a_text_whose_bound_is_longer_than_a_short_head() {
    let line = named("line", until(Some(LINE), b"\r\n", 20_000));
    let subject = Subject::new(&program(vec![line], vec![item(0)], Facts::default(), &[0]), "parse_request");
    let data = [&[b'x'; 20_000][..], b"\r\n"].concat();
    assert_eq!(parts(&subject, &data), [(20_002, 20_002)]);
}

#[test]
fn a_number_of_19_digits_may_be_beyond_a_signed_word() {
    let fields = vec![named("n", number(10, 19))];
    let body = vec![item(0), literal(b"\n")];
    let subject = Subject::new(&program(fields, body, Facts::default(), &[0]), "parse_request");
    for number in [7, i64::MAX as u64, i64::MAX as u64 + 1, 9_999_999_999_999_999_999] {
        assert_eq!(subject.done(format!("{number}\n").as_bytes()).slots[FRAME_HEAD_SLOTS], number);
    }
}

#[test]
fn a_length_is_refused_before_what_stands_behind_its_bytes_is_there() {
    let fields = vec![int_field("len", repr(1), None), named("data", bytes(field(0), Some(3)))];
    let body = vec![item(0), item(1), literal(b"\r\n")];
    let subject = Subject::new(&program(fields, body, Facts::default(), &[]), "parse_request");
    subject.done(b"\x03abc\r\n");
    assert_eq!(subject.fault(b"\x04"), FaultCause::TooLong);
}

#[test]
fn a_message_of_no_bytes_is_none() {
    let nothing = named("nothing", bytes(int(0), None));
    let subject = Subject::new(&program(vec![nothing], vec![item(0)], Facts::default(), &[]), "parse_reply");
    assert_eq!(subject.fault(b"x"), FaultCause::Arithmetic);
}

#[test]
fn keys_of_a_list_behind_another_one_are_changed_in_their_own_lines() {
    let text = r#"
type al = class { "a".."z" };
type l = unit { n : string<4> &of = al; ":"; v : string<4> &until = "\n" &of = al; };
type q = unit {
  a : [l]<4> &until = "\n" &key = n &value = v;
  b : [l]<4> &until = "\n" &key = n &value = v;
  %order = in_order;
};
proc P: (q/q client, q/q backend)
  | backend => client
  | client => to(backend)

fun to: (-/q backend, m: q) -> ()
  m with a["x"] = "p", b["x"] = "q" => backend
"#;
    let subject = Subject::new(&program_with(text, &[]), "parse_request");
    let data = b"x:a\ny:b\nx:c\n\nz:d\nx:e\n\n";
    let frame = subject.done(data);
    // Four items are the first list's: two lines, each with its name.
    let found = (0..24).find(|index| frame.slots[FRAME_HEAD_SLOTS + index] == 4 | 2 << 32);
    assert_eq!(items(&frame, found.expect("the second list is kept"), data), [&b"x"[..], b"x:e\n"]);
}

/// The parser of a flat unit, whole and cut at every byte.
fn flat(fields: Vec<Field>, view: &[u32], data: &[u8]) -> (ParseStep, Frame) {
    let program = hand::program(fields, Facts::default(), view);
    let engines = Engines::new(lowered(&program));
    engines.parse_at_every_cut(engines.find("parse_request.client"), data)
}

#[test]
fn an_integer_behind_bytes_of_constant_length_is_waited_for() {
    let fields = || vec![bytes_field("name", int(3), Some(3), false), int_field("n", repr(4), None)];
    for view in [&[1][..], &[0, 1]] {
        let (step, frame) = flat(fields(), view, &[b'a', b'b', b'c', 0, 0, 1, 7]);
        assert_eq!(step, ParseStep::Done);
        assert_eq!(frame.slots[FRAME_HEAD_SLOTS + view.len() - 1], 0x107);
    }
}

#[test]
fn a_length_outlasts_a_cut_behind_it_and_what_it_is_computed_from_one_before_it() {
    let less = arithmetic(BinaryOp::Sub, field(0), int(1));
    let fields = vec![int_field("len", repr(1), None), bytes_field("name", less, Some(9), false)];
    let (step, frame) = flat(fields, &[1], &[3, b'a', b'b']);
    assert_eq!((step, frame.total_bytes()), (ParseStep::Done, 3));

    let mut first = int_field("first", repr(1), None);
    first.requires = vec![compare(BinaryOp::Lt, field(0), int(9))];
    let both = arithmetic(BinaryOp::Add, field(0), field(1));
    let fields = vec![first, int_field("second", repr(1), None), bytes_field("name", both, Some(20), false)];
    let (step, frame) = flat(fields, &[2], &[1, 2, b'a', b'b', b'c']);
    assert_eq!((step, frame.total_bytes()), (ParseStep::Done, 5));
}

#[test]
fn a_bound_of_the_view_holds_for_its_own_field_alone() {
    let fields = vec![
        int_field("len", repr(1), None),
        bytes_field("name", field(0), None, false),
        bytes_field("other", field(0), None, false),
    ];
    let mut program = hand::program(fields, Facts::default(), &[1, 2]);
    let view = &mut program.process.as_mut().expect("the program has a process").channels[0].view;
    (view[0].max, view[1].max) = (Some(9), Some(4));
    let engines = Engines::new(lowered(&program));
    let parser = engines.find("parse_request.client");
    assert_eq!(engines.parse_at_every_cut(parser, b"\x04abcdabcd").0, ParseStep::Done);
    assert_eq!(
        engines.parse_at_every_cut(parser, b"\x05abcdeabcde").0,
        ParseStep::Fault { field: 2, cause: FaultCause::TooLong }
    );
}

#[test]
fn a_message_is_refused_as_soon_as_what_a_check_reads_is_there() {
    let mut second = int_field("second", repr(1), None);
    second.requires = vec![compare(BinaryOp::Eq, field(1), int(1))];
    let fields = vec![int_field("first", repr(1), None), second, int_field("third", repr(4), None)];
    let (step, _) = flat(fields.clone(), &[0, 1, 2], &[0, 2]);
    assert_eq!(step, ParseStep::Fault { field: 1, cause: FaultCause::Malformed });
    let (step, _) = flat(fields, &[0, 1, 2], &[0, 1, 0, 0, 0, 0]);
    assert_eq!(step, ParseStep::Done);
}

/// Parses a request of a program whose only rule says how long its text is.
fn step_of(request: &str, data: &[u8]) -> ParseStep {
    let text = format!(
        "type letter = class {{ \"a\"..\"z\" }};\n{request}\ntype r = unit {{ text : string<90> &until = \"\\n\"; }};\n\n\
         proc P: (q/r client)\n  | client => f() => client\n\n\
         fun f: (m: q) -> (r)\n  r{{text = str(len(m.text))}}\n"
    );
    let engines = Engines::new(lower_with(&text, &[]));
    engines.parse(engines.find("parse_request.client"), &mut Frame::new(), data)
}

#[test]
fn zeros_before_the_numbers_of_a_list_led_beyond_the_longest_head() {
    let request = "type el = unit { n : decimal<1> &zeros; \",\"; t : string<500> &of = letter &min = 0; \";\"; };\n\
                   type q = unit { list : [el]<32> &until = \"\\n\"; var s : uint32 &sum = len(self.list.t); text : string<9> \
                   &until = \"\\n\"; %replies = r; %order = in_order; };";
    let message = |zeros: usize| {
        let element = format!("{}7,{};", "0".repeat(zeros), "a".repeat(500));
        (element.repeat(32) + "\nend\n").into_bytes()
    };
    assert_eq!(step_of(request, &message(0)), ParseStep::Done);
    // 512 bytes each.
    let step = step_of(request, &message(9));
    assert!(matches!(step, ParseStep::Fault { cause: FaultCause::TooLong, .. }), "{step:?}");
}

#[test]
fn literals_of_more_than_a_head_made_the_compiler_panic() {
    let literal = format!("\"{}\"; ", "a".repeat(64));
    let request = |count: usize| {
        let literals = literal.repeat(count);
        format!(
            "type q = unit {{ {literals}text : string<9> &until = \"\\n\"; %replies = r; %order = in_order; }};"
        )
    };
    assert_eq!(step_of(&request(200), &[&[b'a'; 64 * 200][..], b"end\n"].concat()), ParseStep::Done);
    let step = step_of(&request(300), &[&[b'a'; 64 * 300][..], b"end\n"].concat());
    assert!(matches!(step, ParseStep::Fault { cause: FaultCause::TooLong, .. }), "{step:?}");
}
