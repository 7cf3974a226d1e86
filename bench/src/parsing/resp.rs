//! Commands and replies of RESP: the library's grammar in a program that shards by key, and a grammar of commands that
//! keeps every word; beside `redis-protocol`, whose fastest call gives ranges of the input and copies nothing.

use std::hint::black_box;

use flick_abi::Frame;
use redis_protocol::{resp2, resp3};

use super::{Compiled, Parser, Row, found};

/// The programs, compiled, and what clients and servers say.
pub(super) struct Resp {
    key: Compiled,
    all: Compiled,
    commands: Vec<(&'static str, Vec<u8>)>,
    replies: Vec<(&'static str, Version, Vec<u8>)>,
}

/// RESP version of a reply, which selects the decoder of the rival.
#[derive(Clone, Copy)]
enum Version {
    Two,
    Three,
}

impl Resp {
    pub(super) fn new(listings: bool) -> Result<Self, String> {
        let key = include_str!("../../scenarios/parsing/resp_key.flick");
        let all = include_str!("../../scenarios/parsing/resp_all.flick");
        Ok(Self {
            key: Compiled::new("resp_key", key, listings)?,
            all: Compiled::new("resp_all", all, listings)?,
            commands: commands(),
            replies: replies(),
        })
    }

    pub(super) fn rows(&self) -> Result<Vec<Row<'_>>, String> {
        let mut rows = Vec::new();
        for (what, compiled) in [("by key", &self.key), ("all words", &self.all)] {
            let parser = compiled.requests()?;
            for (name, message) in &self.commands {
                check_words(parser, message);
                rows.push(row(
                    format!("RESP, {what}, {name}, {} bytes", message.len()),
                    parser,
                    Version::Two,
                    message,
                ));
            }
        }
        let parser = self.key.replies()?;
        for (name, version, message) in &self.replies {
            assert_eq!(rival(*version, message, 1), message.len() as u64, "{name} is whole");
            assert_eq!(parser.repeat(message, 1), message.len() as u64, "{name} is whole");
            rows.push(row(
                format!("RESP, reply, {name}, {} bytes", message.len()),
                parser,
                *version,
                message,
            ));
        }
        Ok(rows)
    }
}

fn row<'a>(name: String, parser: Parser<'a>, version: Version, message: &'a [u8]) -> Row<'a> {
    Row {
        name,
        flick: Box::new(move |calls| parser.repeat(message, calls)),
        rival_name: "redis-protocol",
        rival: Box::new(move |calls| rival(version, message, calls)),
    }
}

/// Both sides understand the same bytes, and what the parser has found are words of the command.
fn check_words(parser: Parser<'_>, message: &[u8]) {
    let mut frame = Frame::new();
    assert_eq!(parser.whole(&mut frame, message), message.len() as u64, "a command is whole");
    let Ok(Some((resp2::types::RangeFrame::Array(words), _))) = resp2::decode::decode_range(message) else {
        panic!("a command is an array");
    };
    let ranges = words.iter().map(|word| match word {
        resp2::types::RangeFrame::BulkString((start, end)) => &message[*start..*end],
        _ => panic!("a command's words are bulk strings"),
    });
    let words: Vec<&[u8]> = ranges.collect();
    let items = frame.items().len();
    let found = found(&frame, message);
    let is_there = |word: &&[u8]| {
        found.iter().any(|found| found == word || found.ends_with(&[word, &b"\r\n"[..]].concat()))
    };
    if items > 0 {
        let behind = words.len() - items;
        assert!(words[behind..].iter().all(is_there), "every word is an item");
    } else {
        assert!(found.contains(&words[1]), "the key is found");
    }
}

fn rival(version: Version, message: &[u8], calls: usize) -> u64 {
    let mut sum = 0;
    for _ in 0..calls {
        sum += match version {
            Version::Two => match resp2::decode::decode_range(black_box(message)) {
                Ok(Some((frame, bytes))) => {
                    black_box(&frame);
                    bytes as u64
                }
                _ => 0,
            },
            Version::Three => match resp3::decode::complete::decode_range(black_box(message)) {
                Ok(Some((frame, bytes))) => {
                    black_box(&frame);
                    bytes as u64
                }
                _ => 0,
            },
        };
    }
    sum
}

fn commands() -> Vec<(&'static str, Vec<u8>)> {
    let key = |number: usize| format!("user:{:06}", number * 7919);
    let of = |words: &[String]| {
        let head = format!("*{}\r\n", words.len());
        let words = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
        std::iter::once(head).chain(words).collect::<String>().into_bytes()
    };
    let many = |verb: &str, words: usize| {
        of(&std::iter::once(verb.to_owned()).chain((1..=words).map(key)).collect::<Vec<_>>())
    };
    let fields = (0..9).flat_map(|field| [format!("field:{field}"), key(field)]);
    let hash: Vec<String> = ["HSET".to_owned(), key(1)].into_iter().chain(fields).collect();
    vec![
        ("GET", of(&["GET".to_owned(), key(1)])),
        ("SET of 100 bytes", of(&["SET".to_owned(), key(1), "v".repeat(100)])),
        (
            "SET with expiry",
            of(&["SET".to_owned(), key(1), "v".repeat(20), "EX".to_owned(), "3600".to_owned()]),
        ),
        ("HSET of 9 fields", of(&hash)),
        ("MGET of 3 keys", many("MGET", 3)),
        ("MGET of 10 keys", many("MGET", 10)),
        ("MGET of 20 keys", many("MGET", 20)),
    ]
}

fn replies() -> Vec<(&'static str, Version, Vec<u8>)> {
    let bulk = |bytes: usize| format!("${bytes}\r\n{}\r\n", "v".repeat(bytes));
    let values = |count: usize| (0..count).map(|at| bulk(8 + at % 24)).collect::<String>();
    let pairs = (0..8).map(|at| format!("+field{at}\r\n{}", bulk(12))).collect::<String>();
    let range: String = (0..5).map(|at| format!("*2\r\n{}:{}\r\n", bulk(10), at * 1_001)).collect();
    let text = |name, version, text: String| (name, version, text.into_bytes());
    vec![
        text("OK", Version::Two, "+OK\r\n".to_owned()),
        text("an integer", Version::Two, ":1234567\r\n".to_owned()),
        text("a value of 100 bytes", Version::Two, bulk(100)),
        text("an array of 3", Version::Two, format!("*3\r\n{}", values(3))),
        text("an array of 20", Version::Two, format!("*20\r\n{}", values(20))),
        text("an array of 5 arrays", Version::Two, format!("*5\r\n{range}")),
        text("a map of 8", Version::Three, format!("%8\r\n{pairs}")),
    ]
}
