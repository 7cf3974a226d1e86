//! HTTP for fault-injection runs: requests whose path says what the reply is to be, of every framing there is, in
//! both directions.
//! Promises: both sides read strictly (`http::strict`); a body's bytes tell whose it is, whole or in chunks.
//! Refuses: tunnels; those have tests of their own.

use flick_net::sim::SimRng;

use super::{Answer, Cut, Judged, Owed, Seat, TrafficProtocol, TrafficRequest, fill, random_len, shown};
use crate::http::Asked;
use crate::http::strict::{self, BodyEnd, HttpMessage, Trouble};
use crate::service::SimServiceConfig;
use crate::service::fault_injection::FaultPlan;

/// Handling of requests by a service beside passing them on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpKind {
    /// Nothing.
    Balancer,
    /// It may answer what several ask for from memory.
    Cache,
    /// It refuses some methods, paths and framings.
    Filter,
    /// It refuses what is too much.
    Limiter,
    /// It chooses among groups of servers, and changes fields.
    Router,
    /// It answers everything itself.
    Static,
    /// It answers one path itself.
    Statistics,
}

/// The peers of an HTTP service.
#[derive(Clone, Copy, Debug)]
pub struct Http(pub HttpKind);

/// Framing of a reply, by name.
const FORMS: [&str; 7] = ["sized", "sized", "chunked", "empty", "same", "interim", "close"];
/// Mark of a HEAD request, which [`Http::requests`] keeps in `TrafficRequest::kind`.
const HEAD: u32 = 1;
/// Mark of a request that a reply of any status may answer early, as it has a long body.
const LONG: u32 = 2;
/// Bodies of more bytes than this are answered early by servers that do so.
const EARLY_BYTES: usize = 15_000;
/// Status of an early answer.
const EARLY: &str = "413";

/// A path, `/FOLDER/TAG.FORM.LENGTH.UPLOAD`, taken apart.
struct Path<'a> {
    form: &'a str,
    len: usize,
    upload: usize,
}

fn path(text: &str) -> Option<Path<'_>> {
    let mut parts = text.split('.');
    let _tag = parts.next()?;
    let form = parts.next()?;
    let (len, upload) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    Some(Path { form, len, upload })
}

/// A body in chunks of several sizes, now and then with an extension, and a trailer behind them.
fn chunked(body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = body;
    let mut size = 1 + body.len() % 700;
    while !rest.is_empty() {
        let (part, behind) = rest.split_at(size.min(rest.len()));
        let extension = if size.is_multiple_of(3) { ";a=b" } else { "" };
        bytes.extend(format!("{:x}{extension}\r\n", part.len()).as_bytes());
        bytes.extend(part);
        bytes.extend(b"\r\n");
        rest = behind;
        size = 1 + size * 7 % 9_001;
    }
    bytes.extend(b"0\r\n\r\n");
    bytes
}

/// Asked for with HEAD or not: how a reply to it is framed.
fn asked(request: &TrafficRequest) -> Asked {
    if request.kind & HEAD == HEAD { Asked::Head } else { Asked::Get }
}

/// The final reply at the front of some bytes, and where it begins.
fn final_reply(request: &TrafficRequest, input: &[u8]) -> Result<(usize, usize, BodyEnd), Trouble> {
    let mut at = 0;
    loop {
        let message = strict::reply(&input[at..], asked(request))?;
        if message.end != BodyEnd::More {
            return Ok((at, at + message.next, message.end));
        }
        at += message.next;
    }
}

fn first<'a>(message: &'a HttpMessage<'_>, name: &str) -> &'a [u8] {
    message.values(name).first().copied().unwrap_or_default()
}

