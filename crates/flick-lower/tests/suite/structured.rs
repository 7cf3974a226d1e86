//! Parsers of structured units, from trees written by hand: whole, cut at every byte, and in parts.

use flick_abi::frame::{SLOT_CUTS, SLOT_ITEMS};
use flick_abi::limits::FRAME_HEAD_SLOTS;
use flick_abi::{BytesRef, FaultCause, Frame, FuncId, MessageFlags, ParseStep};
use flick_check::hir::{
    BinaryOp, Builtin, Channel, Check, Choice, Class, ClassId, DecodedField, Expr, ExprKind, Facts, Field,
    FieldId, FieldKind, IntRepr, Item, Keyed, List, ListEnd, Literal, Proc, Program, Span, Ty, Unit, UnitId,
};
use flick_testkit::feed::{FeedOutcome, feed};

use crate::engines::Engines;
use crate::hand::{block, bool_expr, compare, field, int, int_expr};
use crate::source::{lowered, program_with};

pub fn named(name: &str, kind: FieldKind) -> Field {
    let name = Some(name.to_owned());
    Field {
        name,
        kind,
        requires: Vec::new(),
        cause: FaultCause::Malformed,
        too_long: FaultCause::TooLong,
        default: None,
        span: Span::default(),
    }
}

pub fn literal(bytes: &[u8]) -> Item {
    let (bytes, span) = (bytes.to_vec(), Span::default());
    Item::Literal(Literal {
        bytes,
        nocase: false,
        optional: false,
        supplied: false,
        cut: false,
        cause: FaultCause::Malformed,
        span,
    })
}

pub fn item(id: u32) -> Item {
    Item::Field(FieldId(id))
}

pub fn run(class: u32, min_bytes: u32, max_bytes: u32) -> FieldKind {
    FieldKind::Text {
        text: true,
        class: Some(ClassId(class)),
        until: None,
        min_bytes,
        max_bytes,
        trim: false,
        cut: false,
    }
}

pub fn until(class: Option<u32>, end: &[u8], max_bytes: u32) -> FieldKind {
    let until = Some(end.to_vec());
    FieldKind::Text {
        text: true,
        class: class.map(ClassId),
        until,
        min_bytes: 0,
        max_bytes,
        trim: false,
        cut: false,
    }
}

pub fn number(base: u8, digits_max: u8) -> FieldKind {
    FieldKind::Number { base, digits_max, signed: false, zeros: false, derived: None }
}

pub fn bytes(length: Expr, max_bytes: Option<u32>) -> FieldKind {
    FieldKind::Bytes { text: false, max_bytes, length, streamed: max_bytes.is_none() }
}

pub fn text(bytes: &[u8]) -> Expr {
    let ty = Ty::Bytes { max: bytes.len() as u32, text: true };
    Expr { kind: ExprKind::Str(bytes.to_vec()), ty, span: Span::default() }
}

/// `self.list["key"] else otherwise`.
fn key_or(list: u32, key: u32, otherwise: &[u8]) -> Expr {
    let ty = Ty::Bytes { max: 100, text: true };
    let option = Ty::Option(Box::new(ty.clone()));
    let kind = ExprKind::SelfKey(FieldId(list), key);
    let option = Expr { kind, ty: option, span: Span::default() };
    let kind = ExprKind::OrElse(Box::new(option), block(text(otherwise)));
    Expr { kind, ty, span: Span::default() }
}

pub fn same(a: Expr, b: Expr) -> Expr {
    bool_expr(ExprKind::Binary(BinaryOp::Eq, Box::new(a), Box::new(b)))
}

fn class(name: &str, has: impl Fn(u8) -> bool) -> Class {
    let mut set = [0; 4];
    (0..=255_u8).filter(|byte| has(*byte)).for_each(|byte| set[usize::from(byte) / 64] |= 1 << (byte % 64));
    Class { name: name.to_owned(), set, span: Span::default() }
}

pub const WORD: u32 = 0;
pub const GRAPH: u32 = 1;
pub const BLANK: u32 = 2;
pub const LINE: u32 = 3;

