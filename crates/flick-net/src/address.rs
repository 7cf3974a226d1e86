//! Addresses to listen on or connect to, and the addresses of peers.
//! Promises: parsing and printing are inverse to each other.
//! Refuses: host names (`localhost`); resolving them blocks, and is the platform's choice.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::PathBuf;
use std::str::FromStr;

/// An address to listen on or to connect to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Endpoint {
    /// `127.0.0.1:11211`, `[::1]:80`, or `:11211` for every IPv4 address of the host.
    Tcp(SocketAddr),
    /// `unix:/run/x.sock`.
    Unix(PathBuf),
    /// `shm:NAME`: shared memory with processes of the same user on this host.
    Shm(String),
    /// A descriptor of this process. Drivers refuse it; the command line copies its bytes.
    Descriptor(DescriptorAddr),
}

/// A descriptor to read from (listen) or to write to (connect).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DescriptorAddr {
    /// `stdin:`, for reading only.
    Stdin,
    /// `stdout:`, for writing only.
    Stdout,
    /// `fd:3`: a descriptor that the process inherits.
    Fd(u32),
    /// `pipe:/run/x.fifo`: a FIFO or a file.
    Pipe(PathBuf),
}

/// The address of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PeerAddr {
    /// The address that the kernel reports.
    Tcp(SocketAddr),
    /// A process of this host; its end of the socket has no useful address.
    Unix,
    /// A process of this host, through shared memory.
    Shm,
}

/// The error for text that is no endpoint; its message says what to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointError {
    text: String,
}

/// Longest path of a Unix socket: `sun_path` without its terminating zero.
const UNIX_PATH_BYTES_MAX: usize = 107;

impl Endpoint {
    /// Returns the port of a TCP endpoint.
    pub fn port(&self) -> Option<u16> {
        match self {
            Endpoint::Tcp(address) => Some(address.port()),
            Endpoint::Unix(_) | Endpoint::Shm(_) | Endpoint::Descriptor(_) => None,
        }
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Endpoint, EndpointError> {
        let refused = || EndpointError { text: text.to_owned() };
        if let Some(path) = text.strip_prefix("unix:") {
            let fits = !path.is_empty() && path.len() <= UNIX_PATH_BYTES_MAX && !path.contains('\0');
            return if fits { Ok(Endpoint::Unix(PathBuf::from(path))) } else { Err(refused()) };
        }
        if let Some(name) = text.strip_prefix("shm:") {
            return if flick_shm::pairing::is_name(name) {
                Ok(Endpoint::Shm(name.to_owned()))
            } else {
                Err(refused())
            };
        }
        if let Some(at) = parse_descriptor(text) {
            return at.map(Endpoint::Descriptor).ok_or_else(refused);
        }
        if let Some(port) = text.strip_prefix(':') {
            let port = parse_port(port).ok_or_else(refused)?;
            return Ok(Endpoint::Tcp(SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port))));
        }
        text.parse().map(Endpoint::Tcp).map_err(|_| refused())
    }
}

/// Parses the address of a descriptor; `None` if the text is of another kind, `Some(None)` if it is malformed.
fn parse_descriptor(text: &str) -> Option<Option<DescriptorAddr>> {
    let (kind, rest) = text.split_once(':')?;
    Some(match kind {
        "stdin" => rest.is_empty().then_some(DescriptorAddr::Stdin),
        "stdout" => rest.is_empty().then_some(DescriptorAddr::Stdout),
        "fd" => parse_fd(rest).map(DescriptorAddr::Fd),
        "pipe" => {
            let is_path = !rest.is_empty() && !rest.contains('\0');
            is_path.then(|| DescriptorAddr::Pipe(PathBuf::from(rest)))
        }
        _ => return None,
    })
}

/// Digits only, and no more than the kernel's type has.
fn parse_fd(text: &str) -> Option<u32> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| is_number && i32::try_from(*number).is_ok())
}

/// Digits only: the standard parser would take `+80`.
fn parse_port(text: &str) -> Option<u16> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Tcp(address) => write!(f, "{address}"),
            Endpoint::Unix(path) => write!(f, "unix:{}", path.display()),
            Endpoint::Shm(name) => write!(f, "shm:{name}"),
            Endpoint::Descriptor(at) => at.fmt(f),
        }
    }
}

impl fmt::Display for DescriptorAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DescriptorAddr::Stdin => f.write_str("stdin:"),
            DescriptorAddr::Stdout => f.write_str("stdout:"),
            DescriptorAddr::Fd(number) => write!(f, "fd:{number}"),
            DescriptorAddr::Pipe(path) => write!(f, "pipe:{}", path.display()),
        }
    }
}

impl From<SocketAddr> for Endpoint {
    fn from(address: SocketAddr) -> Endpoint {
        Endpoint::Tcp(address)
    }
}

impl fmt::Display for PeerAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerAddr::Tcp(address) => write!(f, "{address}"),
            PeerAddr::Unix => f.write_str("unix"),
            PeerAddr::Shm => f.write_str("shm"),
        }
    }
}

impl EndpointError {
    /// The port of `NAME:PORT`.
    fn named_port(&self) -> Option<u16> {
        let (name, port) = self.text.rsplit_once(':')?;
        let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
        let is_name = name.bytes().all(is_of_name) && name.bytes().any(|byte| byte.is_ascii_alphabetic());
        parse_port(port).filter(|_| is_name)
    }