impl Http {
    /// Returns the status of the reply that the service itself gives; `None`: the request goes to a server.
    fn local(self, method: &str, path: &str, is_chunked: bool) -> Option<&'static str> {
        match self.0 {
            HttpKind::Filter if !matches!(method, "GET" | "HEAD" | "POST" | "PUT") => Some("405"),
            HttpKind::Filter if is_chunked => Some("411"),
            HttpKind::Filter if path.starts_with("/admin") => Some("403"),
            HttpKind::Static if !matches!(method, "GET" | "HEAD") => Some("405"),
            HttpKind::Static if path != "/" => Some("404"),
            HttpKind::Static => Some("200"),
            HttpKind::Statistics if path == "/flick-stats" => Some("200"),
            _ => None,
        }
    }

    fn one(self, rng: &mut SimRng, client: u64, at: u64, huge_per_mille: u32) -> TrafficRequest {
        let method =
            ["GET", "GET", "GET", "HEAD", "POST", "POST", "PUT", "DELETE"][rng.between(0, 7) as usize];
        let has_body = matches!(method, "POST" | "PUT");
        let is_chunked = has_body && rng.chance(400);
        let len = random_len(rng, huge_per_mille);
        let upload = if has_body { random_len(rng, huge_per_mille) } else { 0 };
        // Only the last reply of a connection may end with it.
        let form = FORMS[rng.between(0, FORMS.len() as u64 - 2) as usize];
        let folder = match (self.0, rng.between(0, 5)) {
            (HttpKind::Router, 0 | 1) => "static",
            (HttpKind::Filter, 0) => "admin",
            _ => "t",
        };
        let target = match (self.0, method, rng.between(0, 3)) {
            (HttpKind::Cache, "GET", 0) => {
                let which = rng.between(0, 3);
                format!("/shared/{which}.sized.{}.0", which * which * 900)
            }
            (HttpKind::Static, _, 0 | 1) => "/".into(),
            (HttpKind::Statistics, _, 0) => "/flick-stats".into(),
            _ => format!("/{folder}/{client}-{at}.{form}.{len}.{upload}"),
        };
        let upload = if target.matches('.').count() == 3 { upload } else { 0 };
        let host =
            if self.0 == HttpKind::Router && rng.chance(300) { "api.example.org" } else { "a.example.org" };
        let mut bytes = format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\nX-Tag: {target}\r\n");
        let body = fill(&target, upload);
        if is_chunked {
            bytes.push_str("Transfer-Encoding: chunked\r\n");
        } else if has_body {
            bytes.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        bytes.push_str("\r\n");
        let mut bytes = bytes.into_bytes();
        bytes.extend(if is_chunked { chunked(&body) } else { body });
        let reply = match self.local(method, &target, is_chunked) {
            Some(status) => format!("local {status}"),
            None => target,
        };
        let kind = if method == "HEAD" { HEAD } else { 0 } + if upload > EARLY_BYTES { LONG } else { 0 };
        TrafficRequest { bytes, reply: reply.into_bytes(), kind, owed: Owed::Reply }
    }

    /// Makes the last request end its connection, by `Connection: close` or HTTP/1.0, or leaves it unchanged.
    fn ending(rng: &mut SimRng, request: &mut TrafficRequest) {
        let with = |bytes: &[u8], old: &str, new: &str| {
            let text = String::from_utf8_lossy(bytes).into_owned();
            text.replacen(old, new, 1).into_bytes()
        };
        match rng.between(0, 4) {
            0 => request.bytes = with(&request.bytes, "\r\nHost:", "\r\nConnection: close\r\nHost:"),
            1 if !request.bytes.windows(8).any(|some| some == b"chunked\r") => {
                request.bytes = with(&request.bytes, " HTTP/1.1\r\n", " HTTP/1.0\r\n");
            }
            _ => {}
        }
    }

    fn check_reply(self, request: &TrafficRequest, reply: &HttpMessage<'_>) -> Result<Judged, String> {
        let expected = String::from_utf8_lossy(&request.reply).into_owned();
        let status = std::str::from_utf8(&reply.line[9..12]).unwrap_or("000");
        let tag = String::from_utf8_lossy(first(reply, "x-tag")).into_owned();
        let wrong =
            |what: &str| Err(format!("{what}: status {status}, tag `{tag}`, to {}", shown(&request.bytes)));
        if tag.is_empty() {
            let is_own = expected.strip_prefix("local ") == Some(status);
            return match status {
                _ if is_own => Ok(Judged::Served),
                "502" | "503" | "504" if reply.body.is_empty() => Ok(Judged::Failed),
                "429" if self.0 == HttpKind::Limiter => Ok(Judged::Served),
                _ => wrong("a reply to no request"),
            };
        }
        if tag != expected {
            return wrong("another's reply");
        }
        if self.0 == HttpKind::Router && !reply.values("server").is_empty() {
            return wrong("a field that should have been taken out");
        }
        if status == EARLY && request.kind & LONG == LONG {
            return Ok(Judged::Served);
        }
        let Some(path) = path(&tag) else { return wrong("a tag that is no path") };
        let (must_status, must_len) = match path.form {
            "empty" => ("204", 0),
            "same" => ("304", 0),
            _ => ("200", path.len),
        };
        let body = if request.kind & HEAD == HEAD { Vec::new() } else { fill(&tag, must_len) };
        if status != must_status || reply.body != body {
            return wrong(&format!("changed, {} bytes of {}", reply.body.len(), body.len()));
        }
        Ok(Judged::Served)
    }
}

