//! Routing of requests, and responses.
//! Not here: who may send which request (`policy.rs`).
//! Source: `/healthz` and `/readyz` as Kubernetes probes them.

use std::collections::BTreeMap;

use crate::metrics::{self, Detail, Format};
use crate::policy::{AccessPolicy, Scope};
use crate::request::{Malformed, Request};
use crate::server::{AdminCommand, StateProvider};

/// The admin page, with its style and script.
const PAGE: &str = include_str!("page.html");
/// The page loads nothing from other origins, and cannot be framed.
const PAGE_POLICY: &str = "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; \
                           script-src 'unsafe-inline'; connect-src 'self'; img-src data:; \
                           frame-ancestors 'none'; base-uri 'none'; form-action 'none'\r\n";

/// `Server` of every response, by which the client knows flick.
pub(crate) const SERVER: &str = "flick";

/// The path of the tunables.
const TUNABLES: &str = "/api/tunables";
/// The path of the backends.
const BACKENDS: &str = "/api/backends";

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) status: &'static str,
    content_type: &'static str,
    extra_headers: &'static str,
    body: String,
    has_body: bool,
}

impl Response {
    /// A line of text.
    pub(crate) fn plain(status: &'static str, text: &str) -> Self {
        let body = format!("{text}\n");
        Self { status, content_type: "text/plain; charset=utf-8", extra_headers: "", body, has_body: true }
    }

    /// A token is required.
    pub(crate) fn unauthorized() -> Self {
        let refused = Self::plain("401 Unauthorized", "the header `Authorization: Bearer TOKEN` is required");
        Self { extra_headers: "WWW-Authenticate: Bearer realm=\"flick\"\r\n", ..refused }
    }

    fn ok(content_type: &'static str, body: String) -> Self {
        Self { status: "200 OK", content_type, extra_headers: "", body, has_body: true }
    }

    /// The bytes to send.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut text = format!(
            "HTTP/1.1 {}\r\nServer: {SERVER}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\
             Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n{}\r\n",
            self.status,
            self.content_type,
            self.body.len(),
            self.extra_headers
        );
        if self.has_body {
            text.push_str(&self.body);
        }
        text.into_bytes()
    }
}

/// The response to a request. `user` is the user id at the other end, if that is on this machine.
pub(crate) fn respond(
    request: Result<&Request<'_>, Malformed>,
    policy: &AccessPolicy,
    user: impl FnOnce() -> Option<u32>,
    provider: &dyn StateProvider,
) -> Response {
    let Ok(request) = request else {
        return Response::plain("400 Bad Request", "malformed HTTP request");
    };
    let command = command(request.path);
    let change = |change: &dyn Fn() -> Response| match policy.check(request, Scope::Control, user) {
        Ok(()) => change(),
        Err(refused) => refused,
    };
    let mut response = match (request.method, command) {
        ("GET" | "HEAD", None) => get(request, policy, provider),
        ("POST", Some(command)) => change(&|| execute(command, provider)),
        ("PUT" | "POST", None) if request.path == TUNABLES => change(&|| tune(request, provider)),
        ("PUT" | "POST", None) if request.path == BACKENDS => change(&|| change_backend(request, provider)),
        _ => not_allowed(match request.path {
            _ if command.is_some() => "Allow: POST\r\n",
            TUNABLES | BACKENDS => "Allow: GET, HEAD, PUT, POST\r\n",
            _ => "Allow: GET, HEAD\r\n",
        }),
    };
    response.has_body = request.method != "HEAD";
    response
}

/// The response to a request with another method than those in the header `allow`.
fn not_allowed(allow: &'static str) -> Response {
    let text = format!("the method is not allowed here; {}", allow.trim_end());
    Response { extra_headers: allow, ..Response::plain("405 Method Not Allowed", &text) }
}

