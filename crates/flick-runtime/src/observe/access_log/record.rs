//! Record of one request for the access log, and its encoding in a ring.
//! Promises: a record is at most `ACCESS_RECORD_BYTES_MAX` long; decoding gives what was encoded.
//! Refuses: records of others. Both ends are this process, so what cannot be decoded is a broken invariant.

use std::ffi::OsStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use flick_net::{Endpoint, PeerAddr};

use super::entry::{AccessEntry, AnsweredBy, OUTCOMES};
use crate::limits::ACCESS_RECORD_BYTES_MAX;

/// One request that was answered, or whose client has gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessRecord {
    /// Time of its arrival, on the monotonic clock.
    pub taken_ns: u64,
    /// Time at which its last reply was handed over, on the same clock.
    pub ended_ns: u64,
    /// Its bytes, as far as they had come then.
    pub bytes_in: u64,
    /// Those of its replies.
    pub bytes_out: u64,
    /// Party that answered it.
    pub outcome: AnsweredBy,
    /// Address of the client.
    pub client: PeerAddr,
    /// The backend that it went to last.
    pub backend: Option<Endpoint>,
    /// Time from sending it there to the first bytes of a reply.
    pub upstream_ns: Option<u64>,
    /// Its first bytes; empty if it could not be read.
    pub request: Vec<u8>,
    /// The first bytes of its first reply.
    pub reply: Vec<u8>,
    /// The beginnings of the fields that the log has, as they were sent to a backend, or as they came from the client;
    /// `None`: it has no such field.
    pub fields: Vec<Option<Vec<u8>>>,
}

/// First byte of an encoded address: this one for no address; the constants below for each kind of address.
const NOWHERE: u8 = 0;
const V4: u8 = 4;
const V6: u8 = 6;
const UNIX: u8 = 1;
const SHM: u8 = 2;

/// Length of a field that a request does not have.
const NO_FIELD: u8 = u8::MAX;

/// Time to the first bytes of a reply for a request without a reply of a backend.
const NO_REPLY: u64 = u64::MAX;

impl AccessRecord {
    /// Reads what [`encode`] has written.
    pub(super) fn decode(bytes: &[u8]) -> Self {
        let mut rest = Bytes(bytes);
        let [taken_ns, ended_ns, bytes_in, bytes_out, upstream_ns] = std::array::from_fn(|_| rest.word());
        let upstream_ns = Some(upstream_ns).filter(|time| *time != NO_REPLY);
        let outcome = OUTCOMES[usize::from(rest.byte())];
        let client = match rest.endpoint() {
            Some(Endpoint::Tcp(address)) => PeerAddr::Tcp(address),
            Some(Endpoint::Shm(_)) => PeerAddr::Shm,
            Some(Endpoint::Unix(_) | Endpoint::Descriptor(_)) | None => PeerAddr::Unix,
        };
        let backend = rest.endpoint();
        let (request, reply) = (rest.text(), rest.text());
        let mut fields = Vec::new();
        while let Some(len) = rest.0.first() {
            if *len == NO_FIELD {
                rest.byte();
                fields.push(None);
            } else {
                fields.push(Some(rest.text()));
            }
        }
        Self {
            taken_ns,
            ended_ns,
            bytes_in,
            bytes_out,
            outcome,
            client,
            backend,
            upstream_ns,
            request,
            reply,
            fields,
        }
    }
}

/// Writes what is known of a request that ended at that time, its backend's address given. Its length.
pub(super) fn encode<'a>(
    entry: &AccessEntry,
    ended_ns: u64,
    backend: Option<&Endpoint>,
    fields: impl Iterator<Item = Option<&'a [u8]>>,
    out: &mut [u8; ACCESS_RECORD_BYTES_MAX],
) -> usize {
    let mut to = RecordWriter { out, len: 0 };
    let upstream_ns = entry.upstream_ns().unwrap_or(NO_REPLY);
    for word in [entry.taken_ns, ended_ns, entry.bytes_in, entry.bytes_out, upstream_ns] {
        to.put(&word.to_le_bytes());
    }
    to.put(&[entry.outcome.number()]);
    match entry.client {
        PeerAddr::Tcp(address) => to.address(address),
        PeerAddr::Unix => to.put(&[NOWHERE]),
        PeerAddr::Shm => {
            to.put(&[SHM]);
            to.text(b"");
        }
    }
    match backend {
        Some(Endpoint::Tcp(address)) => to.address(*address),
        Some(Endpoint::Unix(path)) => {
            to.put(&[UNIX]);
            to.text(path.as_os_str().as_bytes());
        }
        Some(Endpoint::Shm(name)) => {
            to.put(&[SHM]);
            to.text(name.as_bytes());
        }
        Some(Endpoint::Descriptor(_)) | None => to.put(&[NOWHERE]),
    }
    to.text(entry.request());
    to.text(entry.reply());
    for field in fields {
        match field {
            Some(value) => to.text(value),
            None => to.put(&[NO_FIELD]),
        }
    }
    to.len
}

