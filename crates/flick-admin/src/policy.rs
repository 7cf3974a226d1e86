//! Access rules of the admin endpoint: which request needs which token, or which user.
//! Promises: what shows the state needs a token, if one is set; what changes something always needs the control token
//! or, if none is set, the user id of this process (or root) on this machine; without a token, on TCP, only requests
//! for `localhost` or an IP address are answered, so that no web page can use a host name of its own (DNS rebinding).

use std::net::IpAddr;

use crate::request::{CSRF_HEADER, Request};
use crate::response::Response;

/// The bearer tokens of an admin endpoint.
#[derive(Clone, Default)]
pub struct Tokens {
    /// May change something, and read.
    pub control: Option<String>,
    /// May read.
    pub read: Option<String>,
}

impl Tokens {
    /// Whether there is one.
    pub fn any(&self) -> bool {
        self.control.is_some() || self.read.is_some()
    }
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokens").finish_non_exhaustive()
    }
}

/// Scope of a request: the authority that it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// A probe, or the page without figures.
    Open,
    /// Shows the state.
    Read,
    /// Changes something.
    Control,
}

/// Access rules for requests to the admin endpoint.
#[derive(Clone, Debug)]
pub(crate) struct AccessPolicy {
    pub(crate) tokens: Tokens,
    /// Whether a browser can reach the endpoint.
    pub(crate) is_tcp: bool,
}

impl AccessPolicy {
    /// Checks a request. `user` is the user id at the other end, if that is on this machine.
    ///
    /// Errors: the response that refuses it.
    pub(crate) fn check(
        &self,
        request: &Request<'_>,
        scope: Scope,
        user: impl FnOnce() -> Option<u32>,
    ) -> Result<(), Response> {
        let Tokens { control, read } = &self.tokens;
        let needs_token = if scope == Scope::Control { control.is_some() } else { self.tokens.any() };
        if self.is_tcp && !needs_token && !request.host.is_none_or(is_local_host) {
            let text = "use `localhost` or an IP address as the host, or set a token";
            return Err(Response::plain("421 Misdirected Request", text));
        }
        let has =
            |token: &Option<String>| token.as_deref().is_some_and(|token| is_token(token, request.bearer));
        match scope {
            Scope::Open => return Ok(()),
            Scope::Read if !needs_token || has(control) || has(read) => return Ok(()),
            Scope::Control if needs_token && has(control) => {}
            Scope::Control if needs_token && has(read) => {
                return Err(Response::plain("403 Forbidden", "this token may read, and change nothing"));
            }
            Scope::Read | Scope::Control if needs_token => return Err(Response::unauthorized()),
            _ => check_user(user())?,
        }
        if !request.has_csrf_header {
            let text = format!("the header `{CSRF_HEADER}` is missing; any value will do");
            return Err(Response::plain("403 Forbidden", &text));
        }
        Ok(())
    }
}

/// Errors: the response to another user than that of this process.
fn check_user(user: Option<u32>) -> Result<(), Response> {
    let own = rustix::process::geteuid().as_raw();
    if user.is_some_and(|user| user == own || user == 0) {
        return Ok(());
    }
    let text = format!(
        "only user id {own} (or root) of this machine may change something; for others, set a token (`token_file`)"
    );
    Err(Response::plain("403 Forbidden", &text))
}

/// Whether a request has this token. Compares in constant time.
fn is_token(token: &str, bearer: Option<&str>) -> bool {
    let bearer = bearer.unwrap_or("");
    let pairs = token.bytes().zip(bearer.bytes().chain(std::iter::repeat(0)));
    let differences = pairs.fold(0, |differences, (a, b)| differences | (a ^ b));
    (differences == 0) & (token.len() == bearer.len())
}

/// Whether a host is `localhost` or an IP address, with or without a port.
fn is_local_host(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(""),
        None => host.split(':').next().unwrap_or(""),
    };
    name.is_empty() || name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::{AccessPolicy, Scope, Tokens};
    use crate::request::Request;

    /// The status of a request with these headers; `200` if it is allowed.
    fn status(tokens: [Option<&str>; 2], scope: Scope, headers: &str, user: Option<u32>) -> String {
        let [control, read] = tokens.map(|token| token.map(str::to_owned));
        let policy = AccessPolicy { tokens: Tokens { control, read }, is_tcp: true };
        let head = format!("GET / HTTP/1.1\r\nX-Flick-Ask: 1\r\n{headers}\r\n");
        let request = Request::parse(head.as_bytes()).expect("well-formed").expect("complete");
        let checked = policy.check(&request, scope, || user);
        checked.map_or_else(|response| response.status[..3].to_owned(), |()| "200".to_owned())
    }

    #[test]
    fn change_on_loopback_needs_a_token_or_the_same_user() {
        let own = rustix::process::geteuid().as_raw();
        let check = |tokens, headers: &str, user, expected: &str| {
            assert_eq!(status(tokens, Scope::Control, headers, user), expected, "{headers:?} {user:?}");
        };
        check([None, None], "", Some(own), "200");
        check([None, None], "", Some(0), "200");
        check([None, None], "", Some(own + 1), "403");
        check([None, None], "", None, "403");
        check([None, None], "Host: evil.example\r\n", Some(own), "421");
        // Where a token is set it is required.
        check([Some("c"), None], "", Some(own), "401");
        check([Some("c"), None], "Authorization: Bearer c\r\n", None, "200");
        check([Some("c"), Some("r")], "Authorization: Bearer r\r\n", Some(own), "403");
        check([None, Some("r")], "Authorization: Bearer r\r\n", None, "403");
        check([None, Some("r")], "", Some(own), "200");
    }

    #[test]
    fn read_token_reads_only() {
        let check = |tokens, headers: &str, expected: &str| {
            assert_eq!(status(tokens, Scope::Read, headers, None), expected, "{headers:?}");
        };
        check([None, None], "", "200");
        check([None, None], "Host: evil.example\r\n", "421");
        for tokens in [[Some("c"), None], [None, Some("r")], [Some("c"), Some("r")]] {
            check(tokens, "", "401");
            check(tokens, "Authorization: Bearer x\r\n", "401");
        }
        check([Some("c"), Some("r")], "Authorization: Bearer r\r\n", "200");
        check([Some("c"), Some("r")], "Authorization: Bearer c\r\n", "200");
    }
}
