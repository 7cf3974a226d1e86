//! Generic netlink: the kernel's families `ethtool` and `netdev`, of which the first has the interrupt delay of network
//! cards and the second the settings of each NAPI.
//! Promises: an answer is at most `DATAGRAMS_MAX` datagrams, each of which the kernel sends before a request returns;
//! one that ends early is an error.
//! Source: the kernel's documentation, userspace-api/netlink/intro.rst; linux/ethtool_netlink.h, linux/netdev.h.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::netlink::GENERIC;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

/// Datagrams of an answer, and bytes of each.
const DATAGRAMS_MAX: usize = 256;
const DATAGRAM_BYTES_MAX: usize = 32 << 10;

/// Bytes of `struct nlmsghdr`, `struct genlmsghdr` and `struct nlattr`.
const HEADER: usize = 16;
const GENERIC_HEADER: usize = 4;
const ATTRIBUTE_HEADER: usize = 4;

/// Flags of a request: it is one, it is answered with an acknowledgement, it asks for all objects.
const REQUEST: u16 = 1;
const ACKNOWLEDGE: u16 = 4;
const DUMP: u16 = 0x300;

/// Types of messages: a status, the end of a dump.
const ERROR: u16 = 2;
const DONE: u16 = 3;

/// The flag of an attribute that holds attributes, and the bits of its type.
const NESTED: u16 = 0x8000;
const TYPE_MASK: u16 = 0x3fff;

/// The family of families.
const CONTROLLER: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

/// Attributes in the form of the kernel.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Attributes(Vec<u8>);

