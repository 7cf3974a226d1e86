//! The URL of a load: what to ask, and where.
//! Promises: an address without a server is found before the load; every error says what to write instead.

use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::str::FromStr;
use std::time::{Duration, Instant};

use flick_shm::client::{ClientAddress, ClientConfig, ClientEvent, ClientSet};
use flick_shm::pairing::PairError;
use rustix::event::Timespec;
use rustix::io::Errno;

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
            // The path of a Unix socket is all of the rest.
            let is_name = rest.starts_with("shm:");
            let (at, path) = rest.split_at(rest.find('/').filter(|_| is_name).unwrap_or(rest.len()));
            let path = if is_name { asked_path(url, scheme, path)? } else { "/".to_owned() };
            let address = at.parse().map_err(|error| format!("`{at}` is not an address: {error}"))?;
            let (host, address) = ("localhost".to_owned(), Address::Local(address));
            return Ok(Self { url: url.to_owned(), scheme, host, path, address });
        }
        let (host, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let path = asked_path(url, scheme, path)?;
        if host.contains('@') {
            return Err("users and passwords are not supported".to_owned());
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
        let address = Address::Host(name.to_owned(), port);
        Ok(Self { url: url.to_owned(), scheme, host: host.to_owned(), path, address })
    }
}

/// Returns the path and query to ask for, by what is behind the address of a URL.
///
/// Errors: the protocol has no path, or the URL has bytes that it must escape.
fn asked_path(url: &str, scheme: Scheme, path: &str) -> Result<String, String> {
    let path = path.split('#').next().unwrap_or_default();
    if scheme != Scheme::Http && !matches!(path, "" | "/") {
        return Err(format!("`{path}` is not expected: only `http://` has a path"));
    }
    if !url.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(format!("`{url}` has a space or another byte that a URL must escape"));
    }
    Ok(match path.strip_prefix('?') {
        Some(query) => format!("/?{query}"),
        None if path.is_empty() => "/".to_owned(),
        None => path.to_owned(),
    })
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
            Address::Local(other) => {
                connect_through_memory(other)
                    .map_err(|reason| format!("cannot connect to `{other}`: {reason}"))?;
                return Ok(other.clone());
            }
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

/// Connects once through shared memory.
///
/// Errors: why it fails.
fn connect_through_memory(address: &ClientAddress) -> Result<(), String> {
    let mut set = ClientSet::new(&ClientConfig::new(1)).map_err(|error| error.to_string())?;
    set.connect(0, address).map_err(|error| match error {
        PairError::System(Errno::CONNREFUSED) => "no process listens at this name".to_owned(),
        error => error.to_string(),
    })?;
    let (deadline, mut events) = (Instant::now() + CONNECT_WAIT_MAX, Vec::with_capacity(2));
    while let Some(left) = deadline.checked_duration_since(Instant::now()) {
        let timeout = Timespec::try_from(left).ok();
        set.wait(&mut events, timeout).map_err(|error| error.to_string())?;
        for event in &events {
            match event {
                ClientEvent::Connected(_) => return Ok(()),
                ClientEvent::Failed(_) => return Err("the process at this name refuses it".to_owned()),
                _ => {}
            }
        }
    }
    Err(format!("the process at this name does not answer within {} s", CONNECT_WAIT_MAX.as_secs()))
}

#[cfg(test)]
mod tests {
    use flick_shm::client::ClientAddress;
    use flick_shm::pairing::{PairListener, PairPolicy};

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
    fn path_behind_a_name_was_taken_for_a_part_of_it() {
        for (url, path) in [
            ("http://shm:cache-1", "/"),
            ("http://shm:cache-1/", "/"),
            ("http://shm:cache-1/a/b?c=d#e", "/a/b?c=d"),
            ("redis://shm:cache-1/", "/"),
        ] {
            let target: Target = url.parse().expect(url);
            let name = Address::Local(ClientAddress::Shm("cache-1".to_owned()));
            assert_eq!((target.address, target.path.as_str()), (name, path), "{url}");
        }
        let target: Target = "http://unix:/run/a.sock".parse().expect("a path");
        let path = Address::Local(ClientAddress::Unix("/run/a.sock".to_owned()));
        assert_eq!((target.address, target.path.as_str()), (path, "/"));
    }

    #[test]
    fn name_without_a_service_was_found_only_by_the_load() {
        let name = format!("load-target-{}", std::process::id());
        let target: Target = format!("http://shm:{name}/a").parse().expect("a name");
        let failed = |why: &str| Err(format!("cannot connect to `shm:{name}`: {why}"));
        assert_eq!(target.connect(), failed("no process listens at this name"));
        let listener = PairListener::bind(&name, PairPolicy::SameUser).expect("the name is free");
        let refusing = std::thread::spawn(move || {
            let is_wanted = |pair: &mut flick_shm::pair::Pair| {
                let mut slots = Vec::new();
                pair.take_ready(|slot| slots.push(slot));
                slots.iter().for_each(|slot| pair.refuse(*slot));
                slots.is_empty()
            };
            // Every pair that the connect is moved to.
            for _ in 0..=flick_shm::limits::CLIENT_MOVES_MAX {
                let (_peer, pair) = listener.accept().expect("the target connects");
                let mut pair = pair.expect("both can pair");
                while is_wanted(&mut pair) {
                    std::thread::yield_now();
                }
            }
        });
        assert_eq!(target.connect(), failed("the process at this name refuses it"));
        refusing.join().expect("it only refuses");
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
            ("http://shm:a/b c", "must escape"),
            ("http://shm:", "1 to 90 visible characters"),
            ("http://shm:/run/a", "1 to 90 visible characters"),
            ("redis://shm:a/1", "only `http://` has a path"),
        ] {
            let error = url.parse::<Target>().expect_err(url);
            assert!(error.contains(why), "{url}: {error}");
        }
    }
}
