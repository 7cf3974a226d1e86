//! One request against the table, and the bytes that answer it.
//!
//! Promises: a pure step — table, request and time in; table and reply bytes out; no socket and no clock.
//! Every request is answered as memcached 1.6 answers it, or closes the connection where memcached does.
//! Refuses: authentication, ranges, vbuckets and replication, which are answered with `UnknownCommand`.

use crate::binary::{Header, MAGIC_REQUEST, MAGIC_RESPONSE, Opcode, Status, encode_message};
use crate::limits::{BODY_BYTES_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX};

use super::table::Table;

/// Expiries above this many seconds (30 days) are points in time, not spans.
const RELATIVE_EXPIRY_S_MAX: u64 = 60 * 60 * 24 * 30;

/// Expiry with which an increment asks not to create the number.
const EXPIRY_DO_NOT_CREATE: u32 = u32::MAX;

/// The reply to the version request.
const VERSION: &str = concat!("flick-store/", env!("CARGO_PKG_VERSION"));

/// Whether the connection continues after a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    GoOn,
    /// Send what is queued, then close.
    Close,
}

/// Counters of a store's requests since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RequestCounts {
    pub(super) requests: u64,
    pub(super) gets: u64,
    pub(super) hits: u64,
    pub(super) sets: u64,
    pub(super) faults: u64,
}

/// Handles requests: the table and the counters.
pub(super) struct RequestHandler {
    pub(super) table: Table,
    pub(super) counts: RequestCounts,
    pub(super) started_s: u64,
    /// Second at which a delayed flush takes place.
    flush_at_s: Option<u64>,
}

/// A request and its parts.
struct Request<'a> {
    header: Header,
    opcode: Opcode,
    extras: &'a [u8],
    key: &'a [u8],
    value: &'a [u8],
}

/// Checks a header before its body has arrived; returns the status of the refusal and what to do then.
///
/// A body that is only too long can be skipped: the stream stays parsable and the connection continues.
pub(super) fn refuse(header: &Header) -> Option<(Status, Then)> {
    if header.magic != MAGIC_REQUEST || !header.lengths_agree() || usize::from(header.key_len) > KEY_BYTES_MAX
    {
        return Some((Status::InvalidArguments, Then::Close));
    }
    let too_long = header.body_len as usize > BODY_BYTES_MAX || header.value_len() as usize > VALUE_BYTES_MAX;
    too_long.then_some((Status::ValueTooLarge, Then::GoOn))
}

/// Appends the answer to a request that failed.
pub(super) fn reply_error(header: &Header, status: Status, out: &mut Vec<u8>) {
    let header = Header { status: status.code(), cas: 0, ..reply_header(header) };
    encode_message(header, &[], &[], status.text().as_bytes(), out);
}

fn reply_header(request: &Header) -> Header {
    Header { magic: MAGIC_RESPONSE, opcode: request.opcode, opaque: request.opaque, ..Header::default() }
}

impl RequestHandler {
    pub(super) fn new(table: Table, now_s: u64) -> RequestHandler {
        RequestHandler { table, counts: RequestCounts::default(), started_s: now_s, flush_at_s: None }
    }

    /// Answers one request whose header [`refuse`] has accepted.
    ///
    /// Shape: `body` is exactly `header.body_len` bytes.
    pub(super) fn answer(&mut self, header: Header, body: &[u8], now_s: u64, out: &mut Vec<u8>) -> Then {
        assert_eq!(body.len(), header.body_len as usize, "the reader hands over whole bodies");
        self.counts.requests += 1;
        if self.flush_at_s.is_some_and(|at| at <= now_s) {
            self.flush_at_s = None;
            self.table.clear();
        }
        let Some(opcode) = Opcode::from_byte(header.opcode) else {
            reply_error(&header, Status::UnknownCommand, out);
            return Then::GoOn;
        };
        let (extras, rest) = body.split_at(usize::from(header.extras_len));
        let (key, value) = rest.split_at(usize::from(header.key_len));
        let request = Request { header, opcode, extras, key, value };
        match self.dispatch(&request, now_s, out) {
            Ok(then) => then,
            Err(Status::InvalidArguments) => {
                self.counts.faults += 1;
                reply_error(&header, Status::InvalidArguments, out);
                Then::Close
            }
            Err(Status::KeyNotFound) if opcode.is_quiet() && is_read(opcode) => Then::GoOn,
            Err(Status::KeyNotFound) if matches!(opcode, Opcode::GetK | Opcode::GatK) => {
                let status = Status::KeyNotFound.code();
                encode_message(Header { status, ..reply_header(&header) }, &[], key, &[], out);
                Then::GoOn
            }
            Err(status) => {
                reply_error(&header, status, out);
                Then::GoOn
            }
        }
    }