pub fn program(fields: Vec<Field>, body: Vec<Item>, facts: Facts, view: &[u32]) -> Program {
    let classes = vec![
        class("word", |byte| byte.is_ascii_alphanumeric() || byte == b'-'),
        class("graph", |byte| byte.is_ascii_graphic()),
        class("blank", |byte| byte == b' ' || byte == b'\t'),
        class("line", |byte| byte == b'\t' || byte >= b' ' && byte != 0x7f),
    ];
    let unit = Unit { name: "msg".to_owned(), fields, body: Some(body), facts, span: Span::default() };
    let view =
        view.iter().map(|id| DecodedField { field: FieldId(*id), max: None, optional: false }).collect();
    let channel = Channel {
        name: "client".to_owned(),
        is_array: false,
        receives: Some(UnitId(0)),
        sends: Some(UnitId(0)),
        view,
        keys: Vec::new(),
        whole: false,
        span: Span::default(),
    };
    let process = Proc {
        name: "P".to_owned(),
        channels: vec![channel],
        rules: Vec::new(),
        merges: Vec::new(),
        handlers: Vec::new(),
        timers: Vec::new(),
        span: Span::default(),
    };
    Program { units: vec![unit], classes, process: Some(process), ..Program::default() }
}

/// A grammar under test.
pub struct Subject {
    pub engines: Engines,
    pub parser: FuncId,
}

impl Subject {
    pub fn new(program: &Program, parser: &str) -> Self {
        let engines = Engines::new(lowered(program));
        let parser = engines.find(&format!("{parser}.client"));
        Self { engines, parser }
    }

    /// Returns the result of parsing `data`, which is the same for every cut, and the frame of the last part.
    pub fn outcome(&self, data: &[u8]) -> (FeedOutcome, Frame) {
        let parse = |frame: &mut Frame, have: &[u8]| self.engines.parse(self.parser, frame, have);
        let whole = feed(parse, data, 0, &[data.len()]);
        let singles: Vec<usize> = (0..=data.len()).collect();
        for ends in (0..data.len()).map(|cut| vec![cut, data.len()]).chain([singles]) {
            let cut = feed(parse, data, 0, &ends);
            assert_eq!(cut.0, whole.0, "cut at {ends:?} of \"{}\"", data.escape_ascii());
            if whole.0 == FeedOutcome::Done(whole.1.total_bytes()) {
                let own = FRAME_HEAD_SLOTS..;
                assert_eq!(cut.1.slots[own.clone()], whole.1.slots[own], "cut at {ends:?}");
                assert_eq!(cut.1.slots[SLOT_ITEMS], whole.1.slots[SLOT_ITEMS]);
                assert_eq!(cut.1.cuts().collect::<Vec<_>>(), whole.1.cuts().collect::<Vec<_>>());
            }
        }
        whole
    }

    pub fn done(&self, data: &[u8]) -> Frame {
        let (outcome, frame) = self.outcome(data);
        assert_eq!(outcome, FeedOutcome::Done(data.len() as u64), "\"{}\"", data.escape_ascii());
        frame
    }

    pub fn fault(&self, data: &[u8]) -> FaultCause {
        match self.outcome(data).0 {
            FeedOutcome::Fault(_, cause) => cause,
            other => panic!("{other:?} of \"{}\"", data.escape_ascii()),
        }
    }
}

/// The bytes in a slot behind those of the platform.
pub fn slot<'d>(frame: &Frame, index: usize, data: &'d [u8]) -> Option<&'d [u8]> {
    let value = BytesRef(frame.slots[FRAME_HEAD_SLOTS + index]);
    (value != BytesRef::MISSING)
        .then(|| value.resolve(|_| Some(data), &[], &[]).expect("it lies in the message"))
}

fn line_subject() -> Subject {
    let fields = vec![
        named("method", run(WORD, 1, 8)),
        named("target", until(Some(GRAPH), b" ", 20)),
        named("minor", number(10, 1)),
        named("code", number(10, 3)),
        named("rest", until(None, b"\r\n", 10)),
    ];
    let check = Check {
        expr: compare(BinaryOp::Lt, field(2), int(2)),
        cause: FaultCause::Unsupported,
        span: Span::default(),
    };
    let body = vec![
        item(0),
        literal(b" "),
        item(1),
        literal(b"HTTP/1."),
        item(2),
        Item::Check(check),
        literal(b" "),
        item(3),
        literal(b" "),
        item(4),
    ];
    Subject::new(&program(fields, body, Facts::default(), &[0, 1, 2, 3, 4]), "parse_request")
}

