//! One HTTP request, as far as the admin endpoint needs it.
//! Promises: a malformed head is an error; header names are compared without case.
//! Refuses: request bodies; parameters are in the query. A connection carries one request.

use httparse::{EMPTY_HEADER, Status};

use crate::limits::REQUEST_HEADERS_MAX;

/// A request that changes something needs this header. Browsers do not let a page of another origin send it without a
/// preflight request, which is rejected (CSRF).
pub const CSRF_HEADER: &str = "x-flick-ask";

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The method.
    pub method: &'a str,
    /// The path, without the query.
    pub path: &'a str,
    /// The query, behind `?`.
    query: &'a str,
    /// `Host`.
    pub host: Option<&'a str>,
    /// `Accept`.
    pub accept: Option<&'a str>,
    /// The token in `Authorization: Bearer`.
    pub bearer: Option<&'a str>,
    /// Whether the request has [`CSRF_HEADER`].
    pub has_csrf_header: bool,
}

/// The head of a request is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl<'a> Request<'a> {
    /// Parses the head at the front of `bytes`; `None` if it is not complete yet.
    ///
    /// Errors: it is not a head of HTTP/1.
    pub fn parse(bytes: &'a [u8]) -> Result<Option<Self>, Malformed> {
        let mut headers = [EMPTY_HEADER; REQUEST_HEADERS_MAX];
        let mut head = httparse::Request::new(&mut headers);
        if head.parse(bytes).map_err(|_| Malformed)? == Status::Partial {
            return Ok(None);
        }
        let (Some(method), Some(target)) = (head.method, head.path.filter(|path| path.starts_with('/')))
        else {
            return Err(Malformed);
        };
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut request =
            Self { method, path, query, host: None, accept: None, bearer: None, has_csrf_header: false };
        for header in head.headers.iter() {
            let value = || std::str::from_utf8(header.value).map_err(|_| Malformed);
            if header.name.eq_ignore_ascii_case(CSRF_HEADER) {
                request.has_csrf_header = true;
            } else if header.name.eq_ignore_ascii_case("host") {
                request.host = Some(value()?);
            } else if header.name.eq_ignore_ascii_case("accept") {
                request.accept = Some(value()?);
            } else if header.name.eq_ignore_ascii_case("authorization") {
                let bearer = value()?.split_once(' ');
                let bearer = bearer.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
                request.bearer = bearer.map(|(_, token)| token.trim_start());
            }
        }
        Ok(Some(request))
    }

    /// The parameters of the query, in their order. Nothing is decoded: no name or value needs it.
    pub fn parameters(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        let pairs = self.query.split('&').filter(|pair| !pair.is_empty());
        pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
    }

    /// Whether a parameter is set to `1`.
    pub fn has_flag(&self, name: &str) -> bool {
        self.parameters().any(|parameter| parameter == (name, "1"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(head: &str, expected: (&str, &str, Option<&str>, Option<&str>)) {
        let request = Request::parse(head.as_bytes()).expect("well-formed").expect("complete");
        assert_eq!((request.method, request.path, request.host, request.bearer), expected, "{head:?}");
    }

    #[test]
    fn parses_a_head() {
        check("GET / HTTP/1.1\r\n\r\n", ("GET", "/", None, None));
        check("HEAD /metrics?x=/y HTTP/1.0\r\nHOST: a:1 \r\n\r\n", ("HEAD", "/metrics", Some("a:1"), None));
        let bearer = "GET /a HTTP/1.1\r\nAccept:*/*\r\nauthorization: bearer  T\r\n\r\n";
        check(bearer, ("GET", "/a", None, Some("T")));
        check("GET /a HTTP/1.1\r\nAuthorization: Basic T\r\n\r\n", ("GET", "/a", None, None));
    }

    #[test]
    fn parses_parameters() {
        let head = b"GET /a?per_worker=1&b&c=d=e HTTP/1.1\r\n\r\n";
        let request = Request::parse(head).expect("well-formed").expect("complete");
        let parameters: Vec<_> = request.parameters().collect();
        assert_eq!(parameters, [("per_worker", "1"), ("b", ""), ("c", "d=e")]);
        assert!(request.has_flag("per_worker") && !request.has_flag("b"));
    }

    #[test]
    fn rejects_a_malformed_head() {
        for head in [
            "GET /\r\n\r\n",
            "GET  / HTTP/1.1\r\n\r\n",
            "GET http://a/ HTTP/1.1\r\n\r\n",
            "GET / HTTP/2\r\n\r\n",
            "GET / HTTP/1.1\r\nno colon\r\n\r\n",
            "GET / HTTP/1.1\r\nHost : a\r\n\r\n",
        ] {
            assert_eq!(Request::parse(head.as_bytes()), Err(Malformed), "{head:?}");
        }
        assert_eq!(Request::parse(b"GET / HTTP/1.1\r\nHost: \xff\r\n\r\n"), Err(Malformed));
    }

    #[test]
    fn waits_for_a_complete_head() {
        for head in ["", "GET / HT", "GET / HTTP/1.1\r\n\r"] {
            assert_eq!(Request::parse(head.as_bytes()), Ok(None), "{head:?}");
        }
    }
}
