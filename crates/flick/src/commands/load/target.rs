//! The URL of a load: what to ask, and where.
//! Promises: an address without a server is found before the load; every error says what to write instead.

use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::str::FromStr;
use std::time::Duration;

use flick_shm::client::ClientAddress;

/// Longest time that one address may take to accept the first connection.
const CONNECT_WAIT_MAX: Duration = Duration::from_secs(5);

/// The first part of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// HTTP.
    Http,
    /// memcached.
    Memcached,
    /// Redis.
    Redis,
}

/// A URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// All of it.
    pub url: String,
    /// The protocol.
    pub scheme: Scheme,
    /// Host and port as they are written; the `Host` field of HTTP.
    pub host: String,
    /// Path and query of HTTP; `/` if there is none.
    pub path: String,
    address: Address,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Address {
    /// A name or a number, and a port.
    Host(String, u16),
    /// A Unix socket or a name of shared memory.
    Local(ClientAddress),
}

impl FromStr for Target {
    type Err = String;

    fn from_str(url: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{url}` is not a target; write `http://HOST:PORT/PATH`, `memcached://HOST:PORT` or \
                 `redis://HOST:PORT`"
            )
        };
        let (scheme, rest) = url.split_once("://").ok_or_else(wrong)?;
        let (scheme, default_port) = match scheme {
            "http" => (Scheme::Http, 80),
            "memcached" => (Scheme::Memcached, 11_211),
            "redis" => (Scheme::Redis, 6_379),
            "https" | "rediss" => {
                return Err("TLS is not supported; write `http://` or `redis://`".to_owned());
            }
            _ => return Err(wrong()),
        };
        if rest.starts_with("unix:") || rest.starts_with("shm:") {
            let address = Address::Local(rest.parse().map_err(str::to_owned)?);
            let (host, path) = ("localhost".to_owned(), "/".to_owned());
            return Ok(Self { url: url.to_owned(), scheme, host, path, address });
        }
        let (host, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let path = path.split('#').next().unwrap_or_default();
        if scheme != Scheme::Http && !matches!(path, "" | "/") {
            return Err(format!("`{path}` is not expected: only `http://` has a path"));
        }
        if host.contains('@') {
            return Err("users and passwords are not supported".to_owned());
        }
        if !url.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!("`{url}` has a space or another byte that a URL must escape"));
        }
        let has_port = host.rsplit_once(':').filter(|(name, _)| !name.contains(':') || name.ends_with(']'));
        let (name, port) = match has_port {
            Some((name, port)) => (name, port.parse().map_err(|_| format!("`{port}` is not a port"))?),
            None => (host, default_port),
        };
        let name = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
        if name.is_empty() {
            return Err(wrong());
        }
        let path = match path.strip_prefix('?') {
            Some(query) => format!("/?{query}"),
            None if path.is_empty() => "/".to_owned(),
            None => path.to_owned(),
        };
        let address = Address::Host(name.to_owned(), port);
        Ok(Self { url: url.to_owned(), scheme, host: host.to_owned(), path, address })
    }
}

impl Target {
    /// Resolves the name and connects once. Returns the first address that accepts.
    ///
    /// Errors: the name does not resolve, or no server accepts.
    pub fn connect(&self) -> Result<ClientAddress, String> {
        let (name, port) = match &self.address {
            Address::Host(name, port) => (name.as_str(), *port),
            Address::Local(ClientAddress::Unix(path)) => {
                let failed = |error| format!("cannot connect to `{path}`: {error}");
                UnixStream::connect(path).map_err(failed)?;
                return Ok(ClientAddress::Unix(path.clone()));
            }
            Address::Local(other) => return Ok(other.clone()),
        };
        let resolved = (name, port).to_socket_addrs();
        let resolved = resolved.map_err(|error| format!("cannot resolve `{name}`: {error}"))?;
        let mut failure = format!("`{name}` has no address");
        for address in resolved {
            match TcpStream::connect_timeout(&address, CONNECT_WAIT_MAX) {
                Ok(_) => return Ok(address.into()),
                Err(error) => failure = format!("cannot connect to {address}: {error}"),
            }
        }
        Err(failure)
    }
}

#[cfg(test)]
mod tests {
    use super::{Address, Scheme, Target};

    #[track_caller]
    fn check(url: &str, name: &str, port: u16, path: &str) -> Target {
        let target: Target = url.parse().expect(url);
        assert_eq!(target.address, Address::Host(name.to_owned(), port), "{url}");
        assert_eq!(target.path, path, "{url}");
        target
    }

    #[test]
    fn a_url_names_protocol_host_and_path() {
        let target = check("http://localhost:8080/a/b?c=d#e", "localhost", 8080, "/a/b?c=d");
        assert_eq!((target.scheme, target.host.as_str()), (Scheme::Http, "localhost:8080"));
        check("http://[::1]:81", "::1", 81, "/");
        check("http://[::1]/", "::1", 80, "/");
        check("http://a?b", "a", 80, "/?b");
        assert_eq!(check("memcached://10.0.0.1", "10.0.0.1", 11_211, "/").scheme, Scheme::Memcached);
        assert_eq!(check("redis://h:1/", "h", 1, "/").scheme, Scheme::Redis);
        let local: Target = "redis://unix:/run/redis.sock".parse().expect("a path");
        assert!(matches!(local.address, Address::Local(_)));
    }

    #[test]
    fn a_wrong_url_is_refused() {
        for (url, why) in [
            ("localhost:80", "is not a target"),
            ("ftp://a", "is not a target"),
            ("http://", "is not a target"),
            ("http://:80/", "is not a target"),
            ("https://a", "TLS is not supported"),
            ("http://a:70000/", "is not a port"),
            ("redis://a/1", "only `http://` has a path"),
            ("http://u:p@a/", "passwords"),
            ("http://a/b c", "must escape"),
        ] {
            let error = url.parse::<Target>().expect_err(url);
            assert!(error.contains(why), "{url}: {error}");
        }
    }
}