#[test]
fn texts_numbers_and_literals() {
    let subject = line_subject();
    let data = b"GET /a?b=c HTTP/1.1 200 ok\rfine\r\n";
    let frame = subject.done(data);
    assert_eq!(slot(&frame, 0, data), Some(&b"GET"[..]));
    assert_eq!(slot(&frame, 1, data), Some(&b"/a?b=c"[..]));
    assert_eq!(frame.slots[FRAME_HEAD_SLOTS + 2], 1);
    assert_eq!(frame.slots[FRAME_HEAD_SLOTS + 3], 200);
    assert_eq!(slot(&frame, 4, data), Some(&b"ok\rfine"[..]));
    subject.done(b"A  HTTP/1.0 7 \r\n");
    subject.done(b"12345678 12345678901234567890 HTTP/1.0 7 1234567890\r\n");
    let refused: [(&[u8], FaultCause); 10] = [
        (b" / HTTP/1.1 200 \r\n", FaultCause::Malformed),
        (b"123456789 / HTTP/1.1 200 \r\n", FaultCause::TooLong),
        (b"GET 123456789012345678901 HTTP/1.1 200 \r\n", FaultCause::TooLong),
        (b"GET /\x01 HTTP/1.1 200 \r\n", FaultCause::Malformed),
        (b"GET / HTTP/2.1 200 \r\n", FaultCause::Malformed),
        (b"GET / HTTP/1.2 200 \r\n", FaultCause::Unsupported),
        (b"GET / HTTP/1.x 200 \r\n", FaultCause::Malformed),
        (b"GET / HTTP/1.1 2000 \r\n", FaultCause::Malformed),
        (b"GET / HTTP/1.1  \r\n", FaultCause::Malformed),
        (b"GET / HTTP/1.1 200 12345678901\r\n", FaultCause::TooLong),
    ];
    for (data, cause) in refused {
        assert_eq!(subject.fault(data), cause, "\"{}\"", data.escape_ascii());
    }
}

/// A request line, fields, a body by length or in chunks.
pub fn http(view: &[u32]) -> Program {
    let chunked =
        FieldKind::Flag { parse: same(key_or(3, 1, b""), text(b"chunked")), any: Some((FieldId(3), 1)) };
    let parsed = Expr {
        kind: ExprKind::Builtin(Builtin::ParseInt, vec![key_or(3, 0, b"0")]),
        ty: Ty::Option(Box::new(int(0).ty)),
        span: Span::default(),
    };
    let length = int_expr(ExprKind::OrElse(Box::new(parsed), block(int(-1))));
    let length = FieldKind::Var { repr: IntRepr { width_bytes: 8, signed: false }, parse: length, sum: None };
    let keyed = Keyed {
        key: FieldId(4),
        value: FieldId(5),
        nocase: true,
        keys: [&b"content-length"[..], b"transfer-encoding", b"connection", b"te", b"host"]
            .map(<[u8]>::to_vec)
            .into(),
        once: vec![0],
        cut: vec![2, 3],
        cut_listed: Some(2),
        keep_cut: None,
        follows: Vec::new(),
    };
    let headers = List {
        body: vec![item(4), literal(b":"), item(6), item(5)],
        end: ListEnd::Until(b"\r\n".to_vec()),
        max: Some(6),
        element: None,
        keyed: Some(keyed),
        elem_bytes_max: 100,
        elem_text: false,
        fields_end: 0,
        streamed: false,
        bare: None,
    };
    let chunks = List {
        body: vec![item(11), item(12), item(13), literal(b"\r\n")],
        end: ListEnd::Last(compare(BinaryOp::Eq, field(11), int(0))),
        max: None,
        element: None,
        keyed: None,
        elem_bytes_max: 0,
        elem_text: false,
        fields_end: 0,
        streamed: true,
        bare: None,
    };
    let fields = vec![
        named("method", run(WORD, 1, 8)),
        named("target", until(Some(GRAPH), b" ", 20)),
        named("minor", number(10, 1)),
        named("headers", FieldKind::List(Box::new(headers))),
        named("headers.name", run(WORD, 1, 32)),
        named("headers.value", until(Some(LINE), b"\r\n", 80)),
        named("headers.blank", run(BLANK, 0, 4)),
        named("chunked", chunked),
        named("length", length),
        named("body", bytes(field(8), None)),
        named("chunks", FieldKind::List(Box::new(chunks))),
        named("chunks.size", number(16, 5)),
        named("chunks.ext", until(None, b"\r\n", 16)),
        named("chunks.data", bytes(field(11), None)),
    ];
    let choice = Choice {
        on: Expr { ty: Ty::Bool, ..field(7) },
        arms: vec![(vec![bool_expr(ExprKind::Bool(true))], vec![item(10)])],
        otherwise: Some(vec![item(9)]),
        cause: FaultCause::Malformed,
        span: Span::default(),
    };
    let body = vec![
        item(0),
        literal(b" "),
        item(1),
        literal(b"HTTP/1."),
        item(2),
        literal(b"\r\n"),
        item(3),
        item(7),
        item(8),
        Item::Switch(choice),
    ];
    let last = Some(same(key_or(3, 2, b""), text(b"close")));
    program(fields, body, Facts { last, ..Facts::default() }, view)
}

