//! Addresses that a client connects to: `HOST:PORT` with a numeric host, `unix:PATH` and `shm:NAME`.

use alloc::string::String;
use core::fmt;
use core::net::SocketAddr;
use core::str::FromStr;

use crate::pairing::is_name;

/// Address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientAddress {
    /// TCP, through the kernel.
    Ip(SocketAddr),
    /// A Unix stream socket, through the kernel.
    Unix(String),
    /// Shared memory with the process that listens at the name. With `/` it is the path of a Unix socket, as
    /// [`pairing`](crate::pairing) has them; no text is parsed as one.
    Shm(String),
}

impl From<SocketAddr> for ClientAddress {
    fn from(addr: SocketAddr) -> Self {
        Self::Ip(addr)
    }
}

impl FromStr for ClientAddress {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        if let Some(name) = text.strip_prefix("shm:") {
            let refused = "a name behind `shm:` has 1 to 90 visible characters without `/`";
            return if is_name(name) { Ok(Self::Shm(name.into())) } else { Err(refused) };
        }
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(Self::Unix(path.into()));
        }
        text.parse().map(Self::Ip).map_err(|_| "write `IP:PORT`, `unix:PATH` or `shm:NAME`")
    }
}

impl fmt::Display for ClientAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(addr) => addr.fmt(f),
            Self::Unix(path) => write!(f, "unix:{path}"),
            Self::Shm(name) => write!(f, "shm:{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::ClientAddress;
    use crate::limits::NAME_BYTES_MAX;

    #[test]
    fn addresses_are_printed_as_they_are_written() {
        for text in ["127.0.0.1:80", "[::1]:80", "unix:/run/a", "shm:name"] {
            let address: ClientAddress = text.parse().expect("an address");
            assert_eq!(address.to_string(), text);
        }
        assert!("localhost:80".parse::<ClientAddress>().is_err() && "80".parse::<ClientAddress>().is_err());
    }

    #[test]
    fn name_behind_shm_was_taken_for_a_path() {
        let long = "a".repeat(NAME_BYTES_MAX + 1);
        assert!(alloc::format!("shm:{}", &long[1..]).parse::<ClientAddress>().is_ok());
        for name in ["", "/", "a/", "a/b", "/run/a", "a b", "ä", &long] {
            let error = alloc::format!("shm:{name}").parse::<ClientAddress>().expect_err(name);
            assert!(error.contains(&alloc::format!("1 to {NAME_BYTES_MAX} visible")), "{name}: {error}");
        }
    }
}