struct RecordWriter<'a> {
    out: &'a mut [u8; ACCESS_RECORD_BYTES_MAX],
    len: usize,
}

impl RecordWriter<'_> {
    fn put(&mut self, bytes: &[u8]) {
        self.out[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    /// At most 255 bytes.
    fn text(&mut self, text: &[u8]) {
        let text = &text[..text.len().min(usize::from(u8::MAX))];
        self.put(&[text.len() as u8]);
        self.put(text);
    }

    fn address(&mut self, address: SocketAddr) {
        match address.ip() {
            IpAddr::V4(ip) => {
                self.put(&[V4]);
                self.put(&ip.octets());
            }
            IpAddr::V6(ip) => {
                self.put(&[V6]);
                self.put(&ip.octets());
            }
        }
        self.put(&address.port().to_le_bytes());
    }
}

struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (taken, rest) = self.0.split_first_chunk().expect("a record is whole");
        self.0 = rest;
        *taken
    }

    fn byte(&mut self) -> u8 {
        let [byte] = self.take();
        byte
    }

    fn word(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }

    fn text(&mut self) -> Vec<u8> {
        let len = usize::from(self.byte());
        let (text, rest) = self.0.split_at(len);
        self.0 = rest;
        text.to_vec()
    }

    fn endpoint(&mut self) -> Option<Endpoint> {
        let ip = match self.byte() {
            V4 => IpAddr::V4(Ipv4Addr::from(self.take::<4>())),
            V6 => IpAddr::V6(Ipv6Addr::from(self.take::<16>())),
            UNIX => return Some(Endpoint::Unix(PathBuf::from(OsStr::from_bytes(&self.text())))),
            SHM => return String::from_utf8(self.text()).ok().map(Endpoint::Shm),
            kind => {
                assert!(kind == NOWHERE, "an address is of a known kind");
                return None;
            }
        };
        Some(Endpoint::Tcp(SocketAddr::new(ip, u16::from_le_bytes(self.take()))))
    }
}

#[cfg(test)]
mod tests {
    use flick_net::{Endpoint, PeerAddr};

    use super::{AccessRecord, OUTCOMES, encode};
    use crate::limits::{
        ACCESS_FIELD_BYTES_MAX, ACCESS_FIELDS_MAX, ACCESS_RECORD_BYTES_MAX, ACCESS_REPLY_BYTES_MAX,
        ACCESS_REQUEST_BYTES_MAX,
    };
    use crate::observe::access_log::entry::AccessEntry;

    #[test]
    fn the_longest_record_comes_out_as_it_went_in() {
        let long = format!("unix:/{}", "x".repeat(100)).parse::<Endpoint>().expect("a path");
        let tcp = |text: &str| text.parse::<Endpoint>().expect("an address");
        let backends = [
            None,
            Some(tcp("127.0.0.1:1")),
            Some(tcp("[2001:db8::1]:65535")),
            Some(long),
            Some(tcp("shm:a")),
        ];
        let request = [0x80; ACCESS_REQUEST_BYTES_MAX + 7];
        let reply = [b'"'; ACCESS_REPLY_BYTES_MAX + 7];
        for (at, outcome) in OUTCOMES.into_iter().enumerate() {
            let backend = &backends[at % backends.len()];
            let client = match &backends[(at + 1) % backends.len()] {
                Some(Endpoint::Tcp(address)) => PeerAddr::Tcp(*address),
                Some(Endpoint::Shm(_)) => PeerAddr::Shm,
                Some(Endpoint::Unix(_) | Endpoint::Descriptor(_)) | None => PeerAddr::Unix,
            };
            let mut entry = AccessEntry::new(client, 1, &request, 42);
            (entry.bytes_out, entry.outcome) = (u64::MAX, outcome);
            entry.note_sent(0, 100);
            entry.note_reply(&reply, 107);
            let mut bytes = [0; ACCESS_RECORD_BYTES_MAX];
            let long = [b'f'; ACCESS_FIELD_BYTES_MAX];
            let fields: Vec<Option<&[u8]>> =
                (0..ACCESS_FIELDS_MAX).map(|index| (index != at % 3).then_some(&long[..])).collect();
            let len = encode(&entry, 2, backend.as_ref(), fields.iter().copied(), &mut bytes);
            let expected = AccessRecord {
                taken_ns: 1,
                ended_ns: 2,
                bytes_in: 42,
                bytes_out: u64::MAX,
                outcome,
                client,
                backend: backend.clone(),
                upstream_ns: Some(7),
                request: request[..ACCESS_REQUEST_BYTES_MAX].to_vec(),
                reply: reply[..ACCESS_REPLY_BYTES_MAX].to_vec(),
                fields: fields.iter().map(|field| field.map(<[u8]>::to_vec)).collect(),
            };
            assert_eq!(AccessRecord::decode(&bytes[..len]), expected);
        }
    }
}
