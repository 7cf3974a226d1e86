//! The reply to each request: data in, data out, through `check`.

use super::*;

/// Sends each request of `talk` to one fresh handler and compares its reply, as `status [extras] [key] [value]`.
#[track_caller]
fn check(talk: &[(&str, &str)]) {
    let mut handler = RequestHandler::new(Table::new(100, 1 << 20, 1), 1_000);
    for (line, expected) in talk {
        let (header, body) = request(line);
        let mut out = Vec::new();
        let then = handler.answer(header, &body, 1_000, &mut out);
        let mut seen = replies(&out);
        if then == Then::Close {
            seen.push_str(" close");
        }
        assert_eq!(seen.trim(), *expected, "to {line:?}");
    }
}

/// Reads `Opcode key value`, with `-` for nothing; extras are those the opcode needs.
fn request(line: &str) -> (Header, Vec<u8>) {
    let words: Vec<&str> = line.split(' ').collect();
    let opcode = (0..=255).filter_map(Opcode::from_byte).find(|op| format!("{op:?}") == words[0]).unwrap();
    let word = |at: usize| words.get(at).filter(|word| **word != "-").unwrap_or(&"");
    let (key, mut value) = (word(1).as_bytes(), word(2).as_bytes());
    let cas = word(3).parse().unwrap_or(0);
    let mut extras = Vec::new();
    match opcode.non_quiet() {
        Opcode::Set | Opcode::Add | Opcode::Replace => extras.extend([0, 0, 0, 9, 0, 0, 0, 0]),
        Opcode::Increment | Opcode::Decrement => {
            extras.extend(word(2).parse::<u64>().unwrap().to_be_bytes());
            extras.extend(5u64.to_be_bytes());
            extras.extend([0; 4]);
            value = b"";
        }
        Opcode::Touch | Opcode::Gat | Opcode::GatK => extras.extend([0, 0, 0, 60]),
        _ => {}
    }
    let header = Header { magic: MAGIC_REQUEST, opcode: opcode.byte(), opaque: 77, cas, ..Header::default() };
    let mut message = Vec::new();
    encode_message(header, &extras, key, value, &mut message);
    let header = Header::decode(&message).unwrap();
    assert_eq!(refuse(&header), None);
    (header, message[24..].to_vec())
}

fn replies(mut out: &[u8]) -> String {
    let mut seen = String::new();
    while let Some(header) = Header::decode(out) {
        assert_eq!((header.magic, header.opaque), (MAGIC_RESPONSE, 77));
        let status = Status::from_code(header.status).unwrap();
        let body = &out[24..24 + header.body_len as usize];
        let body = if status == Status::NoError || header.key_len > 0 { body } else { &[] };
        let words: Vec<String> =
            body.iter().map(|&b| char::from(b)).filter(|c| c.is_ascii_graphic()).map(String::from).collect();
        seen.push_str(&format!("{status:?} {} ", words.concat()));
        out = &out[24 + header.body_len as usize..];
    }
    seen.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn items_are_written_read_and_removed() {
    check(&[
        ("Get k", "KeyNotFound"),
        ("GetQ k", ""),
        ("GetK k", "KeyNotFound k"),
        ("Set k v1", "NoError"),
        ("SetQ k v2", ""),
        ("Get k", "NoError v2"),
        ("GetKQ k", "NoError kv2"),
        ("Add k v3", "KeyExists"),
        ("AddQ k v3", "KeyExists"),
        ("Replace x v", "KeyNotFound"),
        ("Append k +", "NoError"),
        ("PrependQ k -", ""),
        ("Append x +", "NotStored"),
        ("Gat k", "NoError v2+"),
        ("GatK k", "NoError kv2+"),
        ("Touch k", "NoError"),
        ("Touch x", "KeyNotFound"),
        ("DeleteQ k", ""),
        ("Delete k", "KeyNotFound"),
    ]);
}

#[test]
fn a_write_with_another_version_fails() {
    check(&[
        ("Set k v 4", "KeyNotFound"),
        ("Set k v", "NoError"),
        ("Set k v 99", "KeyExists"),
        ("Set k v 1", "NoError"),
        ("Delete k - 1", "KeyExists"),
        ("Delete k - 2", "NoError"),
    ]);
}

#[test]
fn increments_and_decrements() {
    let big = u64::MAX.to_string();
    check(&[
        ("Increment n 1", "NoError"),
        ("Get n", "NoError 5"),
        ("IncrementQ n 10", ""),
        ("Get n", "NoError 15"),
        ("DecrementQ n 100", ""),
        ("Get n", "NoError 0"),
        (&format!("Set n {big}"), "NoError"),
        ("IncrementQ n 1", ""),
        ("Get n", "NoError 0"),
        ("Set n word", "NoError"),
        ("Increment n 1", "NonNumericValue"),
    ]);
}

#[test]
fn other_opcodes_are_answered_or_refused() {
    check(&[
        ("Noop", "NoError"),
        ("Set k v", "NoError"),
        ("FlushQ", ""),
        ("Get k", "KeyNotFound"),
        ("SaslListMechs", "UnknownCommand"),
        ("RGet k", "UnknownCommand"),
        ("Stat nonsense", "KeyNotFound"),
        ("Stat reset", "NoError"),
        ("Get", "InvalidArguments close"),
        ("Noop k", "InvalidArguments close"),
        ("Quit", "NoError close"),
        ("QuitQ", "close"),
    ]);
}

#[test]
fn malformed_headers_are_refused() {
    let good = Header { magic: MAGIC_REQUEST, key_len: 3, body_len: 3, ..Header::default() };
    assert_eq!(refuse(&good), None);
    let close = Some((Status::InvalidArguments, Then::Close));
    assert_eq!(refuse(&Header { magic: 0, ..good }), close);
    assert_eq!(refuse(&Header { body_len: 2, ..good }), close);
    assert_eq!(refuse(&Header { key_len: 251, body_len: 251, ..good }), close);
    assert_eq!(refuse(&Header { body_len: u32::MAX, ..good }), Some((Status::ValueTooLarge, Then::GoOn)));
}