    fn dispatch(&mut self, request: &Request<'_>, now_s: u64, out: &mut Vec<u8>) -> Result<Then, Status> {
        match request.opcode.non_quiet() {
            Opcode::Get | Opcode::GetK => self.get(request, now_s, out)?,
            Opcode::Touch | Opcode::Gat | Opcode::GatK => self.touch(request, now_s, out)?,
            Opcode::Set | Opcode::Add | Opcode::Replace => self.set(request, now_s, out)?,
            Opcode::Append | Opcode::Prepend => self.extend(request, now_s, out)?,
            Opcode::Delete => self.delete(request, now_s, out)?,
            Opcode::Increment | Opcode::Decrement => self.count(request, now_s, out)?,
            Opcode::Flush => self.flush(request, now_s, out)?,
            Opcode::Stat => self.stat(request, now_s, out)?,
            Opcode::Noop => {
                request.expect_shape(0, false, false)?;
                encode_message(reply_header(&request.header), &[], &[], &[], out);
            }
            Opcode::Version => {
                request.expect_shape(0, false, false)?;
                encode_message(reply_header(&request.header), &[], &[], VERSION.as_bytes(), out);
            }
            Opcode::Quit => {
                request.reply_done(0, out);
                return Ok(Then::Close);
            }
            _ => return Err(Status::UnknownCommand),
        }
        Ok(Then::GoOn)
    }

    fn get(&mut self, request: &Request<'_>, now_s: u64, out: &mut Vec<u8>) -> Result<(), Status> {
        request.expect_shape(0, true, false)?;
        self.counts.gets += 1;
        let item = self.table.get(request.key, now_s).ok_or(Status::KeyNotFound)?;
        self.counts.hits += 1;
        let key = if request.opcode.non_quiet() == Opcode::GetK { request.key } else { &[] };
        let header = Header { cas: item.cas, ..reply_header(&request.header) };
        encode_message(header, &item.flags.to_be_bytes(), key, item.value, out);
        Ok(())
    }

    fn touch(&mut self, request: &Request<'_>, now_s: u64, out: &mut Vec<u8>) -> Result<(), Status> {
        request.expect_shape(4, true, false)?;
        let expires_s = expiry(be_u32(request.extras, 0), now_s);
        let found = self.table.touch(request.key, expires_s, now_s);
        let is_read = request.opcode.non_quiet() != Opcode::Touch;
        self.counts.gets += u64::from(is_read);
        self.counts.hits += u64::from(is_read && found);
        // A point in the past has just expired the item; it is still the one that was touched.
        let seen_s = if found && expires_s != 0 { now_s.min(expires_s - 1) } else { now_s };
        let item = self.table.get(request.key, seen_s).ok_or(Status::KeyNotFound)?;
        let value: &[u8] = if is_read { item.value } else { &[] };
        let key = if request.opcode.non_quiet() == Opcode::GatK { request.key } else { &[] };
        let header = Header { cas: item.cas, ..reply_header(&request.header) };
        encode_message(header, &item.flags.to_be_bytes(), key, value, out);
        Ok(())
    }

    fn set(&mut self, request: &Request<'_>, now_s: u64, out: &mut Vec<u8>) -> Result<(), Status> {
        request.expect_shape(8, true, true)?;
        self.counts.sets += 1;
        let present_cas = self.table.get(request.key, now_s).map(|item| item.cas);
        match (request.opcode.non_quiet(), present_cas) {
            (Opcode::Add, Some(_)) => return Err(Status::KeyExists),
            (Opcode::Replace, None) => return Err(Status::KeyNotFound),
            (_, present) => expect_version(&request.header, present)?,
        }
        let (flags, expires_s) = (be_u32(request.extras, 0), expiry(be_u32(request.extras, 4), now_s));
        let cas = self.table.set(request.key, (request.value, &[]), flags, expires_s, now_s);
        request.reply_done(cas.ok_or(Status::OutOfMemory)?, out);
        Ok(())
    }

    fn extend(&mut self, request: &Request<'_>, now_s: u64, out: &mut Vec<u8>) -> Result<(), Status> {
        request.expect_shape(0, true, true)?;
        self.counts.sets += 1;
        let item = self.table.get(request.key, now_s).ok_or(Status::NotStored)?;
        if item.value.len() + request.value.len() > VALUE_BYTES_MAX {
            return Err(Status::ValueTooLarge);
        }
        expect_version(&request.header, Some(item.cas))?;
        let cas = match request.opcode.non_quiet() {
            Opcode::Append => self.table.extend(request.key, &[], request.value, now_s),
            _ => self.table.extend(request.key, request.value, &[], now_s),
        };
        request.reply_done(cas.ok_or(Status::OutOfMemory)?, out);
        Ok(())
    }

    fn delete(&mut self, request: &Request<'_>, now_s: u64, out: &mut Vec<u8>) -> Result<(), Status> {
        request.expect_shape(0, true, false)?;
        let present = self.table.get(request.key, now_s).ok_or(Status::KeyNotFound)?.cas;
        expect_version(&request.header, Some(present))?;
        self.table.remove(request.key, now_s);
        request.reply_done(0, out);
        Ok(())
    }