/// The command of a path.
fn command(path: &str) -> Option<AdminCommand> {
    match path {
        "/api/reload" => Some(AdminCommand::Reload),
        "/api/upgrade" => Some(AdminCommand::Upgrade),
        _ => None,
    }
}

fn execute(command: AdminCommand, provider: &dyn StateProvider) -> Response {
    match provider.execute(command) {
        Ok(result) => Response::plain("200 OK", &result),
        Err(error) => Response::plain("409 Conflict", &error),
    }
}

/// Changes the tunables in the parameters, and returns the values of all services.
fn tune(request: &Request<'_>, provider: &dyn StateProvider) -> Response {
    let (services, changes): (Vec<_>, Vec<_>) =
        request.parameters().partition(|(name, _)| *name == "service");
    match provider.tune(services.first().map(|(_, name)| *name), &changes) {
        Ok(()) => tunables(provider),
        Err(error) => Response::plain("400 Bad Request", &error),
    }
}

fn change_backend(request: &Request<'_>, provider: &dyn StateProvider) -> Response {
    match provider.change_backend(&request.parameters().collect::<Vec<_>>()) {
        Ok(changes) => Response::plain("200 OK", &changes),
        Err(error) => Response::plain("400 Bad Request", &error),
    }
}

/// The tunables of each service, by its name.
fn tunables(provider: &dyn StateProvider) -> Response {
    let services = provider.state().services.into_iter();
    json(&services.map(|service| (service.name, service.tunables)).collect::<BTreeMap<_, _>>())
}

fn get(request: &Request<'_>, policy: &AccessPolicy, provider: &dyn StateProvider) -> Response {
    let shows_state = matches!(
        request.path,
        "/metrics" | "/api/state" | "/api/history" | "/api/sessions" | TUNABLES | BACKENDS
    );
    let scope = if shows_state { Scope::Read } else { Scope::Open };
    if let Err(refused) = policy.check(request, scope, || None) {
        return refused;
    }
    match request.path {
        "/" => page(),
        "/metrics" => {
            let format = Format::negotiate(request.accept);
            let detail = if request.has_flag("per_worker") { Detail::PerWorker } else { Detail::Service };
            Response::ok(format.content_type(), metrics::text(&provider.state(), format, detail))
        }
        "/api/state" => json(&provider.state()),
        "/api/history" => json(&provider.history()),
        "/api/sessions" => json(&provider.sessions()),
        TUNABLES => tunables(provider),
        BACKENDS => json(&provider.backends()),
        "/healthz" => match provider.alive() {
            Ok(()) => Response::plain("200 OK", "ok"),
            Err(error) => Response::plain("503 Service Unavailable", &error),
        },
        "/readyz" => match provider.ready() {
            Ok(()) => Response::plain("200 OK", "ready"),
            Err(error) => Response::plain("503 Service Unavailable", &error),
        },
        _ => Response::plain(
            "404 Not Found",
            "the paths are /, /metrics, /healthz, /readyz, /api/state, /api/history, /api/sessions, /api/tunables, \
             /api/backends and (POST) /api/tap, /api/reload, /api/upgrade",
        ),
    }
}

fn json(value: &impl serde::Serialize) -> Response {
    match serde_json::to_string(value) {
        Ok(json) => Response::ok("application/json", json),
        Err(error) => panic!("the state consists of numbers and strings, which are valid JSON: {error}"),
    }
}

