//! The head of one HTTP request, as far as the admin side needs it.
//! Promises: anything else than a well-formed head is told apart from one; names of fields are compared without case.
//! Refuses: bodies. What asks to be read is GET or HEAD, what asks for something to be done is POST, without one; a
//! connection carries one request.
//! Source: RFC 9112, sections 3 and 5.

/// A request that changes something carries this field, which a browser lets no page of somebody else send without asking
/// first; and the asking is refused.
pub const ASK_FIELD: &str = "x-flick-ask";

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// `GET`, say.
    pub method: &'a str,
    /// The path, without what is behind a `?`.
    pub path: &'a str,
    /// What `Host` says.
    pub host: Option<&'a str>,
    /// What `Authorization` says behind `Bearer`.
    pub bearer: Option<&'a str>,
    /// It carries the field that no page of somebody else can send.
    pub is_deliberate: bool,
}

/// Finds the end of a head, behind its empty line.
pub fn head_end(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4)
}

/// Reads a whole head; `None` for what is not one.
pub fn parse(head: &[u8]) -> Option<Request<'_>> {
    let text = std::str::from_utf8(head).ok()?;
    let mut lines = text.strip_suffix("\r\n\r\n")?.split("\r\n");
    let mut words = lines.next()?.split(' ');
    let (method, target, version) = (words.next()?, words.next()?, words.next()?);
    let is_whole = words.next().is_none() && !method.is_empty() && matches!(version, "HTTP/1.1" | "HTTP/1.0");
    if !is_whole || !target.starts_with('/') {
        return None;
    }
    let path = target.split_once('?').map_or(target, |(path, _)| path);
    let mut request = Request { method, path, host: None, bearer: None, is_deliberate: false };
    for line in lines {
        let (name, value) =
            line.split_once(':').filter(|(name, _)| !name.is_empty() && !name.contains(' '))?;
        let value = value.trim_matches([' ', '\t']);
        if name.eq_ignore_ascii_case(ASK_FIELD) {
            request.is_deliberate = true;
        } else if name.eq_ignore_ascii_case("host") {
            request.host = Some(value);
        } else if name.eq_ignore_ascii_case("authorization") {
            let bearer = value.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
            request.bearer = bearer.map(|(_, token)| token.trim_start());
        }
    }
    Some(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(head: &str, expected: Option<(&str, &str, Option<&str>, Option<&str>)>) {
        let found = parse(head.as_bytes());
        let found = found.map(|request| (request.method, request.path, request.host, request.bearer));
        assert_eq!(found, expected, "{head:?}");
    }

    #[test]
    fn heads_are_read() {
        check("GET / HTTP/1.1\r\n\r\n", Some(("GET", "/", None, None)));
        check(
            "HEAD /metrics?x=/y HTTP/1.0\r\nHOST: a:1 \r\n\r\n",
            Some(("HEAD", "/metrics", Some("a:1"), None)),
        );
        check(
            "GET /a HTTP/1.1\r\nAccept:*/*\r\nauthorization: bearer  T\r\n\r\n",
            Some(("GET", "/a", None, Some("T"))),
        );
        check("GET /a HTTP/1.1\r\nAuthorization: Basic T\r\n\r\n", Some(("GET", "/a", None, None)));
    }

    #[test]
    fn what_is_no_head_is_refused() {
        for head in [
            "",
            "\r\n\r\n",
            "GET /\r\n\r\n",
            "GET  / HTTP/1.1\r\n\r\n",
            "GET http://a/ HTTP/1.1\r\n\r\n",
            "GET / HTTP/2\r\n\r\n",
            "GET / HTTP/1.1\r\nno field\r\n\r\n",
            "GET / HTTP/1.1\r\nHost : a\r\n\r\n",
            "GET / HTTP/1.1\r\n",
        ] {
            check(head, None);
        }
    }

    #[test]
    fn a_head_ends_behind_its_empty_line() {
        assert_eq!(head_end(b"GET / HTTP/1.1\r\n\r"), None);
        assert_eq!(head_end(b"a\r\n\r\nb"), Some(5));
    }
}
