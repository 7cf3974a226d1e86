//! A line of the access log: one JSON object, whatever bytes a client has sent.
//! Promises: every line is ASCII and one object; what is shown of a message can be turned back into its bytes:
//! printable ASCII stands for itself, everything else, the backslash too, is `\xNN`.
//! Refuses: to know a protocol. Of text the first line is shown, of anything else the first bytes.
//! Source: JSON, RFC 8259; times, RFC 3339; the escapes are those of nginx's log.

use std::io::Write;
use std::time::Duration;

use flick_net::{PeerAddr, monotonic_ns};
use flick_runtime::access_log::AccessRecord;
use jiff::Timestamp;

/// Bytes shown of a message that is not text.
const BINARY_SHOWN_MAX: usize = 48;
/// A first line that is shorter says too little, a count perhaps: those behind it are shown with it.
const LINE_MIN: usize = 6;
/// Bytes shown of such lines.
const LINES_SHOWN_MAX: usize = 48;

/// Two clocks at one moment: workers note the monotonic one, people read the other.
pub struct Clock {
    real: Timestamp,
    monotonic_ns: u64,
}

impl Clock {
    /// Looks at both.
    pub fn now() -> Self {
        Self { real: Timestamp::now(), monotonic_ns: monotonic_ns() }
    }

    /// The time at which the monotonic clock showed that.
    fn real(&self, at_ns: u64) -> Timestamp {
        let ago = Duration::from_nanos(self.monotonic_ns.saturating_sub(at_ns));
        self.real.checked_sub(ago).unwrap_or(Timestamp::UNIX_EPOCH)
    }
}

/// Appends the line of a request, answered by the worker of this feed. `names`: those of its fields.
pub fn write(
    out: &mut Vec<u8>,
    clock: &Clock,
    (service, worker): (&str, usize),
    names: &[String],
    record: &AccessRecord,
) {
    out.extend_from_slice(b"{\"time\":\"");
    time(out, clock.real(record.ended_ns));
    out.extend_from_slice(b"\",\"service\":\"");
    escape(out, service.as_bytes());
    let client = match record.client {
        PeerAddr::Tcp(address) => address.to_string(),
        PeerAddr::Unix => "unix".to_owned(),
        PeerAddr::Shm => "shm".to_owned(),
    };
    put(out, format_args!("\",\"worker\":{worker},\"client\":\"{client}\",\"request\":\""));
    shown(out, &record.request);
    put(out, format_args!("\",\"bytes_in\":{},\"bytes_out\":{},", record.bytes_in, record.bytes_out));
    match &record.backend {
        Some(endpoint) => {
            out.extend_from_slice(b"\"backend\":\"");
            escape(out, endpoint.to_string().as_bytes());
            out.extend_from_slice(b"\",");
        }
        None => out.extend_from_slice(b"\"backend\":null,"),
    }
    put(out, format_args!("\"outcome\":\"{}\",\"reply\":\"", record.outcome.word()));
    shown(out, &record.reply);
    out.extend_from_slice(b"\",\"status\":");
    number(out, status(&record.reply).map(u64::from));
    out.extend_from_slice(b",\"upstream_us\":");
    number(out, record.upstream_ns.map(|time| time / 1_000));
    let latency_us = record.ended_ns.saturating_sub(record.taken_ns) / 1_000;
    put(out, format_args!(",\"latency_us\":{latency_us}"));
    if !names.is_empty() {
        fields(out, names, &record.fields);
    }
    out.extend_from_slice(b"}\n");
}

/// Appends the fields of a request, by the names that the settings give them; `null` for one that it does not have.
fn fields(out: &mut Vec<u8>, names: &[String], values: &[Option<Vec<u8>>]) {
    out.extend_from_slice(b",\"fields\":");
    let mut before = b'{';
    for (name, value) in names.iter().zip(values) {
        out.extend_from_slice(&[before, b'"']);
        escape(out, name.as_bytes());
        match value {
            Some(value) => {
                out.extend_from_slice(b"\":\"");
                escape(out, value);
                out.push(b'"');
            }
            None => out.extend_from_slice(b"\":null"),
        }
        before = b',';
    }
    out.push(b'}');
}

/// Appends a number, or `null`.
fn number(out: &mut Vec<u8>, value: Option<u64>) {
    match value {
        Some(value) => put(out, format_args!("{value}")),
        None => out.extend_from_slice(b"null"),
    }
}

/// The status code of a response that begins as those of HTTP/1 do.
fn status(reply: &[u8]) -> Option<u16> {
    let digits = reply.strip_prefix(b"HTTP/1.")?.get(1..5)?.strip_prefix(b" ")?;
    std::str::from_utf8(digits).ok()?.parse().ok().filter(|status| (100..1000).contains(status))
}

fn put(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("memory takes what is written to it");
}

/// Appends the part of a message that the log shows, given its first bytes.
fn shown(out: &mut Vec<u8>, front: &[u8]) {
    let mut lines = front.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let first = lines.next().unwrap_or_default();
    let is_text = |line: &[u8]| line.iter().all(|byte| *byte == b'\t' || (*byte >= b' ' && *byte != 0x7f));
    if !is_text(first) {
        return escape(out, &front[..front.len().min(BINARY_SHOWN_MAX)]);
    }
    escape(out, first);
    if first.len() >= LINE_MIN {
        return;
    }
    let mut shown = first.len();
    for line in lines.take_while(|line| is_text(line)).filter(|line| !line.is_empty()) {
        shown += 1 + line.len();
        if shown > LINES_SHOWN_MAX {
            return;
        }
        out.push(b' ');
        escape(out, line);
    }
}

