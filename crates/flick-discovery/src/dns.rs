//! A stub resolver: A, AAAA and SRV records over UDP, and over TCP when a response is truncated.
//! Promises: every lookup ends within a bounded time; a response to another question is never taken for ours; a name
//! that does not exist has no records, a server that fails is an error.
//! Not here: caching (`reader.rs` reads again when the TTL ends), search domains, encryption.
//! Source: RFC 1035 section 4, RFC 2181, RFC 2308, RFC 2782, RFC 5452.

use std::hash::{BuildHasher, RandomState};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use domain::base::iana::Rcode;
use domain::base::record::ParsedRecord;
use domain::base::{Message, MessageBuilder, Name, ParsedName, Question, Rtype, ToName};
use domain::rdata::{A, Aaaa, Ns, Soa, Srv};

use crate::limits::{ATTEMPTS_MAX, PARTIAL_TTL_MAX, RESPONSE_TIMEOUT, STRAY_RESPONSES_MAX, UDP_BYTES_MAX};
use crate::resolv_conf::ResolvConf;

/// The records of a lookup.
#[derive(Debug)]
pub struct Lookup<T> {
    /// The records; none if the name does not exist.
    pub records: Vec<T>,
    /// Their lowest TTL.
    pub ttl: Duration,
    /// The address family whose lookup failed while the other one succeeded.
    pub missing: Option<MissingFamily>,
}

/// An address family whose lookup failed.
#[derive(Clone, Debug)]
pub struct MissingFamily {
    is_ipv6: bool,
    /// Error of its lookup.
    pub error: LookupError,
}

impl MissingFamily {
    /// Returns whether the address belongs to this family.
    pub fn contains(&self, ip: IpAddr) -> bool {
        ip.is_ipv6() == self.is_ipv6
    }
}

/// The reason of a failed lookup.
#[derive(Clone, Debug)]
pub struct LookupError {
    /// The reason in words.
    pub text: String,
    /// Whether a server reported it: another lookup may succeed.
    pub is_response: bool,
}

impl LookupError {
    /// A server said so.
    fn response(text: String) -> Self {
        Self { text, is_response: true }
    }

    /// No server sent a valid response.
    fn no_response(text: String) -> Self {
        Self { text, is_response: false }
    }
}

/// A target of a service.
#[derive(Debug)]
pub struct SrvTarget {
    /// Targets with a lower number are preferred.
    pub priority: u16,
    /// Share among the targets of one priority.
    pub weight: u16,
    /// Port.
    pub port: u16,
    /// Host name.
    pub name: String,
}

/// The name servers that are asked.
#[derive(Clone, Debug)]
enum Servers {
    One(SocketAddr),
    /// Those that a file has at the time of the lookup.
    Listed(Arc<Mutex<ResolvConf>>),
}

/// Looks names up.
#[derive(Clone, Debug)]
pub struct Resolver {
    servers: Servers,
    /// Set when lookups are not wanted any more.
    cancelled: Arc<AtomicBool>,
}

/// Returns whether `text` is a domain name that can be looked up.
pub fn is_name(text: &str) -> bool {
    // A port, or what is left of a URL, is no part of a name.
    let has_colon = text.contains(':');
    !text.is_empty() && text != "." && !has_colon && Name::<Vec<u8>>::from_str(text).is_ok()
}

impl Resolver {
    /// Asks one server.
    pub fn new(server: SocketAddr) -> Self {
        Self { servers: Servers::One(server), cancelled: Arc::default() }
    }

    /// Asks the servers of `/etc/resolv.conf`.
    pub fn system() -> Self {
        let file = ResolvConf::at("/etc/resolv.conf".into());
        Self { servers: Servers::Listed(Arc::new(Mutex::new(file))), cancelled: Arc::default() }
    }

    /// Lets its lookups fail once this is set: none asks another server then.
    #[must_use]
    pub fn cancelled_by(self, cancelled: Arc<AtomicBool>) -> Self {
        Self { cancelled, ..self }
    }

