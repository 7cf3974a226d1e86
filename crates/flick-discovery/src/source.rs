//! The sources of a backend list and how options and `flick.toml` write them.

use std::path::PathBuf;
use std::str::FromStr;

use crate::dns;

/// A source of a backend list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// `file:PATH`: one backend per line.
    File(PathBuf),
    /// `dns:NAME:PORT`: the A and AAAA records of a name.
    Host {
        /// The name.
        name: String,
        /// The port of every address.
        port: u16,
    },
    /// `srv:NAME`: the SRV records of a service.
    Service(String),
}

impl Source {
    /// Parses a source. Returns `None` if the text does not start like one; it may be an address.
    ///
    /// Errors: what is wrong, and what is allowed.
    pub fn parse(text: &str) -> Option<Result<Self, String>> {
        if let Some(path) = text.strip_prefix("file:") {
            let error = || format!("`{text}` has no path; write `file:PATH`");
            return Some((!path.is_empty()).then(|| Self::File(path.into())).ok_or_else(error));
        }
        if let Some(rest) = text.strip_prefix("dns:") {
            let source = rest.rsplit_once(':').and_then(|(name, port)| {
                let port = u16::from_str(port).ok().filter(|port| *port > 0)?;
                dns::is_name(name).then(|| Self::Host { name: name.to_owned(), port })
            });
            let error = || {
                format!(
                    "`{text}` is not a name with a port; write `dns:NAME:PORT`, such as `dns:cache.example:11211`"
                )
            };
            return Some(source.ok_or_else(error));
        }
        let name = text.strip_prefix("srv:")?;
        let error = || {
            format!("`{text}` is not the name of a service; write `srv:_SERVICE._tcp.NAME`, without a port")
        };
        Some(dns::is_name(name).then(|| Self::Service(name.to_owned())).ok_or_else(error))
    }

    /// Returns the source with the path of a file resolved by `directory`.
    pub fn below(self, directory: impl FnOnce(PathBuf) -> PathBuf) -> Self {
        match self {
            Self::File(path) => Self::File(directory(path)),
            other => other,
        }
    }
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => write!(f, "file:{}", path.display()),
            Self::Host { name, port } => write!(f, "dns:{name}:{port}"),
            Self::Service(name) => write!(f, "srv:{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Source;

    fn check(text: &str, expected: &str) {
        let shown = match Source::parse(text) {
            None => "none".to_owned(),
            Some(Ok(source)) => source.to_string(),
            Some(Err(error)) => error,
        };
        assert!(shown.contains(expected), "{text}: {shown}");
    }

    #[test]
    fn addresses_are_not_sources() {
        check("127.0.0.1:80", "none");
        check("unix:/run/a.sock", "none");
    }

    #[test]
    fn files_names_and_services() {
        check("file:/etc/backends", "file:/etc/backends");
        check("file:", "write `file:PATH`");
        check("dns:cache.example:11211", "dns:cache.example:11211");
        check("dns:cache.example", "write `dns:NAME:PORT`");
        check("dns::80", "write `dns:NAME:PORT`");
        check("dns:a..b:80", "write `dns:NAME:PORT`");
        check("srv:_http._tcp.example", "srv:_http._tcp.example");
        check("srv:", "write `srv:");
        check("srv:_http._tcp.example:80", "without a port");
        check("dns:http://cache.example:80", "write `dns:NAME:PORT`");
    }
}
