//! What each path answers, and who may ask.
//! Promises: what shows the state needs the token where there is one; without one, on TCP, only names of this machine
//! are answered to, so that a page of somebody else cannot read it through a name of its own (DNS rebinding).
//! Source: OpenMetrics for `/metrics`; `/healthz` and `/readyz` as Kubernetes asks for them.

use std::net::IpAddr;

use crate::metrics;
use crate::request::{ASK_FIELD, Request};
use crate::server::{Ask, Source};

/// The page, complete: style and script are in it.
const PAGE: &str = include_str!("page.html");
/// Nothing is loaded from anywhere, nothing may frame the page.
const PAGE_POLICY: &str = "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; \
                           script-src 'unsafe-inline'; connect-src 'self'; img-src data:; \
                           frame-ancestors 'none'; base-uri 'none'; form-action 'none'\r\n";

/// Who may ask.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    /// Who does not show it sees nothing of the state.
    pub(crate) token: Option<String>,
    /// Only names of this machine are answered to.
    pub(crate) is_local_only: bool,
}

/// One answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: &'static str,
    content_type: &'static str,
    extra: &'static str,
    body: String,
    has_body: bool,
}

impl Answer {
    /// A line of text.
    pub(crate) fn plain(status: &'static str, text: &str) -> Self {
        let body = format!("{text}\n");
        Self { status, content_type: "text/plain; charset=utf-8", extra: "", body, has_body: true }
    }

    fn of(content_type: &'static str, body: String) -> Self {
        Self { status: "200 OK", content_type, extra: "", body, has_body: true }
    }

    /// As it is sent.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut text = format!(
            "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\
             Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n{}\r\n",
            self.status,
            self.content_type,
            self.body.len(),
            self.extra
        );
        if self.has_body {
            text.push_str(&self.body);
        }
        text.into_bytes()
    }
}

/// Answers a request; `None` is what is not one.
pub(crate) fn answer(request: Option<&Request<'_>>, policy: &Policy, source: &dyn Source) -> Answer {
    let Some(request) = request else {
        return Answer::plain("400 Bad Request", "this is not a request of HTTP/1.1");
    };
    let mut answer = match request.method {
        "GET" | "HEAD" => answer_path(request, policy, source),
        "POST" if asked(request.path).is_some() => answer_ask(request, policy, source),
        _ => {
            let refused = Answer::plain("405 Method Not Allowed", "everything here is read with GET");
            Answer { extra: "Allow: GET, HEAD\r\n", ..refused }
        }
    };
    answer.has_body = request.method != "HEAD";
    answer
}

/// What a path asks for.
fn asked(path: &str) -> Option<Ask> {
    match path {
        "/api/reload" => Some(Ask::Reload),
        "/api/upgrade" => Some(Ask::Upgrade),
        _ => None,
    }
}

fn answer_ask(request: &Request<'_>, policy: &Policy, source: &dyn Source) -> Answer {
    if let Some(refused) = refused(request, policy, true) {
        return refused;
    }
    if !request.is_deliberate {
        return Answer::plain(
            "403 Forbidden",
            &format!("this needs the field `{ASK_FIELD}`, whatever it says"),
        );
    }
    match asked(request.path).map(|ask| source.ask(ask)) {
        Some(Ok(told)) => Answer::plain("200 OK", &told),
        Some(Err(why)) => Answer::plain("409 Conflict", &why),
        None => Answer::plain("404 Not Found", "nothing of that name can be asked for"),
    }
}

/// How somebody is refused who may not ask.
fn refused(request: &Request<'_>, policy: &Policy, is_secret: bool) -> Option<Answer> {
    if policy.is_local_only && !request.host.is_none_or(is_of_this_machine) {
        return Some(Answer::plain("421 Misdirected Request", "ask for it by an address or as localhost"));
    }
    (is_secret && !is_known(policy, request.bearer)).then(|| {
        let refused = Answer::plain("401 Unauthorized", "this needs the token: Authorization: Bearer TOKEN");
        Answer { extra: "WWW-Authenticate: Bearer realm=\"flick\"\r\n", ..refused }
    })
}

fn answer_path(request: &Request<'_>, policy: &Policy, source: &dyn Source) -> Answer {
    let is_secret = matches!(request.path, "/metrics" | "/api/state" | "/api/sessions");
    if let Some(refused) = refused(request, policy, is_secret) {
        return refused;
    }
    match request.path {
        "/" => page(),
        "/metrics" => Answer::of(metrics::CONTENT_TYPE, metrics::text(&source.state())),
        "/api/state" => json(&source.state()),
        "/api/sessions" => json(&source.sessions()),
        "/healthz" => match source.alive() {
            Ok(()) => Answer::plain("200 OK", "ok"),
            Err(why) => Answer::plain("503 Service Unavailable", &why),
        },
        "/readyz" => match source.ready() {
            Ok(()) => Answer::plain("200 OK", "ready"),
            Err(why) => Answer::plain("503 Service Unavailable", &why),
        },
        _ => Answer::plain(
            "404 Not Found",
            "there are /, /metrics, /healthz, /readyz, /api/state and /api/sessions",
        ),
    }
}