    /// Looks up the A and AAAA records of a name. The lookup of one of them may fail; the records of the other count.
    /// AAAA records are not asked for where that failed before with `silent`: no server responded.
    ///
    /// Errors: no server responded, or the lookup of one family failed while the other has no records.
    pub fn addresses(&self, name: &str, silent: Option<&LookupError>) -> Result<Lookup<IpAddr>, LookupError> {
        let v4 = self.lookup(name, Rtype::A, |record| {
            record.into_record::<A>().ok().flatten().map(|a| IpAddr::V4(a.data().addr()))
        });
        if let Err(error) = &v4
            && !error.is_response
        {
            // All servers are away: they are not waited for again.
            return Err(error.clone());
        }
        let v6 = match silent {
            Some(error) => Err(error.clone()),
            None => self.lookup(name, Rtype::AAAA, |record| {
                record.into_record::<Aaaa>().ok().flatten().map(|aaaa| IpAddr::V6(aaaa.data().addr()))
            }),
        };
        let is_ipv6 = v6.is_err();
        let (v4, v6) = match (v4, v6) {
            (Ok(v4), Ok(v6)) => (v4, v6),
            (Ok(half), Err(error)) | (Err(error), Ok(half)) if !half.records.is_empty() => {
                let missing = Some(MissingFamily { is_ipv6, error });
                return Ok(Lookup { ttl: half.ttl.min(PARTIAL_TTL_MAX), missing, ..half });
            }
            (Err(error), _) | (_, Err(error)) => return Err(error),
        };
        // The negative TTL of one family does not limit the records of the other.
        let ttl = match (v4.records.is_empty(), v6.records.is_empty()) {
            (false, true) => v4.ttl,
            (true, false) => v6.ttl,
            _ => v4.ttl.min(v6.ttl),
        };
        Ok(Lookup { records: v4.records.into_iter().chain(v6.records).collect(), ttl, missing: None })
    }

    /// Looks up the SRV records of a service.
    ///
    /// Errors: no server responded, or the lookup failed.
    pub fn targets(&self, name: &str) -> Result<Lookup<SrvTarget>, LookupError> {
        let mut lookup = self.lookup(name, Rtype::SRV, |record| {
            let record = record.into_record::<Srv<ParsedName<&[u8]>>>().ok().flatten()?;
            let srv = record.data();
            let name = srv.target().to_name::<Vec<u8>>().to_string();
            Some(SrvTarget { priority: srv.priority(), weight: srv.weight(), port: srv.port(), name })
        })?;
        //= RFC 2782 section The format of the SRV RR
        //# A Target of "." means that the service is decidedly not available at this domain.
        lookup.records.retain(|target| is_name(&target.name));
        Ok(lookup)
    }

    /// Asks the servers in order until one responds. `take` returns the value of a record, or `None` for another type.
    fn lookup<T>(
        &self,
        name: &str,
        kind: Rtype,
        take: impl Fn(ParsedRecord<'_, &[u8]>) -> Option<T>,
    ) -> Result<Lookup<T>, LookupError> {
        let parsed = Name::<Vec<u8>>::from_str(name)
            .map_err(|error| LookupError::response(format!("`{name}` is not a domain name: {error}")))?;
        let servers = match &self.servers {
            Servers::One(server) => vec![*server],
            Servers::Listed(file) => file.lock().unwrap_or_else(PoisonError::into_inner).servers(),
        };
        let mut last = LookupError::no_response("no name server is configured".to_owned());
        for _ in 0..ATTEMPTS_MAX {
            for server in &servers {
                if self.cancelled.load(Ordering::Relaxed) {
                    return Err(LookupError::no_response("the lookup was cancelled".to_owned()));
                }
                let response = exchange(*server, &parsed, kind).map_err(LookupError::no_response);
                match response.and_then(|bytes| read_response(&bytes, &take)) {
                    Ok(lookup) => return Ok(lookup),
                    Err(error) => {
                        last = LookupError {
                            text: format!("name server {server}: {}", error.text),
                            is_response: last.is_response || error.is_response,
                        }
                    }
                }
            }
        }
        Err(LookupError { text: format!("{kind} records of `{parsed}`: {}", last.text), ..last })
    }
}

/// Sends a query to a server and returns the bytes of its response.
fn exchange(server: SocketAddr, name: &Name<Vec<u8>>, kind: Rtype) -> Result<Vec<u8>, String> {
    let query = encode_query(name, kind)?;
    let query = Message::from_octets(query.as_slice()).map_err(|error| error.to_string())?;
    let response = over_udp(server, &query).map_err(io_error)?;
    let is_truncated = Message::from_octets(response.as_slice()).is_ok_and(|message| message.header().tc());
    //= RFC 2181 section 9
    //# When a DNS client receives a reply with TC set, it should ignore that response, and query again, using a
    //# mechanism, such as a TCP connection, that will permit larger replies.
    if is_truncated { over_tcp(server, &query).map_err(io_error) } else { Ok(response) }
}

/// Describes an error. A read timeout of a socket is reported as `WouldBlock`.
fn io_error(error: std::io::Error) -> String {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => format!("no response within {RESPONSE_TIMEOUT:?}"),
        _ => error.to_string(),
    }
}