impl TrafficProtocol for Http {
    fn configure(&self, config: &mut SimServiceConfig) {
        if self.0 == HttpKind::Router {
            let groups = [("files", 2), ("api", 1), ("app", 1), ("canary", 1)];
            config.groups = groups.map(|(name, count)| (name.to_owned(), count)).to_vec();
        }
    }

    fn requests(
        &self,
        rng: &mut SimRng,
        client: u64,
        plan: &FaultPlan,
        is_last: bool,
    ) -> Vec<TrafficRequest> {
        let count = if is_last { 6 * plan.servers as u64 + 1 } else { rng.between(1, plan.requests) };
        let mut requests: Vec<TrafficRequest> =
            (0..count).map(|at| self.one(rng, client, at, plan.huge_per_mille)).collect();
        if let Some(last) = requests.last_mut() {
            Self::ending(rng, last);
        }
        requests
    }

    fn nonsense(&self, rng: &mut SimRng) -> Vec<u8> {
        let smuggled =
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /evil HTTP/1.1\r\n";
        match rng.between(0, 5) {
            0 => format!("POST / HTTP/1.1\r\nHost: a\r\n{smuggled}\r\n").into_bytes(),
            1 => b"GET / HTTP/1.1\r\nHost : a\r\n\r\n".to_vec(),
            2 => b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\nabcde".to_vec(),
            3 => b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5g\r\nabcde\r\n0\r\n\r\n"
                .to_vec(),
            4 => b"\x16\x03\x01\x02\x00\x01".to_vec(),
            _ => format!("GET /{} HTTP/1.1\r\n", "a".repeat(9_000)).into_bytes(),
        }
    }

    fn reply(&self, request: &TrafficRequest, input: &[u8], has_ended: bool) -> Cut {
        match final_reply(request, input) {
            Ok((_, _, BodyEnd::Close)) if !has_ended => Cut::More,
            Ok((_, next, _)) => Cut::Whole(next),
            Err(Trouble::Short) => Cut::More,
            Err(Trouble::Bad(what)) => Cut::Bad(what.into()),
        }
    }

    fn judge(&self, request: &TrafficRequest, reply: &[u8]) -> Result<Judged, String> {
        let read =
            final_reply(request, reply).and_then(|(at, ..)| strict::reply(&reply[at..], asked(request)));
        self.check_reply(request, &read.map_err(|trouble| format!("{trouble:?}"))?)
    }

