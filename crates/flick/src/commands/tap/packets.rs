//! Packets of IPv4 and TCP in a pcap file, made of the bytes of connections.
//! Promises: sequence and acknowledgement numbers, lengths and checksums are right, so that tools follow the streams;
//! missing bytes are missing sequence numbers; a packet is written with one call, so that an interrupted tap leaves a
//! file that can be read.
//! Refuses: true addresses where a connection has none, or not of IPv4: they are made up (10.0.0.0/8 and 192.0.2.1).
//! Source: the pcap file format (draft-ietf-opsawg-pcap), RFC 791, RFC 9293.

use std::collections::HashMap;
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddrV4};

use flick_admin::state::{TapLine, TapLineKind};

/// Port of servers whose protocol is not known.
pub const PORT_UNKNOWN: u16 = 9999;
/// The service in all packets: an address for documentation (RFC 5737).
const SERVICE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// First port that is made up for a side that connects.
const CLIENT_PORTS: u16 = 40_000;

const FIN: u8 = 1;
const SYN: u8 = 2;
const PUSH: u8 = 8;
const ACK: u8 = 16;

/// Writer of a pcap file.
pub struct PacketWriter<W> {
    out: W,
    port: u16,
    conns: HashMap<String, PacketConn>,
    count: u32,
}

/// A connection, as its packets have it.
#[derive(Clone, Copy)]
struct PacketConn {
    peer: SocketAddrV4,
    service: SocketAddrV4,
    is_client: bool,
    /// Next sequence number of the peer and of the service.
    next: [u32; 2],
}

impl<W: Write> PacketWriter<W> {
    /// Writes the head of the file.
    ///
    /// Errors: those of the file.
    pub fn new(mut out: W, port: u16) -> io::Result<Self> {
        let mut head = Vec::new();
        head.extend_from_slice(&0xa1b2_c3d4_u32.to_le_bytes());
        head.extend_from_slice(&2_u16.to_le_bytes());
        head.extend_from_slice(&4_u16.to_le_bytes());
        head.extend_from_slice(&[0; 8]);
        head.extend_from_slice(&65_535_u32.to_le_bytes());
        // LINKTYPE_RAW: packets begin with the head of IP.
        head.extend_from_slice(&101_u32.to_le_bytes());
        out.write_all(&head)?;
        Ok(Self { out, port, conns: HashMap::new(), count: 0 })
    }

    /// Begins a connection, with a handshake.
    ///
    /// Errors: those of the file.
    pub fn begin(&mut self, line: &TapLine) -> io::Result<()> {
        let conn = self.new_conn(line);
        self.conns.insert(line.id.clone(), conn);
        let opener = usize::from(!conn.is_client);
        self.packet(line, opener, SYN, 0, 0, &[])?;
        self.packet(line, 1 - opener, SYN | ACK, 0, 1, &[])?;
        self.packet(line, opener, ACK, 1, 1, &[])
    }

    fn new_conn(&mut self, line: &TapLine) -> PacketConn {
        self.count += 1;
        let [_, a, b, c] = self.count.to_be_bytes();
        let client_port = CLIENT_PORTS + (self.count % 20_000) as u16;
        let (peer_port, port) =
            if line.is_client { (client_port, self.port) } else { (self.port, client_port) };
        let made_up = SocketAddrV4::new(Ipv4Addr::new(10, a, b, c), peer_port);
        let peer = line.data.parse().unwrap_or(made_up);
        PacketConn {
            peer,
            service: SocketAddrV4::new(SERVICE, port),
            is_client: line.is_client,
            next: [1, 1],
        }
    }

    /// Writes bytes of a connection.
    ///
    /// Errors: those of the file.
    pub fn data(&mut self, line: &TapLine, bytes: &[u8]) -> io::Result<()> {
        if !self.conns.contains_key(&line.id) {
            let conn = self.new_conn(line);
            self.conns.insert(line.id.clone(), conn);
        }
        let sender = usize::from(line.kind == TapLineKind::Sent);
        let seq = 1_u32.wrapping_add(line.offset as u32);
        let ack = self.conns.get(&line.id).map_or(1, |conn| conn.next[1 - sender]);
        self.packet(line, sender, PUSH | ACK, seq, ack, bytes)?;
        if let Some(conn) = self.conns.get_mut(&line.id) {
            conn.next[sender] = seq.wrapping_add(bytes.len() as u32);
        }
        Ok(())
    }

    /// Ends a connection.
    ///
    /// Errors: those of the file.
    pub fn end(&mut self, line: &TapLine) -> io::Result<()> {
        let Some([peer, service]) = self.conns.get(&line.id).map(|conn| conn.next) else { return Ok(()) };
        self.packet(line, 0, FIN | ACK, peer, service, &[])?;
        self.packet(line, 1, FIN | ACK, service, peer.wrapping_add(1), &[])?;
        self.packet(line, 0, ACK, peer.wrapping_add(1), service.wrapping_add(1), &[])?;
        self.conns.remove(&line.id);
        Ok(())
    }

