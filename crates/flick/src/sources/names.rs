//! Asks name servers: A, AAAA and SRV records, over UDP, and over TCP when an answer is cut.
//! Promises: every question ends within a bounded time; an answer to another question is not taken for ours; a server
//! that fails is an error, a name that is not there is an empty answer.
//! Refuses: caching beyond the time to live, search domains, encryption.
//! Source: RFC 1035 section 4, RFC 2181, RFC 2308, RFC 2782, RFC 5452.

use std::hash::{BuildHasher, RandomState};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::str::FromStr;
use std::time::{Duration, Instant};

use domain::base::iana::Rcode;
use domain::base::record::ParsedRecord;
use domain::base::{Message, MessageBuilder, Name, ParsedName, Question, Rtype, ToName};
use domain::rdata::{A, Aaaa, Soa, Srv};

/// How long one server has for one answer.
const ANSWER_WAIT: Duration = Duration::from_secs(1);
/// Rounds through all servers before a question fails.
const ROUNDS: u32 = 2;
/// Servers that are asked.
const SERVERS_MAX: usize = 3;
/// Longest answer over UDP.
const UDP_BYTES_MAX: usize = 65_535;
/// Answers to other questions that are passed over while ours is awaited.
const STRAYS_MAX: u32 = 16;
/// The usual port.
const DNS_PORT: u16 = 53;

/// Longest time that addresses of one kind hold while the server fails to give those of the other.
const HALF_HOLD_MAX: Duration = Duration::from_secs(30);

/// What a name server said.
#[derive(Debug)]
pub struct Answer<T> {
    /// What it found; nothing, when there is no such name.
    pub found: Vec<T>,
    /// How long that holds.
    pub holds: Duration,
    /// Addresses that it failed to give, while it gave those of the other kind.
    pub lacks: Option<Lack>,
}

/// Addresses of one kind that a name server failed to give.
#[derive(Clone, Debug)]
pub struct Lack {
    is_six: bool,
    /// What it said.
    pub why: String,
}

impl Lack {
    /// Whether this is one of them.
    pub fn has(&self, ip: IpAddr) -> bool {
        ip.is_ipv6() == self.is_six
    }
}

/// Why there is no answer.
struct Fault {
    text: String,
    /// A server has said so itself.
    is_said: bool,
}

impl Fault {
    /// Nobody has said anything that could be understood.
    fn silent(text: String) -> Self {
        Self { text, is_said: false }
    }
}

/// A target of a service.
#[derive(Debug)]
pub struct Target {
    /// Lower ones come first.
    pub priority: u16,
    /// How much it gets beside others of its priority; 0: as little as possible.
    pub weight: u16,
    /// Its port.
    pub port: u16,
    /// Its name.
    pub name: String,
}

/// The name servers.
#[derive(Clone, Debug)]
pub struct Resolver {
    servers: Vec<SocketAddr>,
}

/// Whether this may be asked for.
pub fn is_name(text: &str) -> bool {
    !text.is_empty() && text != "." && Name::<Vec<u8>>::from_str(text).is_ok()
}

impl Resolver {
    /// One server.
    pub fn new(server: SocketAddr) -> Self {
        Self { servers: vec![server] }
    }

    /// Those of the machine.
    pub fn system() -> Self {
        let text = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
        let servers = text.lines().filter_map(|line| line.trim().strip_prefix("nameserver"));
        let servers = servers.filter_map(|address| IpAddr::from_str(address.trim()).ok());
        Self { servers: servers.take(SERVERS_MAX).map(|ip| SocketAddr::new(ip, DNS_PORT)).collect() }
    }

    /// None at all.
    #[cfg(test)]
    pub fn nowhere() -> Self {
        Self { servers: Vec::new() }
    }

