//! The backends of a channel as `--connect` and `flick.toml` name them: addresses, or one source of the whole list.

use flick_discovery::Source;
use flick_discovery::address::parse_backends;
use flick_runtime::BackendAddress;

/// The backends of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connect {
    /// Name of the channel.
    pub channel: String,
    /// The elements of the array in order; empty if there is a source.
    pub members: Vec<BackendAddress>,
    /// Source of the list, if it may change at run time.
    pub source: Option<Source>,
}

impl Connect {
    /// The backends that `list` names.
    ///
    /// Errors: a source is not the only item.
    pub fn new(channel: String, list: &[ConnectTarget]) -> Result<Self, String> {
        let mut members = Vec::new();
        for target in list {
            match target {
                ConnectTarget::Members(addresses) => members.extend(addresses.iter().cloned()),
                ConnectTarget::Source(source) if list.len() == 1 => {
                    return Ok(Self { channel, members, source: Some(source.clone()) });
                }
                ConnectTarget::Source(source) => {
                    return Err(format!("`{source}` must be the only item in the list of `{channel}`"));
                }
            }
        }
        Ok(Self { channel, members, source: None })
    }
}

/// An item in the list of a channel's backends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectTarget {
    /// Addresses with their weights.
    Members(Vec<BackendAddress>),
    /// A source of the whole list.
    Source(Source),
}

impl ConnectTarget {
    /// Parses an address or a source. Errors: what is wrong, and what is allowed.
    pub fn parse(text: &str) -> Result<Self, String> {
        match Source::parse(text) {
            Some(source) => source.map(Self::Source),
            None => parse_backends(text).map(Self::Members),
        }
    }
}

/// Parses the address of a DNS server.
///
/// Errors: what is wrong, and what to write.
pub fn name_server(text: &str) -> Result<std::net::SocketAddr, String> {
    text.parse().map_err(|_| {
        let is_ip = text.parse::<std::net::IpAddr>().is_ok();
        let lacks = if is_ip { "has no port" } else { "is not the address of a DNS server" };
        format!("`{text}` {lacks}; write `127.0.0.1:53` or `[::1]:53`")
    })
}