#[test]
fn keyed_fields_and_a_body_by_length() {
    let subject = Subject::new(&http(&[0, 1]), "parse_request");
    let data = b"GET / HTTP/1.1\r\nHost: a\r\nCONTENT-length:5\r\nx:\r\n\r\nhello";
    let frame = subject.done(data);
    assert_eq!(frame.head_bytes(), data.len() as u64 - 5);
    assert_eq!(frame.flags(), MessageFlags(0));
    assert_eq!(frame.slots[SLOT_CUTS], 0);
    let frame = subject.done(b"GET / HTTP/1.1\r\nconnection: close\r\n\r\n");
    assert_eq!(frame.flags(), MessageFlags(MessageFlags::LAST));
    assert_eq!(frame.cuts().collect::<Vec<_>>(), [(16, 35)]);
    let data = b"GET / HTTP/1.1\r\nConnection: x-a\r\nX-A: 1\r\nb: 2\r\nte: 3\r\nConnection: y, b\r\n\r\n";
    let frame = subject.done(data);
    let cut: Vec<&[u8]> = frame.cuts().map(|(start, end)| &data[start as usize..end as usize]).collect();
    assert_eq!(cut.concat(), &data[16..data.len() - 2], "all but the line and the end");
    let refused: [(&[u8], FaultCause); 4] = [
        (b"GET / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 1\r\n\r\n", FaultCause::Malformed),
        (b"GET / HTTP/1.1\r\ncontent-length: x\r\n\r\n", FaultCause::Malformed),
        (b"GET / HTTP/1.1\r\na : x\r\n\r\n", FaultCause::Malformed),
        (b"GET / HTTP/1.1\r\na:1\r\na:2\r\na:3\r\na:4\r\na:5\r\na:6\r\na:7\r\n\r\n", FaultCause::TooLong),
    ];
    for (data, cause) in refused {
        assert_eq!(subject.fault(data), cause, "\"{}\"", data.escape_ascii());
    }
}

#[test]
fn a_body_in_chunks_comes_in_parts_unless_it_is_asked_for_whole() {
    let data = b"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n10\r\n0123456789abcdef\r\n0\r\n\r\n";
    let subject = Subject::new(&http(&[0, 1]), "parse_request");
    subject.done(data);
    let (step, frame) = subject.engines.parse_whole(subject.parser, data);
    assert_eq!(step, ParseStep::Done);
    assert_eq!(frame.flags(), MessageFlags(MessageFlags::PARTS));
    assert_eq!(&data[frame.total_bytes() as usize..][..2], b"3;", "the first part is the head");
    let subject = Subject::new(&http(&[0, 1]), "parse_asked");
    let frame = subject.done(data);
    assert_eq!(frame.head_bytes(), data.len() as u64);
    assert_eq!(
        subject.fault(b"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nabcd\r\n"),
        FaultCause::Malformed
    );
}