    /// Says what to write instead of a text that is nearly an address.
    fn hint(&self) -> Option<String> {
        let text = self.text.as_str();
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            let len = path.len();
            return Some(format!(
                "`{text}` has a path of {len} bytes; the kernel takes {UNIX_PATH_BYTES_MAX}"
            ))
            .filter(|_| len > UNIX_PATH_BYTES_MAX);
        }
        if text.starts_with("shm:") {
            let max = flick_shm::limits::NAME_BYTES_MAX;
            return Some(format!(
                "`{text}` needs a name behind `shm:`: 1 to {max} visible characters without `/`"
            ));
        }
        if text.starts_with('/') {
            return Some(format!("`{text}` is a path; write `unix:{text}` for a Unix socket"));
        }
        if text.contains("://") {
            return Some(format!(
                "`{text}` is a URL; write the address and the port alone, such as `127.0.0.1:8080`"
            ));
        }
        if let Some(port) = parse_port(text).filter(|_| !text.is_empty()) {
            return Some(format!(
                "`{text}` is a port only; write `127.0.0.1:{port}`, or `:{port}` for all addresses"
            ));
        }
        match text.parse() {
            Ok(IpAddr::V4(ip)) => return Some(format!("`{text}` has no port; write `{ip}:8080`")),
            Ok(IpAddr::V6(_)) => {
                return Some(format!(
                    "`{text}` is an IPv6 address without brackets or port; write `[::1]:8080`"
                ));
            }
            Err(_) => {}
        }
        let (host, port) = text.rsplit_once(':')?;
        if host == "*" && parse_port(port).is_some() {
            return Some(format!("`{text}` is not an address; write `:{port}` for all addresses"));
        }
        let is_host = host.is_empty() || format!("{host}:0").parse::<SocketAddr>().is_ok();
        let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        Some(format!("`{text}` has the port {port}; ports are 0 to 65535")).filter(|_| is_host && is_number)
    }
}

impl fmt::Display for EndpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { text } = self;
        if text.contains(',') {
            let list = text.replace(',', "\", \"");
            return write!(f, "`{text}` is not one address; in `flick.toml` write a list: `[\"{list}\"]`");
        }
        if let Some(hint) = self.hint() {
            return f.write_str(&hint);
        }
        match self.named_port() {
            Some(port) if text.starts_with("localhost:") => {
                write!(f, "`{text}` is a host name; write its address, `127.0.0.1:{port}` or `[::1]:{port}`")
            }
            Some(_) => {
                write!(f, "`{text}` is a host name; write its IP address, or for backends `dns:{text}`")
            }
            None => write!(
                f,
                "`{text}` is not an address; write `127.0.0.1:8080`, `[::1]:8080`, `:8080`, `unix:/path`, \
                 `shm:NAME`, `stdin:`, `stdout:`, `fd:N` or `pipe:/path`"
            ),
        }
    }
}

impl std::error::Error for EndpointError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, printed: Option<&str>) {
        let parsed = text.parse::<Endpoint>();
        assert_eq!(parsed.as_ref().ok().map(ToString::to_string).as_deref(), printed, "{text:?}");
        if let Ok(endpoint) = parsed {
            assert_eq!(endpoint.to_string().parse(), Ok(endpoint));
        }
    }

    #[test]
    fn endpoints_parse_and_print_back() {
        check("127.0.0.1:11211", Some("127.0.0.1:11211"));
        check("[::1]:80", Some("[::1]:80"));
        check(":11211", Some("0.0.0.0:11211"));
        check("unix:/run/x.sock", Some("unix:/run/x.sock"));
        check("shm:cache-1", Some("shm:cache-1"));
        for text in ["stdin:", "stdout:", "fd:0", "fd:2147483647", "pipe:out.pcap", "pipe:/run/x:y"] {
            check(text, Some(text));
        }
    }

    #[test]
    fn text_that_is_no_endpoint_is_rejected_with_help() {
        for text in [
            "",
            ":",
            "unix:",
            "localhost:80",
            "127.0.0.1",
            ":65536",
            ":+80",
            "::1:80",
            "/run/x.sock",
            "shm:",
            "shm:a b",
            "shm:a/b",
            "stdin",
            "stdin:0",
            "stdout:x",
            "fd:",
            "fd:+3",
            "fd:-1",
            "fd:2147483648",
            "pipe:",
        ] {
            check(text, None);
        }
        let long = format!("unix:/{}", "x".repeat(UNIX_PATH_BYTES_MAX));
        check(&long, None);
        for (text, help) in [
            ("x", "unix:/path"),
            ("localhost:80", "write its address, `127.0.0.1:80`"),
            ("cache.example:11211", "`dns:cache.example:11211`"),
            ("300.0.0.1:80", "unix:/path"),
            ("unix:", "unix:/path"),
            ("127.0.0.1:80,127.0.0.1:81", "write a list: `[\"127.0.0.1:80\", \"127.0.0.1:81\"]`"),
            ("8080", "`8080` is a port only; write `127.0.0.1:8080`, or `:8080` for all addresses"),
            ("127.0.0.1", "`127.0.0.1` has no port; write `127.0.0.1:8080`"),
            ("::1:80", "is an IPv6 address without brackets or port; write `[::1]:8080`"),
            ("*:80", "write `:80` for all addresses"),
            (":99999", "`:99999` has the port 99999; ports are 0 to 65535"),
            ("[::1]:65536", "ports are 0 to 65535"),
            ("http://127.0.0.1:80", "is a URL; write the address and the port alone"),
            ("/run/x.sock", "write `unix:/run/x.sock`"),
            (&long, "has a path of 108 bytes; the kernel takes 107"),
            ("shm:a/b", "1 to 90 visible characters without `/`"),
        ] {
            let error = text.parse::<Endpoint>().expect_err("no endpoint").to_string();
            assert!(error.contains(help), "{text}: {error}");
        }
    }
}