    /// All addresses of a name. There are servers that fail for one kind only: those of the other count all the same, if there
    /// are any.
    ///
    /// Errors: no server answered, or one failed for both kinds, or for one where there is nothing of the other.
    pub fn addresses(&self, name: &str) -> Result<Answer<IpAddr>, String> {
        let name = parsed(name)?;
        let four = self.ask(&name, Rtype::A, |record| {
            record.into_record::<A>().ok().flatten().map(|a| IpAddr::V4(a.data().addr()))
        });
        if let Err(Fault { text, is_said: false }) = four {
            return Err(text);
        }
        let six = self.ask(&name, Rtype::AAAA, |record| {
            record.into_record::<Aaaa>().ok().flatten().map(|aaaa| IpAddr::V6(aaaa.data().addr()))
        });
        let is_six = six.is_err();
        let (four, six) = match (four, six) {
            (Ok(four), Ok(six)) => (four, six),
            (Ok(half), Err(fault)) | (Err(fault), Ok(half)) if fault.is_said && !half.found.is_empty() => {
                let lacks = Some(Lack { is_six, why: fault.text });
                return Ok(Answer { holds: half.holds.min(HALF_HOLD_MAX), lacks, ..half });
            }
            (Err(fault), _) | (_, Err(fault)) => return Err(fault.text),
        };
        // That there is none of one kind says nothing of how long those of the other hold.
        let holds = match (four.found.is_empty(), six.found.is_empty()) {
            (false, true) => four.holds,
            (true, false) => six.holds,
            _ => four.holds.min(six.holds),
        };
        Ok(Answer { found: four.found.into_iter().chain(six.found).collect(), holds, lacks: None })
    }

    /// All targets of a service.
    ///
    /// Errors: no server answered, or one failed.
    pub fn targets(&self, name: &str) -> Result<Answer<Target>, String> {
        let answer = self.ask(&parsed(name)?, Rtype::SRV, |record| {
            let record = record.into_record::<Srv<ParsedName<&[u8]>>>().ok().flatten()?;
            let srv = record.data();
            let name = srv.target().to_name::<Vec<u8>>().to_string();
            Some(Target { priority: srv.priority(), weight: srv.weight(), port: srv.port(), name })
        });
        let mut answer = answer.map_err(|fault| fault.text)?;
        //= RFC 2782 section The format of the SRV RR
        //# A Target of "." means that the service is decidedly not available at this domain.
        answer.found.retain(|target| is_name(&target.name));
        Ok(answer)
    }

    /// Asks one server after the other until one gives an answer.
    fn ask<T>(
        &self,
        name: &Name<Vec<u8>>,
        kind: Rtype,
        take: impl Fn(ParsedRecord<'_, &[u8]>) -> Option<T>,
    ) -> Result<Answer<T>, Fault> {
        let mut last = Fault::silent("no name server is known".to_owned());
        for _ in 0..ROUNDS {
            for server in &self.servers {
                let exchanged = exchange(*server, name, kind).map_err(Fault::silent);
                match exchanged.and_then(|bytes| read(&bytes, &take)) {
                    Ok(answer) => return Ok(answer),
                    Err(fault) => {
                        last = Fault { text: format!("name server {server}: {}", fault.text), ..fault }
                    }
                }
            }
        }
        Err(Fault { text: format!("{kind} records of `{name}`: {}", last.text), ..last })
    }
}

fn parsed(name: &str) -> Result<Name<Vec<u8>>, String> {
    Name::from_str(name).map_err(|error| format!("`{name}` is no name: {error}"))
}

/// Puts a question to a server, and gives the bytes of its answer.
fn exchange(server: SocketAddr, name: &Name<Vec<u8>>, kind: Rtype) -> Result<Vec<u8>, String> {
    let question = question(name, kind)?;
    let asked = Message::from_octets(question.as_slice()).map_err(|error| error.to_string())?;
    let answer = over_udp(server, &asked).map_err(told)?;
    let is_cut = Message::from_octets(answer.as_slice()).is_ok_and(|answer| answer.header().tc());
    //= RFC 2181 section 9
    //# When a DNS client receives a reply with TC set, it should ignore that response, and query again, using a
    //# mechanism, such as a TCP connection, that will permit larger replies.
    if is_cut { over_tcp(server, &asked).map_err(told) } else { Ok(answer) }
}

/// What went wrong. The system reports a time-out as an operation that would block.
fn told(error: std::io::Error) -> String {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => format!("no answer in {ANSWER_WAIT:?}"),
        _ => error.to_string(),
    }
}