/// A tree of tagged values by prefix, a list that fills a length, one that is counted; bits, integers of variable
/// length, fields that may be there.
fn binary(view: &[u32]) -> Program {
    let byte = || FieldKind::Int {
        repr: IntRepr { width_bytes: 1, signed: false },
        big_endian: true,
        enumeration: None,
        derived: None,
    };
    let wide = || FieldKind::Int {
        repr: IntRepr { width_bytes: 2, signed: false },
        big_endian: true,
        enumeration: None,
        derived: None,
    };
    let list = |body: Vec<Item>, end: ListEnd, max: u32, element: Option<u32>| {
        let element = element.map(FieldId);
        FieldKind::List(Box::new(List {
            body,
            end,
            max: Some(max),
            element,
            keyed: None,
            elem_bytes_max: 9,
            elem_text: false,
            fields_end: 0,
            streamed: false,
            bare: None,
        }))
    };
    let has = |body: Vec<Item>| {
        Item::Switch(Choice {
            on: compare(BinaryOp::Eq, field(3), int(1)),
            arms: vec![(vec![bool_expr(ExprKind::Bool(true))], body)],
            otherwise: Some(Vec::new()),
            cause: FaultCause::Malformed,
            span: Span::default(),
        })
    };
    let kids = Choice {
        on: field(9),
        arms: vec![(vec![int(7)], vec![item(10)]), (vec![int(8), int(9)], vec![item(11), item(12)])],
        otherwise: None,
        cause: FaultCause::Unsupported,
        span: Span::default(),
    };
    let fields = vec![
        named("", wide()),
        named("high", FieldKind::Bits { of: FieldId(0), shift: 12, width: 4 }),
        named("middle", FieldKind::Bits { of: FieldId(0), shift: 1, width: 11 }),
        named("low", FieldKind::Bits { of: FieldId(0), shift: 0, width: 1 }),
        named("size", FieldKind::Varint { bytes_max: 9, derived: None }),
        named("vint", FieldKind::Vint { derived: None }),
        named("maybe", wide()),
        named("text", bytes(field(1), Some(15))),
        named("tree", list(vec![item(9), Item::Switch(kids)], ListEnd::Children(field(10)), 5, None)),
        named("tree.tag", byte()),
        named("tree.kids", byte()),
        named("tree.len", byte()),
        named("tree.data", bytes(field(11), Some(100))),
        named("pairs", list(vec![item(14), item(15)], ListEnd::Bytes(field(4)), 4, Some(15))),
        named("pairs.len", byte()),
        named("pairs.data", bytes(field(14), Some(8))),
        named("all", list(vec![item(17)], ListEnd::Count(field(6)), 3, Some(17))),
        named("all.word", until(None, b";;", 5)),
    ];
    let maybe = Item::Literal(Literal {
        bytes: b"\r\n".to_vec(),
        nocase: false,
        optional: true,
        supplied: false,
        cut: false,
        cause: FaultCause::Malformed,
        span: Span::default(),
    });
    let body = vec![
        item(0),
        item(1),
        item(2),
        item(3),
        item(4),
        item(5),
        has(vec![item(6)]),
        maybe,
        literal(b"\r"),
        item(7),
        item(8),
        item(13),
        item(16),
    ];
    program(fields, body, Facts::default(), view)
}

pub fn items<'d>(frame: &Frame, index: usize, data: &'d [u8]) -> Vec<&'d [u8]> {
    let word = frame.slots[FRAME_HEAD_SLOTS + index];
    let (first, count) = (word as u32 as usize, (word >> 32) as usize);
    let bytes =
        |item: &u64| BytesRef(*item).resolve(|_| Some(data), &[], &[]).expect("it lies in the message");
    frame.items()[first..first + count].iter().map(bytes).collect()
}

#[test]
fn bits_variable_lengths_lists_and_what_may_be_there() {
    let subject = Subject::new(&binary(&[1, 2, 3, 4, 5, 6, 7, 8, 13, 16]), "parse_asked");
    let head = |size: u8, flag: u8| [&[0x30, flag, size][..], &[0x8e, 0x01, 0x2c]].concat();
    let tree = [7, 2, 8, 1, b'x', 7, 1, 9, 0];
    let data =
        [&head(5, 1)[..], &[0, 2], b"\r\n\rabc", &tree, &[1, b'p', 2, b'q', b'r'], b"x;;;yz;;"].concat();
    let frame = subject.done(&data);
    let numbers = &frame.slots[FRAME_HEAD_SLOTS..];
    assert_eq!(numbers[..6], [3, 0, 1, 5, 300, 2]);
    assert_eq!(slot(&frame, 6, &data), Some(&b"abc"[..]));
    assert_eq!(items(&frame, 7, &data), [&tree[..2], &tree[2..5], &tree[5..7], &tree[7..]]);
    let lists = (8..14).find(|index| items_at(&frame, *index) == (4, 2)).expect("the pairs are kept");
    assert_eq!(items(&frame, lists, &data), [&b"p"[..], b"qr"]);
    let lists = (8..20).find(|index| items_at(&frame, *index) == (6, 2)).expect("the words are kept");
    assert_eq!(items(&frame, lists, &data), [&b"x"[..], b";yz"]);
    // No number, so no words; the literal that may be there is only begun.
    let data = [&head(0, 0)[..], b"\rabc", &[8, 0]].concat();
    let frame = subject.done(&data);
    assert_eq!(frame.slots[FRAME_HEAD_SLOTS + 5], 0);
    let refused: [(Vec<u8>, FaultCause); 5] = [
        ([&head(0, 0)[..], b"\rabc", &[6]].concat(), FaultCause::Unsupported),
        ([&head(0, 0)[..], b"\rabc", &[7, 9, 7, 0, 7, 0, 7, 0, 7, 0, 7, 0]].concat(), FaultCause::TooLong),
        ([&head(1, 0)[..], b"\rabc", &[8, 0], &[1, b'a']].concat(), FaultCause::Malformed),
        ([&head(0, 1)[..], &[0, 4], b"\rabc", &[8, 0]].concat(), FaultCause::TooLong),
        ([&[0x30, 0][..], &[0xff; 9], &[0]].concat(), FaultCause::Malformed),
    ];
    for (data, cause) in refused {
        assert_eq!(subject.fault(&data), cause, "{data:?}");
    }
}