    fn refusal(&self, input: &[u8]) -> Cut {
        let statuses = [
            "400", "408", "411", "414", "431", "501", "405", "403", "413", "404", "429", "502", "503", "504",
        ];
        let Some(end) = input.windows(4).position(|four| four == b"\r\n\r\n") else { return Cut::More };
        let is_one =
            input.get(9..12).is_some_and(|status| statuses.iter().any(|known| known.as_bytes() == status));
        if is_one { Cut::Whole(end + 4) } else { Cut::Bad("no refusal".into()) }
    }

    fn asked(&self, _seat: &Seat, input: &[u8]) -> Cut {
        match strict::request(input) {
            Ok(message) => Cut::Whole(message.next),
            Err(Trouble::Short) => Cut::More,
            Err(Trouble::Bad(what)) => Cut::Bad(what.into()),
        }
    }

    fn answer(&self, seat: &mut Seat, request: &[u8]) -> Result<Answer, String> {
        let message = strict::request(request).map_err(|trouble| format!("{trouble:?}"))?;
        let tag = String::from_utf8_lossy(first(&message, "x-tag")).into_owned();
        let line = String::from_utf8_lossy(message.line).into_owned();
        let method = line.split(' ').next().unwrap_or_default().to_owned();
        let path = path(&tag).filter(|_| line.split(' ').nth(1) == Some(&tag)).ok_or("no tag of ours")?;
        if message.body != fill(&tag, path.upload) {
            return Err(format!("{} bytes of {} as the body", message.body.len(), path.upload));
        }
        if self.0 == HttpKind::Router {
            let is_api = first(&message, "host") == b"api.internal";
            let group = if tag.starts_with("/static/") {
                0..2
            } else if is_api {
                2..3
            } else {
                3..5
            };
            let is_marked = message.values("x-request-id").len() == 1;
            if !group.contains(&seat.server) || !is_marked {
                return Err("routed to a wrong group, or not marked".into());
            }
        }
        let body = fill(&tag, path.len);
        let closes = message.end == BodyEnd::Last;
        let last = if closes { "Connection: close\r\n" } else { "" };
        let head = format!("X-Tag: {tag}\r\nServer: s{}\r\n{last}", seat.server);
        let sized = format!("HTTP/1.1 200 OK\r\n{head}Content-Length: {}\r\n\r\n", body.len());
        let mut bytes = match path.form {
            "chunked" => format!("HTTP/1.1 200 OK\r\n{head}Transfer-Encoding: chunked\r\n\r\n"),
            "empty" => format!("HTTP/1.1 204 No Content\r\n{head}\r\n"),
            "same" => format!("HTTP/1.1 304 Not Modified\r\n{head}Content-Length: {}\r\n\r\n", body.len()),
            "interim" => format!("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n{sized}"),
            _ => sized,
        }
        .into_bytes();
        let has_body = method != "HEAD" && !matches!(path.form, "empty" | "same");
        if has_body {
            bytes.extend(if path.form == "chunked" { chunked(&body) } else { body });
        }
        let once = (method == "POST").then(|| tag.clone());
        Ok(Answer { bytes, closes, once })
    }

    fn early(&self, input: &[u8]) -> Option<(Vec<u8>, usize)> {
        let end = input.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
        let head = std::str::from_utf8(&input[..end]).ok()?;
        let value = |name: &str| {
            let line = head.lines().find(|line| line.to_ascii_lowercase().starts_with(name))?;
            Some(line[name.len()..].trim().to_owned())
        };
        let upload: usize = value("content-length:")?.parse().ok()?;
        let tag = value("x-tag:")?;
        let reply =
            format!("HTTP/1.1 {EARLY} Content Too Large\r\nX-Tag: {tag}\r\nContent-Length: 0\r\n\r\n");
        (upload > EARLY_BYTES).then(|| (reply.into_bytes(), end + upload))
    }
}