    /// Writes a packet of the peer (0) or the service (1).
    fn packet(
        &mut self,
        line: &TapLine,
        sender: usize,
        flags: u8,
        seq: u32,
        ack: u32,
        bytes: &[u8],
    ) -> io::Result<()> {
        let Some(conn) = self.conns.get(&line.id) else { return Ok(()) };
        let (from, to) = if sender == 0 { (conn.peer, conn.service) } else { (conn.service, conn.peer) };
        let length = 40 + bytes.len();
        let mut out = Vec::with_capacity(16 + length);
        for word in [line.at_us / 1_000_000, line.at_us % 1_000_000, length as u64, length as u64] {
            out.extend_from_slice(&(word as u32).to_le_bytes());
        }
        let mut ip = vec![0x45, 0];
        ip.extend_from_slice(&(length as u16).to_be_bytes());
        // No fragments, 64 hops, TCP.
        ip.extend_from_slice(&[0, 0, 0x40, 0, 64, 6, 0, 0]);
        ip.extend_from_slice(&from.ip().octets());
        ip.extend_from_slice(&to.ip().octets());
        let sum = checksum(&[&ip]);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        let mut tcp = [from.port().to_be_bytes(), to.port().to_be_bytes()].concat();
        tcp.extend_from_slice(&seq.to_be_bytes());
        tcp.extend_from_slice(&ack.to_be_bytes());
        tcp.extend_from_slice(&[0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        let length = (tcp.len() + bytes.len()) as u16;
        let pseudo = [&ip[12..20], &[0, 6], &length.to_be_bytes()].concat();
        let sum = checksum(&[&pseudo, &tcp, bytes]);
        tcp[16..18].copy_from_slice(&sum.to_be_bytes());
        out.extend_from_slice(&ip);
        out.extend_from_slice(&tcp);
        out.extend_from_slice(bytes);
        self.out.write_all(&out)
    }
}

/// The checksum of RFC 1071 over parts of which all but the last have even lengths.
fn checksum(parts: &[&[u8]]) -> u16 {
    let words = parts.iter().flat_map(|part| part.chunks(2));
    let sum: u64 = words.map(|pair| u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !(((folded & 0xffff) + (folded >> 16)) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(kind: TapLineKind, offset: u64, data: &str) -> TapLine {
        let (id, at_us, is_client) = ("0.1.2".to_owned(), 1_700_000_000_000_005, true);
        TapLine { at_us, id, kind, is_client, offset, data: data.to_owned(), dropped_bytes: 0 }
    }

    /// Flags, sequence, acknowledgement and bytes of each packet; panics if a length or a checksum is wrong.
    fn packets(mut file: &[u8]) -> Vec<(u8, u32, u32, Vec<u8>)> {
        assert_eq!(file[20..24], 101_u32.to_le_bytes());
        file = &file[24..];
        let mut out = Vec::new();
        while !file.is_empty() {
            let length = u32::from_le_bytes(file[8..12].try_into().expect("four bytes")) as usize;
            let (packet, rest) = file[16..].split_at(length);
            file = rest;
            assert_eq!(usize::from(u16::from_be_bytes([packet[2], packet[3]])), length);
            assert_eq!(checksum(&[&packet[..20]]), 0, "the checksum of IP");
            let tcp_length = ((length - 20) as u16).to_be_bytes();
            let pseudo = [&packet[12..20], &[0, 6], &tcp_length].concat();
            assert_eq!(checksum(&[&pseudo, &packet[20..]]), 0, "the checksum of TCP");
            let word = |at: usize| u32::from_be_bytes(packet[at..at + 4].try_into().expect("four bytes"));
            out.push((packet[33], word(24), word(28), packet[40..].to_vec()));
        }
        out
    }

    #[test]
    fn packets_have_the_numbers_of_their_streams() {
        let mut file = Vec::new();
        let mut writer = PacketWriter::new(&mut file, 80).expect("memory");
        writer.begin(&line(TapLineKind::Begin, 0, "shm")).expect("memory");
        writer.data(&line(TapLineKind::Received, 0, ""), b"abc").expect("memory");
        writer.data(&line(TapLineKind::Sent, 0, ""), b"de").expect("memory");
        // 100 bytes were left out.
        writer.data(&line(TapLineKind::Received, 103, ""), b"f").expect("memory");
        writer.end(&line(TapLineKind::End, 0, "")).expect("memory");
        let expected = [
            (SYN, 0, 0, &b""[..]),
            (SYN | ACK, 0, 1, b""),
            (ACK, 1, 1, b""),
            (PUSH | ACK, 1, 1, b"abc"),
            (PUSH | ACK, 1, 4, b"de"),
            (PUSH | ACK, 104, 3, b"f"),
            (FIN | ACK, 105, 3, b""),
            (FIN | ACK, 3, 106, b""),
            (ACK, 106, 4, b""),
        ];
        let expected = expected.iter().map(|(flags, seq, ack, bytes)| (*flags, *seq, *ack, bytes.to_vec()));
        let expected: Vec<_> = expected.collect();
        assert_eq!(packets(&file), expected);
    }

    #[test]
    fn true_addresses_are_kept() {
        let mut file = Vec::new();
        let mut writer = PacketWriter::new(&mut file, 80).expect("memory");
        writer.begin(&line(TapLineKind::Begin, 0, "127.0.0.1:5000")).expect("memory");
        assert_eq!(
            (&file[24 + 16 + 12..][..4], &file[24 + 16 + 20..][..2]),
            (&[127, 0, 0, 1][..], &[0x13, 0x88][..])
        );
    }
}