fn items_at(frame: &Frame, index: usize) -> (u32, u32) {
    let word = frame.slots[FRAME_HEAD_SLOTS + index];
    (word as u32, (word >> 32) as u32)
}

/// A length, data, an end; `optional`: the program looks at data of up to 4 bytes.
fn block_of_data(optional: bool) -> Program {
    let fields = vec![named("len", number(10, 6)), named("data", bytes(field(0), None))];
    let body = vec![item(0), literal(b"\r\n"), item(1), literal(b"\r\n")];
    let mut program = program(fields, body, Facts::default(), &[0]);
    if optional {
        let view = &mut program.process.as_mut().expect("the program has a process").channels[0].view;
        view.push(DecodedField { field: FieldId(1), max: Some(4), optional: true });
    }
    program
}

pub fn parts(subject: &Subject, data: &[u8]) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    let parse = |frame: &mut Frame, have: &[u8]| {
        let step = subject.engines.parse(subject.parser, frame, have);
        if step == ParseStep::Done {
            found.push((frame.head_bytes(), frame.total_bytes()));
        }
        step
    };
    let (outcome, _) = feed(parse, data, 0, &[data.len()]);
    assert_eq!(outcome, FeedOutcome::Done(data.len() as u64));
    found
}

#[test]
fn long_data_in_the_middle_passes_and_short_data_is_waited_for() {
    let message = |len: usize| [format!("{len}\r\n").as_bytes(), &vec![b'x'; len], b"\r\n"].concat();
    let subject = Subject::new(&block_of_data(false), "parse_reply");
    subject.done(&message(0));
    subject.done(&message(5));
    assert_eq!(parts(&subject, &message(5)), [(10, 10)]);
    assert_eq!(parts(&subject, &message(8192)), [(8200, 8200)]);
    assert_eq!(parts(&subject, &message(8193)), [(6, 8199), (2, 2)]);
    assert_eq!(subject.fault(b"3\r\nabcde"), FaultCause::Malformed);
    let subject = Subject::new(&block_of_data(true), "parse_reply");
    let data = message(4);
    assert_eq!(slot(&subject.done(&data), 1, &data), Some(&b"xxxx"[..]));
    let data = message(5);
    assert_eq!(slot(&subject.done(&data), 1, &data), None);
    assert_eq!(parts(&subject, &message(9000)), [(6, 9006), (2, 2)]);
    let subject = Subject::new(&block_of_data(true), "parse_asked");
    let data = message(4);
    assert_eq!(slot(&subject.done(&data), 1, &data), Some(&b"xxxx"[..]));
    assert_eq!(parts(&subject, &message(9000)), [(9008, 9008)]);
    let (outcome, _) = subject.outcome(&message(16384)[..100]);
    assert_eq!(outcome, FeedOutcome::Fault(1, FaultCause::TooLong), "it fits no head");
}

/// Frames until a length is reached, and a message that ends with its connection.
pub fn streams(end: ListEnd) -> Program {
    let list = List {
        body: vec![item(2), literal(b":"), item(3)],
        end,
        max: None,
        element: None,
        keyed: None,
        elem_bytes_max: 0,
        elem_text: false,
        fields_end: 0,
        streamed: true,
        bare: None,
    };
    let fields = vec![
        named("n", number(10, 3)),
        named("all", FieldKind::List(Box::new(list))),
        named("all.len", number(10, 3)),
        named("all.data", bytes(field(2), Some(9))),
        named("rest", FieldKind::ToClose { text: false }),
    ];
    program(fields, vec![item(0), literal(b"\n"), item(1)], Facts::default(), &[0])
}