impl Attributes {
    /// Adds an attribute.
    pub(super) fn with(mut self, kind: u16, value: &[u8]) -> Self {
        let length = u16::try_from(ATTRIBUTE_HEADER + value.len()).expect("our own values are short");
        self.0.extend_from_slice(&length.to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// Adds attributes within an attribute.
    pub(super) fn with_nested(self, kind: u16, inner: &Self) -> Self {
        self.with(NESTED | kind, &inner.0)
    }

    /// The value of the first attribute of a type.
    fn value(&self, kind: u16) -> Option<&[u8]> {
        let mut rest = self.0.as_slice();
        while let Some((header, _)) = rest.split_at_checked(ATTRIBUTE_HEADER) {
            let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
            let value = rest.get(ATTRIBUTE_HEADER..length)?;
            if u16::from_ne_bytes([header[2], header[3]]) & TYPE_MASK == kind {
                return Some(value);
            }
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
        None
    }

    /// The number of an attribute, which has 1, 2, 4 or 8 bytes.
    pub(super) fn number(&self, kind: u16) -> Option<u64> {
        match *self.value(kind)? {
            [byte] => Some(u64::from(byte)),
            [a, b] => Some(u64::from(u16::from_ne_bytes([a, b]))),
            [a, b, c, d] => Some(u64::from(u32::from_ne_bytes([a, b, c, d]))),
            [a, b, c, d, e, f, g, h] => Some(u64::from_ne_bytes([a, b, c, d, e, f, g, h])),
            _ => None,
        }
    }
}

/// A socket that speaks with one family.
#[derive(Debug)]
pub(super) struct Family {
    socket: OwnedFd,
    id: u16,
    version: u8,
}

impl Family {
    /// Opens a family. Errors: the kernel has no such family, or this process may have no such socket.
    pub(super) fn open(name: &str, version: u8) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(GENERIC))?;
        let controller = Self { socket, id: CONTROLLER, version: 1 };
        let name = Attributes::default().with(FAMILY_NAME, &[name.as_bytes(), &[0]].concat());
        let answer = controller.request(GET_FAMILY, &name)?;
        let id = answer.first().and_then(|answer| answer.number(FAMILY_ID));
        let id = id.and_then(|id| u16::try_from(id).ok()).ok_or(ErrorKind::InvalidData)?;
        Ok(Self { id, version, ..controller })
    }

    /// Asks for or changes one object. Errors: the kernel's.
    pub(super) fn request(&self, command: u8, attributes: &Attributes) -> io::Result<Vec<Attributes>> {
        self.send(command, ACKNOWLEDGE, attributes)
    }

    /// Asks for all objects. Errors: the kernel's.
    pub(super) fn dump(&self, command: u8, attributes: &Attributes) -> io::Result<Vec<Attributes>> {
        self.send(command, DUMP, attributes)
    }

    fn send(&self, command: u8, flags: u16, attributes: &Attributes) -> io::Result<Vec<Attributes>> {
        let length = u32::try_from(HEADER + GENERIC_HEADER + attributes.0.len()).expect("requests are short");
        let mut bytes = Vec::with_capacity(length as usize);
        bytes.extend_from_slice(&length.to_ne_bytes());
        bytes.extend_from_slice(&self.id.to_ne_bytes());
        bytes.extend_from_slice(&(REQUEST | flags).to_ne_bytes());
        // The sequence number and the port: one request at a time, and the kernel knows this socket.
        bytes.extend_from_slice(&[0; 8]);
        bytes.extend_from_slice(&[command, self.version, 0, 0]);
        bytes.extend_from_slice(&attributes.0);
        rustix::net::send(self.socket.as_fd(), &bytes, SendFlags::empty())?;
        let mut answers = Vec::new();
        let mut datagram = vec![0; DATAGRAM_BYTES_MAX];
        for _ in 0..DATAGRAMS_MAX {
            // The kernel has sent an answer, or the first part of it, before the call above returns.
            let (length, _) =
                rustix::net::recv(self.socket.as_fd(), datagram.as_mut_slice(), RecvFlags::DONTWAIT)?;
            if read_datagram(&datagram[..length], &mut answers)? {
                return Ok(answers);
            }
        }
        Err(io::Error::new(ErrorKind::InvalidData, "the answer has no end"))
    }
}

/// Adds the objects of a datagram. Returns whether it ends the answer. Errors: the kernel's status.
fn read_datagram(datagram: &[u8], answers: &mut Vec<Attributes>) -> io::Result<bool> {
    let mut rest = datagram;
    while let Some((header, _)) = rest.split_at_checked(HEADER) {
        let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let body = rest.get(HEADER..length).ok_or(ErrorKind::UnexpectedEof)?;
        match u16::from_ne_bytes([header[4], header[5]]) {
            ERROR | DONE => {
                let status = body.first_chunk().ok_or(ErrorKind::UnexpectedEof)?;
                return match i32::from_ne_bytes(*status) {
                    0 => Ok(true),
                    negative => Err(io::Error::from_raw_os_error(negative.saturating_neg())),
                };
            }
            _ => {
                let attributes = body.get(GENERIC_HEADER..).ok_or(ErrorKind::UnexpectedEof)?;
                answers.push(Attributes(attributes.to_vec()));
            }
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, body: &[u8]) -> Vec<u8> {
        let length = (HEADER + body.len()) as u32;
        [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), &[0; 10], body].concat()
    }

    #[test]
    fn attributes_are_read_as_they_are_written() {
        let inner = Attributes::default().with(2, b"eth0\0");
        let all = Attributes::default().with_nested(1, &inner).with(3, &7_u8.to_ne_bytes());
        let all = all.with(4, &70_000_u32.to_ne_bytes()).with(5, &u64::MAX.to_ne_bytes());
        assert_eq!(all.value(1), Some(inner.0.as_slice()));
        assert_eq!([3, 4, 5, 6].map(|kind| all.number(kind)), [Some(7), Some(70_000), Some(u64::MAX), None]);
        assert_eq!(all.number(1), None, "it is no number");
        for length in 0..all.0.len() {
            // Attributes that end early have no value, or that of an earlier attribute.
            assert_eq!(Attributes(all.0[..length].to_vec()).number(5), None, "{length}");
        }
    }

    #[test]
    fn answers_end_with_a_status() {
        let object = Attributes::default().with(1, &5_u32.to_ne_bytes());
        let first = message(0x20, &[&[0; GENERIC_HEADER][..], &object.0].concat());
        let mut answers = Vec::new();
        assert!(!read_datagram(&first, &mut answers).expect("an object"));
        let last = [first.clone(), message(ERROR, &0_i32.to_ne_bytes())].concat();
        assert!(read_datagram(&last, &mut answers).expect("an object and the end"));
        assert_eq!(answers, [object.clone(), object]);
        let refusal = message(ERROR, &(-1_i32).to_ne_bytes());
        let error = read_datagram(&refusal, &mut answers).expect_err("a refusal");
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        for length in HEADER..first.len() {
            assert!(read_datagram(&first[..length], &mut answers).is_err(), "{length}");
        }
    }

    #[test]
    fn kernel_knows_its_families() {
        let family = Family::open("nlctrl", 1).expect("every kernel with generic netlink has it");
        assert_eq!(family.id, CONTROLLER);
        let error = Family::open("no-such-family", 1).expect_err("there is none");
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }
}