    /// Increments or decrements. A missing number is created at its initial value unless the expiry forbids it.
    fn count(&mut self, request: &Request<'_>, now_s: u64, out: &mut Vec<u8>) -> Result<(), Status> {
        request.expect_shape(20, true, false)?;
        let (delta, initial) = (be_u64(request.extras, 0), be_u64(request.extras, 8));
        let expiry_word = be_u32(request.extras, 16);
        let (number, cas) = match self.table.get(request.key, now_s) {
            Some(item) => {
                expect_version(&request.header, Some(item.cas))?;
                let old = decimal_u64(item.value).ok_or(Status::NonNumericValue)?;
                let number = match request.opcode.non_quiet() {
                    Opcode::Increment => old.wrapping_add(delta),
                    _ => old.saturating_sub(delta),
                };
                (number, self.table.set_value(request.key, number.to_string().as_bytes(), now_s))
            }
            None if expiry_word == EXPIRY_DO_NOT_CREATE => return Err(Status::KeyNotFound),
            None => {
                let (digits, expires_s) = (initial.to_string(), expiry(expiry_word, now_s));
                (initial, self.table.set(request.key, (digits.as_bytes(), &[]), 0, expires_s, now_s))
            }
        };
        let cas = cas.ok_or(Status::OutOfMemory)?;
        if !request.opcode.is_quiet() {
            let header = Header { cas, ..reply_header(&request.header) };
            encode_message(header, &[], &[], &number.to_be_bytes(), out);
        }
        Ok(())
    }

    fn flush(&mut self, request: &Request<'_>, now_s: u64, out: &mut Vec<u8>) -> Result<(), Status> {
        let delay = match request.extras.len() {
            0 => 0,
            _ => {
                request.expect_shape(4, false, false)?;
                be_u32(request.extras, 0)
            }
        };
        request.expect_shape(request.extras.len(), false, false)?;
        match expiry(delay, now_s) {
            0 => self.table.clear(),
            at => self.flush_at_s = Some(at),
        }
        request.reply_done(0, out);
        Ok(())
    }

    /// Answers with one reply per figure and an empty one at the end; only the general figures are kept.
    fn stat(&mut self, request: &Request<'_>, now_s: u64, out: &mut Vec<u8>) -> Result<(), Status> {
        request.expect_shape(0, !request.key.is_empty(), false)?;
        if !request.key.is_empty() && request.key != b"reset" {
            return Err(Status::KeyNotFound);
        }
        let header = reply_header(&request.header);
        if request.key.is_empty() {
            let counts = self.counts;
            let figures = [
                ("pid", u64::from(std::process::id())),
                ("uptime", now_s.saturating_sub(self.started_s)),
                ("time", now_s),
                ("curr_items", self.table.len() as u64),
                ("bytes", self.table.bytes() as u64),
                ("cmd_get", counts.gets),
                ("cmd_set", counts.sets),
                ("get_hits", counts.hits),
                ("get_misses", counts.gets - counts.hits),
                ("evictions", self.table.evictions()),
            ];
            encode_message(header, &[], b"version", VERSION.as_bytes(), out);
            for (name, figure) in figures {
                encode_message(header, &[], name.as_bytes(), figure.to_string().as_bytes(), out);
            }
        }
        encode_message(header, &[], &[], &[], out);
        Ok(())
    }
}

impl Request<'_> {
    /// Checks which parts the request has; memcached refuses any other shape and closes.
    fn expect_shape(&self, extras_len: usize, has_key: bool, may_have_value: bool) -> Result<(), Status> {
        let fits = self.extras.len() == extras_len
            && self.key.is_empty() != has_key
            && (may_have_value || self.value.is_empty());
        if fits { Ok(()) } else { Err(Status::InvalidArguments) }
    }

    /// Appends the empty reply of a write that succeeded, unless the request is quiet.
    fn reply_done(&self, cas: u64, out: &mut Vec<u8>) {
        if !self.opcode.is_quiet() {
            encode_message(Header { cas, ..reply_header(&self.header) }, &[], &[], &[], out);
        }
    }
}

/// Checks the version a write asks for (zero: any) against that of the item.
fn expect_version(header: &Header, present_cas: Option<u64>) -> Result<(), Status> {
    match present_cas {
        _ if header.cas == 0 => Ok(()),
        None => Err(Status::KeyNotFound),
        Some(cas) if cas == header.cas => Ok(()),
        Some(_) => Err(Status::KeyExists),
    }
}

fn is_read(opcode: Opcode) -> bool {
    matches!(opcode.non_quiet(), Opcode::Get | Opcode::GetK | Opcode::Gat | Opcode::GatK)
}

/// Converts the expiry of a request to a point in time; zero stays "never".
fn expiry(word: u32, now_s: u64) -> u64 {
    match u64::from(word) {
        0 => 0,
        span if span <= RELATIVE_EXPIRY_S_MAX => now_s + span,
        point => point,
    }
}

fn be_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(*bytes[at..].first_chunk().expect("expect_shape has checked the extras"))
}

fn be_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(*bytes[at..].first_chunk().expect("expect_shape has checked the extras"))
}

/// Reads a decimal number; trailing blanks are allowed because memcached pads shrunken numbers with them.
fn decimal_u64(digits: &[u8]) -> Option<u64> {
    let digits = digits.trim_ascii_end();
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |sum, &digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests;