fn encode_query(name: &Name<Vec<u8>>, kind: Rtype) -> Result<Vec<u8>, String> {
    let mut message = MessageBuilder::new_vec();
    message.header_mut().set_rd(true);
    message.header_mut().set_id(RandomState::new().hash_one(Instant::now()) as u16);
    let mut message = message.question();
    message.push(Question::new_in(name, kind)).map_err(|error| error.to_string())?;
    Ok(message.finish())
}

fn over_udp(server: SocketAddr, query: &Message<&[u8]>) -> std::io::Result<Vec<u8>> {
    let any = match server {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(server)?;
    socket.send(query.as_slice())?;
    let until = Instant::now() + RESPONSE_TIMEOUT;
    let mut bytes = vec![0; UDP_BYTES_MAX];
    for _ in 0..STRAY_RESPONSES_MAX {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        socket.set_read_timeout(Some(left))?;
        let len = socket.recv(&mut bytes)?;
        if is_response_to(&bytes[..len], query) {
            bytes.truncate(len);
            return Ok(bytes);
        }
    }
    Err(ErrorKind::TimedOut.into())
}

fn over_tcp(server: SocketAddr, query: &Message<&[u8]>) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&server, RESPONSE_TIMEOUT)?;
    stream.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
    stream.set_write_timeout(Some(RESPONSE_TIMEOUT))?;
    let len = query.as_slice().len() as u16;
    stream.write_all(&[&len.to_be_bytes(), query.as_slice()].concat())?;
    let mut len = [0; 2];
    stream.read_exact(&mut len)?;
    let mut bytes = vec![0; usize::from(u16::from_be_bytes(len))];
    stream.read_exact(&mut bytes)?;
    if is_response_to(&bytes, query) { Ok(bytes) } else { Err(ErrorKind::InvalidData.into()) }
}

/// Returns whether `bytes` is the response to `query`.
//= RFC 5452 section 9.1
//# A resolver implementation MUST match responses to all of the following attributes of the query:
//= RFC 5452 section 9.1
//# A mismatch and the response MUST be considered invalid.
fn is_response_to(bytes: &[u8], query: &Message<&[u8]>) -> bool {
    Message::from_octets(bytes).is_ok_and(|message| message.is_answer(query))
}

/// Reads the records of the queried name from a response, CNAMEs followed.
fn read_response<T>(
    bytes: &[u8],
    take: impl Fn(ParsedRecord<'_, &[u8]>) -> Option<T>,
) -> Result<Lookup<T>, LookupError> {
    let malformed = |error: domain::base::wire::ParseError| {
        LookupError::no_response(format!("malformed response: {error}"))
    };
    let message = Message::from_octets(bytes).map_err(|error| LookupError::no_response(error.to_string()))?;
    match message.header().rcode() {
        Rcode::NOERROR | Rcode::NXDOMAIN => {}
        code => return Err(LookupError::response(format!("response code {code}"))),
    }
    let (mut records, mut ttl_min) = (Vec::new(), None::<Duration>);
    let owner = message.canonical_name();
    for record in message.answer().map_err(malformed)? {
        let record = record.map_err(malformed)?;
        let ttl = record.ttl().into_duration();
        let is_owned = owner.as_ref().is_some_and(|owner| record.owner().name_eq(owner));
        records.extend(is_owned.then(|| take(record)).flatten());
        ttl_min = Some(ttl_min.map_or(ttl, |least| least.min(ttl)));
    }
    if records.is_empty() {
        let authority = message.authority().map_err(malformed)?;
        let has_soa = authority.limit_to::<Soa<ParsedName<_>>>().next().is_some();
        // RFC 2308, section 2.2, tells a referral from a name without data so.
        if !has_soa && authority.limit_to::<Ns<ParsedName<_>>>().next().is_some() {
            return Err(LookupError::response(
                "it refers to other name servers and does not ask them".to_owned(),
            ));
        }
        //= RFC 2308 section 3
        //# The TTL of this record is set from the minimum of the MINIMUM field of the SOA record and the TTL of the SOA
        //# itself, and indicates how long a resolver may cache the negative answer.
        ttl_min = None;
        for record in authority.limit_to::<Soa<ParsedName<_>>>().flatten() {
            ttl_min = Some(record.ttl().min(record.data().minimum()).into_duration());
        }
    }
    Ok(Lookup { records, ttl: ttl_min.unwrap_or_default(), missing: None })
}
