//! The name servers of `/etc/resolv.conf`.
//! Promises: a file that changes is followed; one that cannot be read leaves the servers of before.
//! Not here: search domains and options. Source: resolv.conf(5).

use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6, ToSocketAddrs};
use std::path::PathBuf;

use tracing::warn;

use crate::limits::NAME_SERVERS_MAX;

/// The port of name servers.
const DNS_PORT: u16 = 53;

/// A file of name servers and what it said.
#[derive(Debug)]
pub struct ResolvConf {
    path: PathBuf,
    text: String,
    servers: Vec<SocketAddr>,
    /// Error of the last read.
    error: Option<String>,
}

impl ResolvConf {
    /// The file at a path. It is not read yet.
    pub fn at(path: PathBuf) -> Self {
        Self { path, text: String::new(), servers: Vec::new(), error: None }
    }

    /// Reads the file and returns its name servers.
    pub fn servers(&mut self) -> Vec<SocketAddr> {
        let path = self.path.display();
        match std::fs::read(&self.path) {
            Ok(bytes) => {
                self.error = None;
                let text = String::from_utf8_lossy(&bytes);
                if text != self.text {
                    let (servers, unread) = servers(&text);
                    for address in unread {
                        warn!(address, %path, "name server is not an IP address");
                    }
                    (self.servers, self.text) = (servers, text.into_owned());
                }
            }
            Err(error) => {
                let error = error.to_string();
                if self.error.as_ref() != Some(&error) {
                    warn!(%path, error, "cannot read the name servers; those of before are asked");
                }
                self.error = Some(error);
            }
        }
        self.servers.clone()
    }
}

/// Returns the name servers in the text of a `resolv.conf`, and the addresses that cannot be read.
fn servers(text: &str) -> (Vec<SocketAddr>, Vec<&str>) {
    let (mut servers, mut unread) = (Vec::new(), Vec::new());
    let lines = text.lines().filter_map(|line| line.trim().strip_prefix("nameserver"));
    for rest in lines.filter(|rest| rest.is_empty() || rest.starts_with([' ', '\t'])) {
        let address = rest.trim_start().split([' ', '\t', '#', ';']).next().unwrap_or_default();
        match name_server(address) {
            Some(server) => servers.push(server),
            None => unread.push(address),
        }
    }
    servers.truncate(NAME_SERVERS_MAX);
    (servers, unread)
}

/// Parses the address of a name server, with a zone (`fe80::1%eth0`, `fe80::1%2`) if it is link-local.
fn name_server(address: &str) -> Option<SocketAddr> {
    let Some((ip, zone)) = address.split_once('%') else {
        return address.parse().ok().map(|ip| SocketAddr::new(ip, DNS_PORT));
    };
    // `fe80::/10`.
    let ip: Ipv6Addr = ip.parse().ok().filter(|ip: &Ipv6Addr| ip.segments()[0] & 0xffc0 == 0xfe80)?;
    if let Ok(zone) = zone.parse() {
        return Some(SocketAddrV6::new(ip, DNS_PORT, 0, zone).into());
    }
    // getaddrinfo(3) looks up the interface; it asks no server about an address.
    (address, DNS_PORT).to_socket_addrs().ok()?.next()
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, SocketAddrV6};

    use super::{ResolvConf, servers};

    #[test]
    fn name_server_with_a_comment_or_a_zone_was_ignored() {
        let v6 =
            |scope| SocketAddr::V6(SocketAddrV6::new("fe80::1".parse().expect("an address"), 53, 0, scope));
        let v4 = |text: &str| SocketAddr::new(text.parse().expect("an address"), 53);
        for (line, server) in [
            ("nameserver 127.0.0.1", v4("127.0.0.1")),
            ("  nameserver\t127.0.0.2  ", v4("127.0.0.2")),
            ("nameserver 127.0.0.3 # local", v4("127.0.0.3")),
            ("nameserver 127.0.0.4; x", v4("127.0.0.4")),
            ("nameserver 127.0.0.5#x", v4("127.0.0.5")),
            ("nameserver ::1\tx", v4("::1")),
            // The loopback interface is the first.
            ("nameserver fe80::1%lo", v6(1)),
            ("nameserver fe80::1%7", v6(7)),
        ] {
            assert_eq!(servers(line), (vec![server], vec![]), "{line}");
        }
        let text = "search a\n# nameserver 127.0.0.1\n;nameserver 127.0.0.1\nnameservers 127.0.0.1\n\
                    nameserver\nnameserver localhost # x\nnameserver ::1%lo\n\
                    nameserver fe80::1%no-such-one\nnameserver 127.0.0.6\n";
        let unread = vec!["", "localhost", "::1%lo", "fe80::1%no-such-one"];
        assert_eq!(servers(text), (vec![v4("127.0.0.6")], unread));
    }

    #[test]
    fn name_servers_of_a_file_that_changed_after_the_start_were_not_asked() {
        let path = std::env::temp_dir().join(format!("flick-resolv-conf-{}", std::process::id()));
        let v4 = |last: u8| SocketAddr::from(([127, 0, 0, last], 53));
        let mut conf = ResolvConf::at(path.clone());
        assert_eq!(conf.servers(), [], "the network is not there yet");
        std::fs::write(&path, "nameserver 127.0.0.1\n").expect("the file can be written");
        assert_eq!(conf.servers(), [v4(1)]);
        std::fs::write(&path, b"# \xff\nnameserver 127.0.0.2\n").expect("the file can be written");
        assert_eq!(conf.servers(), [v4(2)]);
        std::fs::remove_file(&path).expect("the file exists");
        assert_eq!(conf.servers(), [v4(2)], "those of before");
    }
}
