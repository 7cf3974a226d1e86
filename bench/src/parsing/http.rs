//! Heads of HTTP requests: in programs that read two fields a grammar that checks what `httparse` checks and the
//! library's, which checks more, and a grammar that keeps all; beside `httparse`.

use std::hint::black_box;
use std::mem::MaybeUninit;

use flick_abi::Frame;

use super::{Compiled, Row, found, messages};

/// Most fields that both sides take.
const FIELDS_MAX: usize = 100;

/// The programs, compiled.
pub(super) struct Http(Vec<(&'static str, Compiled)>);

impl Http {
    pub(super) fn new(listings: bool) -> Result<Self, String> {
        let programs = [
            ("two fields of the same rules", include_str!("../../scenarios/parsing/http_same.flick")),
            ("two fields, the library's rules", include_str!("../../scenarios/parsing/http_two.flick")),
            ("all fields", include_str!("../../scenarios/parsing/http_all.flick")),
        ];
        let compiled =
            programs.map(|(what, text)| Compiled::new(what, text, listings).map(|parser| (what, parser)));
        Ok(Self(compiled.into_iter().collect::<Result<_, _>>()?))
    }

    pub(super) fn rows(&self) -> Result<Vec<Row<'_>>, String> {
        let mut rows = Vec::new();
        for (what, compiled) in &self.0 {
            let parser = compiled.requests()?;
            for (name, message) in messages::REQUESTS {
                let message = message.as_bytes();
                let mut frame = Frame::new();
                assert_eq!(parser.whole(&mut frame, message), message.len() as u64, "a head is a message");
                check(&frame, message);
                rows.push(Row {
                    name: format!("HTTP, {what}, {name}, {} bytes", message.len()),
                    flick: Box::new(move |calls| parser.repeat(message, calls)),
                    rival_name: "httparse",
                    rival: Box::new(move |calls| httparse(message, calls)),
                });
            }
        }
        Ok(rows)
    }
}

/// Compares what is found in a message with what the rival finds.
fn check(frame: &Frame, message: &[u8]) {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut fields);
    let head = request.parse(message);
    assert_eq!(head, Ok(httparse::Status::Complete(frame.head_bytes() as usize)));
    let found = found(frame, message);
    let target = request.path.unwrap_or_default().as_bytes();
    assert!(found.contains(&target), "the target is found");
    let has_all = request.headers.iter().all(|field| {
        field.name != "Host"
            || found.iter().any(|found| found.trim_ascii().ends_with(field.value.trim_ascii()))
    });
    assert!(has_all, "the field that is read is found");
}

fn httparse(message: &[u8], calls: usize) -> u64 {
    let mut sum = 0;
    for _ in 0..calls {
        // The rival's fastest use: the array of fields is not initialised.
        let mut fields = [MaybeUninit::<httparse::Header<'_>>::uninit(); FIELDS_MAX];
        let mut request = httparse::Request::new(&mut []);
        let parsed = request.parse_with_uninit_headers(black_box(message), &mut fields);
        if let Ok(httparse::Status::Complete(head)) = parsed {
            sum += head as u64;
        }
        black_box(&request);
    }
    sum
}