fn json(shown: &impl serde::Serialize) -> Answer {
    match serde_json::to_string(shown) {
        Ok(json) => Answer::of("application/json", json),
        Err(error) => panic!("a state is numbers and texts, which JSON has words for: {error}"),
    }
}

fn page() -> Answer {
    let page = Answer::of("text/html; charset=utf-8", PAGE.to_owned());
    Answer { extra: PAGE_POLICY, ..page }
}

/// Whether a token was shown, if one is needed. Takes as long for a wrong one as for the right one.
fn is_known(policy: &Policy, shown: Option<&str>) -> bool {
    let Some(token) = &policy.token else { return true };
    let shown = shown.unwrap_or("");
    let pairs = token.bytes().zip(shown.bytes().chain(std::iter::repeat(0)));
    let differences = pairs.fold(0, |differences, (a, b)| differences | (a ^ b));
    (differences == 0) & (token.len() == shown.len())
}

/// An address, or `localhost`, with or without a port.
fn is_of_this_machine(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(""),
        None => host.split(':').next().unwrap_or(""),
    };
    name.is_empty() || name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::parse;
    use crate::state::{Sessions, State};

    struct Fixed(Result<(), String>);

    impl Source for Fixed {
        fn state(&self) -> State {
            State { version: "1".to_owned(), ..State::default() }
        }

        fn sessions(&self) -> Sessions {
            Sessions { open: 7, ..Sessions::default() }
        }

        fn alive(&self) -> Result<(), String> {
            Ok(())
        }

        fn ready(&self) -> Result<(), String> {
            self.0.clone()
        }

        fn ask(&self, _ask: Ask) -> Result<String, String> {
            self.0.clone().map(|()| "done".to_owned())
        }
    }

    fn check(token: Option<&str>, head: &str, status: &str) -> String {
        let policy = Policy { token: token.map(str::to_owned), is_local_only: token.is_none() };
        let head = format!("{head}\r\n\r\n");
        let answer = answer(parse(head.as_bytes()).as_ref(), &policy, &Fixed(Err("draining".to_owned())));
        let text = String::from_utf8(answer.bytes()).expect("answers are text");
        assert!(text.starts_with(&format!("HTTP/1.1 {status} ")), "{head:?}: {text}");
        text
    }

    #[test]
    fn every_path_answers() {
        for (path, status, piece) in [
            ("/", "200", "<!doctype html>"),
            ("/metrics", "200", "# EOF\n"),
            ("/api/state", "200", "\"version\":\"1\""),
            ("/api/sessions", "200", "\"open\":7"),
            ("/healthz", "200", "ok"),
            ("/readyz", "503", "draining"),
            ("/else", "404", "/metrics"),
        ] {
            let text = check(None, &format!("GET {path} HTTP/1.1"), status);
            assert!(text.contains(piece), "{path}: {text}");
            let head = check(None, &format!("HEAD {path} HTTP/1.1"), status);
            assert!(head.ends_with("\r\n\r\n") && text.starts_with(&head), "{path}: {head}");
        }
        check(None, "POST /metrics HTTP/1.1", "405");
        check(None, "nonsense", "400");
    }

    #[test]
    fn what_changes_something_needs_the_token_and_a_field_that_pages_cannot_send() {
        for (token, fields, status) in [
            (None, "", "403"),
            (None, "\r\nX-Flick-Ask: yes", "409"),
            (None, "\r\nX-Flick-Ask: yes\r\nHost: evil.example", "421"),
            (Some("t"), "\r\nX-Flick-Ask: yes", "401"),
            (Some("t"), "\r\nX-Flick-Ask: yes\r\nAuthorization: Bearer t", "409"),
        ] {
            check(token, &format!("POST /api/reload HTTP/1.1{fields}"), status);
        }
        check(None, "GET /api/reload HTTP/1.1", "404");
        check(None, "OPTIONS /api/reload HTTP/1.1", "405");
    }

    #[test]
    fn the_state_needs_the_token_and_probes_do_not() {
        for (field, status) in [
            ("", "401"),
            ("\r\nAuthorization: Bearer abd", "401"),
            ("\r\nAuthorization: Bearer ab", "401"),
            ("\r\nAuthorization: Bearer abcd", "401"),
            ("\r\nAuthorization: Bearer abc\0", "401"),
            ("\r\nAuthorization: Basic abc", "401"),
            ("\r\nAuthorization: Bearer abc", "200"),
        ] {
            for path in ["/metrics", "/api/state", "/api/sessions"] {
                check(Some("abc"), &format!("GET {path} HTTP/1.1{field}"), status);
            }
            check(Some("abc"), &format!("GET /healthz HTTP/1.1{field}"), "200");
            check(Some("abc"), &format!("GET / HTTP/1.1{field}"), "200");
        }
    }

    #[test]
    fn a_page_of_somebody_else_reads_nothing_through_a_name_of_its_own() {
        for (host, status) in [
            ("127.0.0.1:9900", "200"),
            ("localhost:9900", "200"),
            ("[::1]:9900", "200"),
            ("evil.example:9900", "421"),
            ("localhost.evil.example", "421"),
        ] {
            check(None, &format!("GET /api/state HTTP/1.1\r\nHost: {host}"), status);
        }
        check(Some("t"), "GET /healthz HTTP/1.1\r\nHost: proxy.example", "200");
    }
}