fn page() -> Response {
    let page = Response::ok("text/html; charset=utf-8", PAGE.to_owned());
    Response { extra_headers: PAGE_POLICY, ..page }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Sample;
    use crate::policy::Tokens;
    use crate::state::{BackendEntry, Service, Sessions, StateReport, TunableNanos};

    struct Fixed(Result<(), String>);

    impl StateProvider for Fixed {
        fn state(&self) -> StateReport {
            let tunables = TunableNanos { busy_poll_ns: 50_000, ..TunableNanos::default() };
            let service = Service { name: "Proxy".to_owned(), tunables, ..Service::default() };
            StateReport { version: "1".to_owned(), services: vec![service], ..StateReport::default() }
        }

        fn record(&self) {}

        fn history(&self) -> BTreeMap<String, Vec<Sample>> {
            let sample =
                Sample { at_ms: 1, requests_per_s: 2.5, errors_per_s: 0.0, p50_ns: Some(3), p99_ns: None };
            BTreeMap::from([("Proxy".to_owned(), vec![sample])])
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

        fn execute(&self, _command: AdminCommand) -> Result<String, String> {
            self.0.clone().map(|()| "done".to_owned())
        }

        fn tune(&self, service: Option<&str>, changes: &[(&str, &str)]) -> Result<(), String> {
            let is_known = service.is_none_or(|name| name == "Proxy") && changes == [("busy_poll", "50us")];
            if is_known { Ok(()) } else { Err("not a tunable".to_owned()) }
        }

        fn tap(&self, parameters: &[(&str, &str)]) -> Result<Box<dyn crate::TapLines>, String> {
            Err(format!("no tap of {parameters:?}"))
        }

        fn backends(&self) -> Vec<BackendEntry> {
            vec![BackendEntry { backend: "127.0.0.1:1".to_owned(), ..BackendEntry::default() }]
        }

        fn change_backend(&self, parameters: &[(&str, &str)]) -> Result<String, String> {
            let is_known = parameters.contains(&("backend", "127.0.0.1:1"));
            if is_known { Ok("drained".to_owned()) } else { Err("no such backend".to_owned()) }
        }
    }

    fn check(token: Option<&str>, head: &str, status: &str) -> String {
        let tokens = Tokens { control: token.map(str::to_owned), read: None };
        let policy = AccessPolicy { tokens, is_tcp: true };
        let head = format!("{head}\r\n\r\n");
        let request = Request::parse(head.as_bytes()).map(|request| request.expect("a complete head"));
        let (request, provider) =
            (request.as_ref().map_err(|error| *error), Fixed(Err("draining".to_owned())));
        let response = respond(request, &policy, || Some(0), &provider);
        let text = String::from_utf8(response.bytes()).expect("responses are text");
        assert!(text.starts_with(&format!("HTTP/1.1 {status} ")), "{head:?}: {text}");
        text
    }

    #[test]
    fn every_path_has_a_response() {
        for (path, status, piece) in [
            ("/", "200", "<!doctype html>"),
            ("/metrics", "200", "# TYPE flick_build_info gauge\n"),
            ("/api/state", "200", "\"version\":\"1\""),
            ("/api/history", "200", "{\"Proxy\":[{\"at_ms\":1,\"requests_per_s\":2.5,"),
            ("/api/sessions", "200", "\"open\":7"),
            ("/api/backends", "200", "\"backend\":\"127.0.0.1:1\""),
            ("/api/tunables", "200", "{\"Proxy\":{\"busy_poll_ns\":50000,"),
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
    fn metrics_format_follows_accept() {
        let accept = "GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text; version=1.0.0";
        let text = check(None, accept, "200");
        assert!(text.contains("Content-Type: application/openmetrics-text; version=1.0.0"), "{text}");
        assert!(text.ends_with("# EOF\n"), "{text}");
        let text = check(None, "GET /metrics HTTP/1.1", "200");
        assert!(text.contains("Content-Type: text/plain; version=0.0.4"), "{text}");
        assert!(!text.contains("# EOF"), "{text}");
    }

    #[test]
    fn commands_need_the_token_and_the_csrf_header() {
        for (token, headers, status) in [
            (None, "", "403"),
            (None, "\r\nX-Flick-Ask: yes", "409"),
            (None, "\r\nX-Flick-Ask: yes\r\nHost: evil.example", "421"),
            (Some("t"), "\r\nX-Flick-Ask: yes", "401"),
            (Some("t"), "\r\nX-Flick-Ask: yes\r\nAuthorization: Bearer t", "409"),
        ] {
            check(token, &format!("POST /api/reload HTTP/1.1{headers}"), status);
        }
    }

    #[test]
    fn get_of_a_command_names_the_method_that_is_allowed() {
        for (head, allow) in [
            ("GET /api/reload", "Allow: POST\r\n"),
            ("OPTIONS /api/upgrade", "Allow: POST\r\n"),
            ("DELETE /api/tunables", "Allow: GET, HEAD, PUT, POST\r\n"),
            ("POST /metrics", "Allow: GET, HEAD\r\n"),
        ] {
            let text = check(None, &format!("{head} HTTP/1.1"), "405");
            assert!(text.contains(allow), "{head}: {text}");
        }
    }

    #[test]
    fn tunables_are_changed_as_commands_are() {
        let path = "/api/tunables?service=Proxy&busy_poll=50us";
        for (token, method, path, headers, status) in [
            (None, "PUT", path, "", "403"),
            (None, "PUT", path, "\r\nX-Flick-Ask: yes", "200"),
            (None, "POST", "/api/tunables?busy_poll=50us", "\r\nX-Flick-Ask: yes", "200"),
            (None, "PUT", "/api/tunables?service=Other&busy_poll=50us", "\r\nX-Flick-Ask: yes", "400"),
            (None, "PUT", "/api/tunables?workers=3", "\r\nX-Flick-Ask: yes", "400"),
            (None, "PUT", path, "\r\nX-Flick-Ask: yes\r\nHost: evil.example", "421"),
            (Some("t"), "PUT", path, "\r\nX-Flick-Ask: yes", "401"),
            (Some("t"), "PUT", path, "\r\nX-Flick-Ask: yes\r\nAuthorization: Bearer t", "200"),
            (Some("t"), "GET", path, "", "401"),
        ] {
            let text = check(token, &format!("{method} {path} HTTP/1.1{headers}"), status);
            assert_eq!(status == "200", text.contains("\"busy_poll_ns\":50000"), "{method} {path}: {text}");
        }
        check(None, "DELETE /api/tunables HTTP/1.1", "405");
    }

    #[test]
    fn backends_are_changed_as_tunables_are() {
        for (token, query, headers, status) in [
            (None, "backend=127.0.0.1:1&mode=drain", "", "403"),
            (None, "backend=127.0.0.1:1&mode=drain", "\r\nX-Flick-Ask: 1", "200"),
            (None, "backend=127.0.0.1:2&mode=drain", "\r\nX-Flick-Ask: 1", "400"),
            (Some("t"), "backend=127.0.0.1:1&mode=drain", "\r\nX-Flick-Ask: 1", "401"),
        ] {
            check(token, &format!("PUT /api/backends?{query} HTTP/1.1{headers}"), status);
        }
        check(Some("t"), "GET /api/backends HTTP/1.1", "401");
    }

    #[test]
    fn state_needs_the_token_and_probes_do_not() {
        for (header, status) in [
            ("", "401"),
            ("\r\nAuthorization: Bearer abd", "401"),
            ("\r\nAuthorization: Bearer ab", "401"),
            ("\r\nAuthorization: Bearer abcd", "401"),
            ("\r\nAuthorization: Basic abc", "401"),
            ("\r\nAuthorization: Bearer abc", "200"),
        ] {
            for path in ["/metrics", "/api/state", "/api/history", "/api/sessions"] {
                check(Some("abc"), &format!("GET {path} HTTP/1.1{header}"), status);
            }
            check(Some("abc"), &format!("GET /healthz HTTP/1.1{header}"), "200");
            check(Some("abc"), &format!("GET / HTTP/1.1{header}"), "200");
        }
        check(Some("abc"), "GET /metrics HTTP/1.1\r\nAuthorization: Bearer abc\0", "400");
    }

    #[test]
    fn other_host_names_are_rejected_without_a_token() {
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