/// Appends bytes as they stand inside a JSON string.
fn escape(out: &mut Vec<u8>, bytes: &[u8]) {
    for byte in bytes {
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\x5C"),
            b' '..=b'~' => out.push(*byte),
            other => put(out, format_args!("\\\\x{other:02X}")),
        }
    }
}

/// Appends a time of UTC, to the microsecond.
fn time(out: &mut Vec<u8>, at: Timestamp) {
    put(out, format_args!("{at:.6}"));
}

#[cfg(test)]
mod tests {
    use flick_net::PeerAddr;
    use flick_runtime::access_log::{AccessRecord, AnsweredBy};
    use jiff::Timestamp;

    use super::{Clock, escape, shown, status, time, write};

    fn text(make: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        make(&mut out);
        String::from_utf8(out).expect("a line is ASCII")
    }

    /// The bytes that an escaped text stands for.
    fn back(text: &str) -> Vec<u8> {
        let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
        while let Some((byte, tail)) = rest.split_first() {
            if *byte == b'\\' {
                let digits = std::str::from_utf8(&tail[1..3]).expect("two digits");
                bytes.push(u8::from_str_radix(digits, 16).expect("hexadecimal"));
                rest = &tail[3..];
            } else {
                bytes.push(*byte);
                rest = tail;
            }
        }
        bytes
    }

    #[test]
    fn every_byte_survives_a_line() {
        let bytes: Vec<u8> = (0..=255).collect();
        let quoted = format!("\"{}\"", text(|out| escape(out, &bytes)));
        assert!(quoted.is_ascii() && !quoted.contains('\n'));
        let read: String = serde_json::from_str(&quoted).expect("a JSON string");
        assert_eq!(back(&read), bytes);
    }

    #[test]
    fn what_is_shown_is_the_first_line_of_text_and_the_first_bytes_of_others() {
        for (front, expected) in [
            (&b"GET /a?b=c HTTP/1.1\r\nHost: a\r\n"[..], "GET /a?b=c HTTP/1.1"),
            (b"get k\r\n", "get k"),
            (b"set k 0 0 5\r\nhello\r\n", "set k 0 0 5"),
            (b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", "*2 $3 GET $1 k"),
            (b"\x80\0\0\x01\n", "\\\\x80\\\\x00\\\\x00\\\\x01\\\\x0A"),
            (b"\"\n}", "\\\" }"),
            (b"", ""),
        ] {
            assert_eq!(text(|out| shown(out, front)), expected, "{}", front.escape_ascii());
        }
    }

    #[test]
    fn status_is_a_number() {
        for (reply, expected) in [
            (&b"HTTP/1.1 200 OK\r\n"[..], Some(200)),
            (b"HTTP/1.0 404 Not Found\r\n", Some(404)),
            (b"HTTP/1.1 503\r\n", Some(503)),
            (b"HTTP/1.1 2000 OK", Some(200)),
            (b"HTTP/1.1 20", None),
            (b"HTTP/1.1  99 ", None),
            (b"VALUE k 0 5\r\n", None),
            (b"", None),
        ] {
            assert_eq!(status(reply), expected, "{}", reply.escape_ascii());
        }
    }

    #[test]
    fn times_are_rfc_3339_in_utc_to_the_microsecond() {
        for (micros, expected) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_399_000_007, "2000-02-28T23:59:59.000007Z"),
            (951_782_400_120_000, "2000-02-29T00:00:00.120000Z"),
            (1_795_219_200_999_999, "2026-11-21T00:00:00.999999Z"),
        ] {
            let at = Timestamp::from_microsecond(micros).expect("a time of this era");
            assert_eq!(text(|out| time(out, at)), expected);
        }
    }

    #[test]
    fn a_line_is_one_object_with_all_that_is_known() {
        let clock = Clock {
            real: Timestamp::from_second(10).expect("a time of this era"),
            monotonic_ns: 3_000_000_000,
        };
        let record = AccessRecord {
            taken_ns: 1_000_000_000,
            ended_ns: 2_000_000_000,
            bytes_in: 3,
            bytes_out: 4,
            outcome: AnsweredBy::Backend,
            client: PeerAddr::Unix,
            backend: Some("unix:/a\"b".parse().expect("a path")),
            upstream_ns: Some(5_000),
            request: b"\"},{\"\n".to_vec(),
            reply: Vec::new(),
            fields: vec![Some(b"a \"b\"\r\n\xff".to_vec()), None],
        };
        let names = ["User-Agent".to_owned(), "X-Request-Id".to_owned()];
        let line = text(|out| write(out, &clock, ("a \"b\"", 7), &names, &record));
        assert_eq!(line.matches('\n').count(), 1);
        let read: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        let expected = serde_json::json!({
            "time": "1970-01-01T00:00:09.000000Z", "service": "a \"b\"", "worker": 7, "client": "unix",
            "request": "\"},{\"", "bytes_in": 3, "bytes_out": 4, "backend": "unix:/a\"b",
            "outcome": "backend", "reply": "", "status": null, "upstream_us": 5, "latency_us": 1_000_000,
            "fields": { "User-Agent": "a \"b\"\\x0D\\x0A\\xFF", "X-Request-Id": null },
        });
        assert_eq!(read, expected);
    }
}