#[test]
fn unread_lists_pass_element_by_element() {
    let subject = Subject::new(&streams(ListEnd::Bytes(field(0))), "parse_reply");
    subject.done(b"0\n");
    assert_eq!(parts(&subject, b"9\n0:1:a2:bc"), [(2, 2), (2, 2), (3, 3), (4, 4)]);
    subject.done(b"9\n0:1:a2:bc");
    assert_eq!(subject.fault(b"8\n0:1:a2:bc"), FaultCause::Malformed);
    let subject = Subject::new(&streams(ListEnd::Count(field(0))), "parse_reply");
    assert_eq!(parts(&subject, b"3\n0:1:a2:bc"), [(2, 2), (2, 2), (3, 3), (4, 4)]);
    subject.done(b"3\n0:1:a2:bc");
    let subject = Subject::new(&streams(ListEnd::Until(b"end".to_vec())), "parse_reply");
    assert_eq!(parts(&subject, b"3\n0:1:aend"), [(2, 2), (2, 2), (3, 3), (3, 3)]);
    subject.done(b"3\n0:1:aend");
    let subject = Subject::new(&streams(ListEnd::Count(field(0))), "parse_asked");
    assert_eq!(parts(&subject, b"3\n0:1:a2:bc"), [(11, 11)]);
}

/// A program that reads the list `ls`, the elements of which hold a list; `types`: theirs, `q` the message.
fn nested(types: &str) -> Subject {
    let text = format!(
        r#"
type al = class {{ "a".."z" }};
type w = unit {{ n : string<8> &of = al; " "; }};
type r = unit {{ code : decimal<3>; "\n"; }};
{types}
proc P: (q/r client, [r/q] backends)
  | backends => client
  | client => to(backends)

fun to: ([-/q] backends, req: q) -> ()
  log(text(req.ls[0] else raw("")))
  req => backends[0]
"#
    );
    Subject::new(&program_with(&text, &[]), "parse_request")
}

#[test]
fn elements_that_hold_a_list_are_their_bytes_to_a_program_that_reads_the_outer_list() {
    let check = |types: &str, data: &[u8], elements: &[&[u8]]| {
        let frame = nested(types).done(data);
        let all: Vec<&[u8]> = frame.items()[..frame.slots[SLOT_ITEMS] as usize]
            .iter()
            .map(|item| BytesRef(*item).resolve(|_| Some(data), &[], &[]).expect("it lies in the message"))
            .collect();
        assert_eq!(all, elements, "{types}");
    };
    let q = r#"type q = unit { ls : [l]<4> &until = "\n"; %replies = r; %order = in_order; };"#;
    let lone = format!(
        r#"type l = unit {{ ws : [w]<4> &until = ";"; }};
{q}"#
    );
    check(&lone, b"ab c ;;d e f g ;\n", &[b"ab c ;", b";", b"d e f g ;"]);
    check(&lone, b"\n", &[]);
    assert_eq!(nested(&lone).fault(b"a b c d e ;\n"), FaultCause::TooLong);
    let keyed = format!(
        r#"type l = unit {{ ws : [w]<4> &until = ";" &key = n &value = n; }};
{q}"#
    );
    check(&keyed, b"ab c ;d ;\n", &[b"ab c ;", b"d ;"]);
    let number = r#"type l = unit { t : decimal<3>; ","; n : uint8; ws : [w]<4> &count = self.n; };
type q = unit { ls : [l]<4> &last = self.ls.t == 0; %replies = r; %order = in_order; };"#;
    check(number, b"7,\x02a bc 12,\x000,\x01d ", &[b"7,\x02a bc ", b"12,\x00", b"0,\x01d "]);
    let text = format!(
        r#"type l = unit {{ first : w; ws : [w]<4> &until = ";"; }};
{q}"#
    );
    check(&text, b"a b ;c ;\n", &[b"a b ;", b"c ;"]);
    let inner = r#"type k = unit { ws : [w]<4> &until = ";"; };
type l = unit { ks : [k]<4> &until = "."; };"#;
    check(&format!("{inner}\n{q}"), b"a b ;;.c ;.\n", &[b"a b ;;.", b"c ;."]);
}
