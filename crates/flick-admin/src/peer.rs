//! The user at the other end of a connection from this machine.
//! Promises: a connection of another machine has no user.
//! Source: `SO_PEERCRED` of unix(7); `/proc/net/tcp` of proc_pid_net(5), whose column `uid` is the owner of a socket.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;

/// The tables of TCP sockets of this network namespace.
const TCP_TABLES: [&str; 2] = ["/proc/net/tcp", "/proc/net/tcp6"];
/// State of an established connection. Sockets in other states may have lost their owner, and show root as theirs.
const ESTABLISHED: &str = "01";

/// The user id of the process that connected a Unix socket.
pub(crate) fn of_unix(stream: &UnixStream) -> Option<u32> {
    Some(rustix::net::sockopt::socket_peercred(stream).ok()?.uid.as_raw())
}

/// The user id that owns the client's socket of a TCP connection; `None`: the client is on another machine. Cost: reads
/// the tables of all connections.
pub(crate) fn of_tcp(stream: &TcpStream) -> Option<u32> {
    let (client, server) = (stream.peer_addr().ok()?, stream.local_addr().ok()?);
    TCP_TABLES.iter().find_map(|table| {
        // A host without IPv6 has one table only.
        let lines = BufReader::new(File::open(table).ok()?).lines();
        lines.map_while(Result::ok).find_map(|line| owner(&line, client, server))
    })
}

/// The owner of the socket in a line of a table, if it is the client's socket of this connection.
fn owner(line: &str, client: SocketAddr, server: SocketAddr) -> Option<u32> {
    let mut columns = line.split_ascii_whitespace().skip(1);
    let (local, remote) = (columns.next()?, columns.next()?);
    let is_it = columns.next()? == ESTABLISHED && is_shown_as(client, local) && is_shown_as(server, remote);
    // Between them: queues, timer, retransmits.
    columns.nth(3).filter(|_| is_it)?.parse().ok()
}

/// Whether a table shows an address as `text`. An IPv4 address may be the end of an IPv6 socket.
fn is_shown_as(address: SocketAddr, text: &str) -> bool {
    let words = |octets: &[u8]| -> String {
        let word = |four: &[u8]| format!("{:08X}", u32::from_ne_bytes([four[0], four[1], four[2], four[3]]));
        octets.chunks_exact(4).map(word).collect()
    };
    let ip = match address.ip().to_canonical() {
        IpAddr::V4(v4) if text.len() == "0100007F:0000".len() => words(&v4.octets()),
        IpAddr::V4(v4) => words(&v4.to_ipv6_mapped().octets()),
        IpAddr::V6(v6) => words(&v6.octets()),
    };
    text.split_once(':') == Some((ip.as_str(), format!("{:04X}", address.port()).as_str()))
}

#[cfg(test)]
mod tests {
    use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    use super::{of_tcp, of_unix, owner};

    #[test]
    fn own_connections_have_the_own_user() {
        let own = Some(rustix::process::geteuid().as_raw());
        let (near, _far) = UnixStream::pair().expect("a pair of sockets");
        assert_eq!(of_unix(&near), own);
        for listen in ["127.0.0.1:0", "[::1]:0", "[::]:0"] {
            // A host may have no IPv6.
            let Ok(listener) = TcpListener::bind(listen) else { continue };
            let port = listener.local_addr().expect("it is bound").port();
            let at = if listen == "[::1]:0" { format!("[::1]:{port}") } else { format!("127.0.0.1:{port}") };
            let client = TcpStream::connect(at).expect("it listens");
            let (accepted, _) = listener.accept().expect("a client");
            assert_eq!(of_tcp(&accepted), own, "{listen}");
            client.shutdown(Shutdown::Write).expect("it is connected");
            assert_eq!(of_tcp(&accepted), None, "a connection that is not established has no user");
        }
    }

    #[test]
    fn other_connections_and_states_are_skipped() {
        let line = |state: &str| {
            format!(
                "   4: 0100007F:9C40 0100007F:26AC {state} 00000000:00000000 00:00000000 00000000  1000        0 1 1"
            )
        };
        let at = |text: &str| text.parse::<SocketAddr>().expect("an address");
        let (client, server) = (at("127.0.0.1:40000"), at("127.0.0.1:9900"));
        assert_eq!(owner(&line("01"), client, server), Some(1000));
        assert_eq!(owner(&line("01"), server, client), None);
        assert_eq!(owner(&line("01"), at("127.0.0.2:40000"), server), None);
        assert_eq!(owner(&line("06"), client, server), None, "TIME_WAIT shows root");
        assert_eq!(owner("  sl  local_address rem_address   st", client, server), None);
    }
}