fn question(name: &Name<Vec<u8>>, kind: Rtype) -> Result<Vec<u8>, String> {
    let mut message = MessageBuilder::new_vec();
    message.header_mut().set_rd(true);
    message.header_mut().set_id(RandomState::new().hash_one(Instant::now()) as u16);
    let mut message = message.question();
    message.push(Question::new_in(name, kind)).map_err(|error| error.to_string())?;
    Ok(message.finish())
}

fn over_udp(server: SocketAddr, asked: &Message<&[u8]>) -> std::io::Result<Vec<u8>> {
    let any = match server {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(server)?;
    socket.send(asked.as_slice())?;
    let until = Instant::now() + ANSWER_WAIT;
    let mut bytes = vec![0; UDP_BYTES_MAX];
    for _ in 0..STRAYS_MAX {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        socket.set_read_timeout(Some(left))?;
        let len = socket.recv(&mut bytes)?;
        if answers(&bytes[..len], asked) {
            bytes.truncate(len);
            return Ok(bytes);
        }
    }
    Err(ErrorKind::TimedOut.into())
}

fn over_tcp(server: SocketAddr, asked: &Message<&[u8]>) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&server, ANSWER_WAIT)?;
    stream.set_read_timeout(Some(ANSWER_WAIT))?;
    stream.set_write_timeout(Some(ANSWER_WAIT))?;
    let len = asked.as_slice().len() as u16;
    stream.write_all(&[&len.to_be_bytes(), asked.as_slice()].concat())?;
    let mut len = [0; 2];
    stream.read_exact(&mut len)?;
    let mut bytes = vec![0; usize::from(u16::from_be_bytes(len))];
    stream.read_exact(&mut bytes)?;
    if answers(&bytes, asked) { Ok(bytes) } else { Err(ErrorKind::InvalidData.into()) }
}

/// Whether it is the answer to that question.
//= RFC 5452 section 9.1
//# A resolver implementation MUST match responses to all of the following attributes of the query:
//= RFC 5452 section 9.1
//# A mismatch and the response MUST be considered invalid.
fn answers(bytes: &[u8], asked: &Message<&[u8]>) -> bool {
    Message::from_octets(bytes).is_ok_and(|answer| answer.is_answer(asked))
}

/// What an answer says of the name that was asked for, aliases followed.
fn read<T>(bytes: &[u8], take: impl Fn(ParsedRecord<'_, &[u8]>) -> Option<T>) -> Result<Answer<T>, Fault> {
    let wrong = |error: domain::base::wire::ParseError| Fault::silent(format!("its answer is none: {error}"));
    let message = Message::from_octets(bytes).map_err(|error| Fault::silent(error.to_string()))?;
    match message.header().rcode() {
        Rcode::NOERROR | Rcode::NXDOMAIN => {}
        code => return Err(Fault { text: format!("it says {code}"), is_said: true }),
    }
    let (mut found, mut holds) = (Vec::new(), None::<Duration>);
    let owner = message.canonical_name();
    for record in message.answer().map_err(wrong)? {
        let record = record.map_err(wrong)?;
        let (ttl, is_ours) =
            (record.ttl().into_duration(), owner.as_ref().is_some_and(|owner| record.owner().name_eq(owner)));
        if let Some(one) = is_ours.then(|| take(record)).flatten() {
            found.push(one);
        }
        holds = Some(holds.map_or(ttl, |holds| holds.min(ttl)));
    }
    if found.is_empty() {
        //= RFC 2308 section 3
        //# The TTL of this record is set from the minimum of the MINIMUM field of the SOA record and the TTL of the SOA
        //# itself, and indicates how long a resolver may cache the negative answer.
        holds = None;
        for record in message.authority().map_err(wrong)?.limit_to::<Soa<ParsedName<_>>>().flatten() {
            holds = Some(record.ttl().min(record.data().minimum()).into_duration());
        }
    }
    Ok(Answer { found, holds: holds.unwrap_or_default(), lacks: None })
}
