//! BackendSetHandle of backends that come from outside and change: a file, names, services by name.
//! Promises: reading happens on threads of its own, never on a worker; what cannot be read, is no list, or has no room
//! changes nothing and says why; the same answer in another order is the same list.
//! Refuses: search domains, `/etc/hosts`.

pub mod names;

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use flick_net::Endpoint;
use flick_runtime::{BackendAddress, BackendSetHandle};
use tracing::{info, warn};

use crate::settings::addresses;
use names::{Answer, Lack, Resolver};

/// How often a file is looked at.
const FILE_LOOK: Duration = Duration::from_millis(250);
/// Shortest time an answer of a name server holds, whatever it says.
const HOLD_MIN: Duration = Duration::from_secs(1);
/// Longest time.
const HOLD_MAX: Duration = Duration::from_secs(3600);
/// Longest time that it holds that there is nothing.
const NOTHING_HOLD_MAX: Duration = Duration::from_secs(30);
/// How long after a failure a name server is asked again: first, and at most.
const AGAIN_MIN: Duration = Duration::from_secs(1);
/// See [`AGAIN_MIN`].
const AGAIN_MAX: Duration = Duration::from_secs(30);
/// Targets of a service's name that are looked up.
const TARGETS_MAX: usize = 256;
/// Longest list in a file, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Where a list of backends comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// `file:PATH`: an address on each line, what it weighs, and whether it stands in for others.
    File(PathBuf),
    /// `dns:NAME:PORT`: the addresses of a name.
    Host {
        /// The name.
        name: String,
        /// The port of all of them.
        port: u16,
    },
    /// `srv:NAME`: the targets of a service.
    Service(String),
}

impl Source {
    /// Reads a source; `None` if the text is something else, an address perhaps.
    ///
    /// Errors: what is wrong, and what would be right.
    pub fn parse(text: &str) -> Option<Result<Self, String>> {
        if let Some(path) = text.strip_prefix("file:") {
            let refused = || format!("`{text}` names no file; write `file:PATH`");
            return Some((!path.is_empty()).then(|| Self::File(path.into())).ok_or_else(refused));
        }
        if let Some(rest) = text.strip_prefix("dns:") {
            let source = rest.rsplit_once(':').and_then(|(name, port)| {
                let port = u16::from_str(port).ok().filter(|port| *port > 0)?;
                names::is_name(name).then(|| Self::Host { name: name.to_owned(), port })
            });
            let refused = || {
                format!(
                    "`{text}` is no name with a port; write `dns:NAME:PORT`, such as `dns:cache.example:11211`"
                )
            };
            return Some(source.ok_or_else(refused));
        }
        let name = text.strip_prefix("srv:")?;
        let refused = || format!("`{text}` is no name of a service; write `srv:_SERVICE._tcp.NAME`");
        Some(names::is_name(name).then(|| Self::Service(name.to_owned())).ok_or_else(refused))
    }

    /// The same source with its path below a directory.
    pub fn below(self, directory: impl FnOnce(PathBuf) -> PathBuf) -> Self {
        match self {
            Self::File(path) => Self::File(directory(path)),
            other => other,
        }
    }
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => write!(f, "file:{}", path.display()),
            Self::Host { name, port } => write!(f, "dns:{name}:{port}"),
            Self::Service(name) => write!(f, "srv:{name}"),
        }
    }
}

/// The list that a source gave last, if it gave one.
#[derive(Clone, Debug, Default)]
pub struct Last(Arc<Mutex<Option<Vec<BackendAddress>>>>);

impl Last {
    fn set(&self, list: &[BackendAddress]) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(list.to_vec());
    }

    fn get(&self) -> Option<Vec<BackendAddress>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What the sources of a generation gave last.
#[derive(Debug, Default)]
pub struct Known(Vec<(Source, Last)>);

impl Known {
    /// Of these, from here on.
    pub fn of<'a>(readers: impl Iterator<Item = &'a Reader>) -> Self {
        Self(readers.map(|reader| (reader.source.clone(), reader.last.clone())).collect())
    }

    /// The list that this source gave last, to whichever channel.
    fn list(&self, of: &Source) -> Option<Vec<BackendAddress>> {
        self.0.iter().filter(|(source, _)| source == of).find_map(|(_, last)| last.get())
    }
}

/// Reads one source again and again.
pub struct Reader {
    source: Source,
    last: Last,
    resolver: Resolver,
    /// Of a file: what it looked like when it was read.
    seen: Option<Stamp>,
    /// What a name server said when it last said anything.
    found: Vec<Ranked>,
    failures: u32,
    last_error: Option<String>,
    /// Why it gave addresses of one kind only, if it did.
    half: Option<String>,
    half_told: Option<String>,
}

/// What a reader begins with.
pub struct Begun {
    /// The list.
    pub list: Vec<BackendAddress>,
    /// When to read again.
    pub after: Duration,
    /// Why it is what it was before.
    pub failed: Option<String>,
}

/// What changes when a file does.
type Stamp = (u64, Option<SystemTime>, u64);

impl Reader {
    /// A reader that asks these name servers.
    pub fn new(source: Source, resolver: Resolver) -> Self {
        Self {
            source,
            last: Last::default(),
            resolver,
            seen: None,
            found: Vec::new(),
            failures: 0,
            last_error: None,
            half: None,
            half_told: None,
        }
    }

    /// The list to begin with, when to read again, and why the list is not what the source says now: it could not be read, so
    /// that it is what it was before.
    ///
    /// Errors: there is none, and none is known from before.
    pub fn begin(&mut self, known: &Known) -> Result<Begun, String> {
        let (list, after) = self.read();
        let (list, failed) = match list {
            Ok(list) => (list.unwrap_or_default(), None),
            Err(error) => {
                let list = known.list(&self.source).ok_or_else(|| error.clone())?;
                // It is said by whoever begins with it.
                self.is_news(Some(&error));
                (list, Some(error))
            }
        };
        self.last.set(&list);
        Ok(Begun { list, after, failed })
    }

    /// Where it reads.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// The file that it reads, if it reads one.
    pub fn file(&self) -> Option<&Path> {
        match &self.source {
            Source::File(path) => Some(path),
            Source::Host { .. } | Source::Service(_) => None,
        }
    }

    /// The list now, unless it is known to be the same, and when to read again.
    ///
    /// Errors: why there is none.
    pub fn read(&mut self) -> (Result<Option<Vec<BackendAddress>>, String>, Duration) {
        let read = match &self.source {
            Source::File(path) => {
                let now = stamp(path);
                if now.is_some() && now == self.seen {
                    return (Ok(None), FILE_LOOK);
                }
                let list = read_file(path);
                // What hindered may be gone without the file having changed.
                self.seen = now.filter(|_| list.is_ok());
                return (list.map(Some), FILE_LOOK);
            }
            Source::Host { name, port } => self.resolver.addresses(name).map(|answer| Found {
                list: answer.found.iter().map(|ip| (0, SocketAddr::new(*ip, *port), 1)).collect(),
                holds: hold(&answer),
                lacks: answer.lacks.into_iter().collect(),
            }),
            Source::Service(name) => service(&self.resolver, name),
        };
        match read {
            Ok(Found { mut list, holds, lacks }) => {
                self.failures = 0;
                // What the server failed to give is as it was.
                let is_lacking = |at: &SocketAddr| lacks.iter().any(|lack| lack.has(at.ip()));
                list.extend(self.found.iter().filter(|(_, at, _)| is_lacking(at)));
                self.half = lacks.first().map(|lack| lack.why.clone());
                // An address that has several ranks has the first of them.
                list.sort_unstable_by_key(|(rank, at, _)| (*at, *rank));
                list.dedup_by_key(|(_, at, _)| *at);
                self.found.clone_from(&list);
                let member =
                    |(rank, at, weight)| BackendAddress::weighing(Endpoint::Tcp(at), weight).ranking(rank);
                (Ok(Some(list.into_iter().map(member).collect())), holds)
            }
            Err(error) => {
                let again = AGAIN_MIN.saturating_mul(1 << self.failures.min(5)).min(AGAIN_MAX);
                self.failures += 1;
                (Err(error), again)
            }
        }
    }

    /// Says what a server failed to give beside what it gave, if that is new.
    fn tell_half(&mut self) {
        if let Some(error) = self.half.as_ref().filter(|error| self.half_told.as_ref() != Some(*error)) {
            let source = &self.source;
            warn!(%source, error, "addresses of one kind stay as they were, those of the other are new");
        }
        self.half_told.clone_from(&self.half);
    }

    /// Notes what went wrong; whether it is worth saying, because it is new.
    fn is_news(&mut self, error: Option<&str>) -> bool {
        let is_news = error.is_some() && self.last_error.as_deref() != error;
        self.last_error = error.map(str::to_owned);
        is_news
    }
}

/// What a file looks like from outside; `None`: it cannot be seen.
fn stamp(path: &Path) -> Option<Stamp> {
    use std::os::unix::fs::MetadataExt;
    let data = std::fs::metadata(path).ok()?;
    Some((data.len(), data.modified().ok(), data.ino()))
}

/// Reads an address, and what it weighs, on each line, the last one ended too; `#` begins a comment.
fn read_file(path: &Path) -> Result<Vec<BackendAddress>, String> {
    let cannot = |error: std::io::Error| format!("cannot read {}: {error}", path.display());
    let data = std::fs::metadata(path).map_err(cannot)?;
    if !data.is_file() {
        // To open a pipe waits for somebody at its other end.
        return Err(format!("{} is no file", path.display()));
    }
    if data.len() > FILE_BYTES_MAX {
        return Err(format!("{} has more than {FILE_BYTES_MAX} bytes", path.display()));
    }
    let text = std::fs::read_to_string(path).map_err(cannot)?;
    // Who writes in place may be in the middle of it; a list of nobody has a comment that says so.
    if !text.ends_with('\n') {
        return Err(format!("{} does not end with a line break: it may not be whole", path.display()));
    }
    let mut list = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if !line.is_empty() {
            let at = |error: String| format!("{}:{}: {error}", path.display(), number + 1);
            list.extend(addresses::members(line).map_err(at)?);
        }
    }
    Ok(list)
}

/// How long an answer holds.
fn hold<T>(answer: &Answer<T>) -> Duration {
    let most = if answer.found.is_empty() { NOTHING_HOLD_MAX } else { HOLD_MAX };
    answer.holds.clamp(HOLD_MIN, most)
}

/// Rank, address and weight.
type Ranked = (u16, SocketAddr, u32);

/// What a name server has given.
struct Found {
    list: Vec<Ranked>,
    holds: Duration,
    /// What it failed to give.
    lacks: Vec<Lack>,
}

/// The addresses of the targets of a service, with their priorities and weights: a target of several addresses weighs as much as it
/// says at each of them.
fn service(resolver: &Resolver, name: &str) -> Result<Found, String> {
    let mut answer = resolver.targets(name)?;
    let mut holds = hold(&answer);
    //= RFC 2782 section The format of the SRV RR
    //# A client MUST attempt to contact the target host with the lowest-numbered priority it can reach; target hosts with
    //# the same priority SHOULD be tried in an order defined by the weight field.
    answer.found.sort_by_key(|target| target.priority);
    let (mut list, mut lacks) = (Vec::new(), Vec::new());
    for target in answer.found.iter().take(TARGETS_MAX) {
        let addresses = resolver.addresses(&target.name)?;
        holds = holds.min(hold(&addresses));
        let at = |ip: &IpAddr| (target.priority, SocketAddr::new(*ip, target.port), u32::from(target.weight));
        list.extend(addresses.found.iter().map(at));
        lacks.extend(addresses.lacks);
    }
    Ok(Found { list, holds, lacks })
}

/// Readers at work; they end with this.
#[derive(Default)]
pub struct Watchers {
    threads: Vec<(Sender<()>, JoinHandle<()>)>,
}

impl Watchers {
    /// Starts a thread for each channel. `after` is when each is to be read next.
    ///
    /// Errors: the system has no more threads.
    pub fn start(watched: Vec<Watched>) -> std::io::Result<Self> {
        let mut threads = Vec::new();
        for watched in watched {
            let (stop, stopped) = mpsc::channel::<()>();
            let Watched { service, lists, channel, mut reader, after } = watched;
            let work = move || {
                let mut wait = after;
                while stopped.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                    wait = turn(&lists, (&service, &channel), &mut reader);
                }
            };
            threads.push((stop, std::thread::Builder::new().name("backends".to_owned()).spawn(work)?));
        }
        Ok(Self { threads })
    }
}

impl Drop for Watchers {
    fn drop(&mut self) {
        // One that waits for a name server ends soon by itself; nobody waits for it.
        self.threads.drain(..).for_each(|(stop, thread)| drop((stop, thread)));
    }
}

/// A channel whose list is read.
pub struct Watched {
    /// Of which service.
    pub service: String,
    /// Its lists.
    pub lists: BackendSetHandle,
    /// Its name.
    pub channel: String,
    /// From where.
    pub reader: Reader,
    /// When first.
    pub after: Duration,
}

/// Reads once and passes on what is new; when to do so again.
fn turn(lists: &BackendSetHandle, (service, channel): (&str, &str), reader: &mut Reader) -> Duration {
    let (read, again) = reader.read();
    reader.tell_half();
    let source = reader.source.to_string();
    let set = read.and_then(|list| match list {
        Some(list) => lists.set(channel, &list).map(|is_new| {
            reader.last.set(&list);
            Some((is_new, list.len()))
        }),
        None => Ok(None),
    });
    match set {
        Ok(Some((is_new, elements))) => {
            reader.is_news(None);
            if is_new {
                info!(service, channel, source, elements, "a new list of backends");
            }
        }
        Ok(None) => {}
        Err(error) => {
            if reader.is_news(Some(&error)) {
                warn!(service, channel, source, error, "the list of backends stays as it was");
            }
        }
    }
    again
}

#[cfg(test)]
mod tests {
    use super::{Reader, Source, read_file};
    use crate::sources::names::Resolver;

    fn check(text: &str, expected: &str) {
        let shown = match Source::parse(text) {
            None => "none".to_owned(),
            Some(Ok(source)) => source.to_string(),
            Some(Err(error)) => error,
        };
        assert!(shown.contains(expected), "{text}: {shown}");
    }

    #[test]
    fn sources_are_told_from_addresses() {
        check("127.0.0.1:80", "none");
        check("unix:/run/a.sock", "none");
        check("file:/etc/backends", "file:/etc/backends");
        check("file:", "write `file:PATH`");
        check("dns:cache.example:11211", "dns:cache.example:11211");
        check("dns:cache.example", "write `dns:NAME:PORT`");
        check("dns::80", "write `dns:NAME:PORT`");
        check("dns:a..b:80", "write `dns:NAME:PORT`");
        check("srv:_http._tcp.example", "srv:_http._tcp.example");
        check("srv:", "write `srv:");
    }

    #[test]
    fn a_file_is_read_when_it_has_changed_and_says_where_it_is_wrong() {
        let path = std::env::temp_dir().join(format!("flick-sources-{}", std::process::id()));
        let write = |text: &str| std::fs::write(&path, text).expect("it can be written");
        write("# two\n127.0.0.1:1 weight=7 # much\n\n unix:/run/x.sock # here\n");
        let mut reader = Reader::new(Source::File(path.clone()), Resolver::nowhere());
        let list = reader.read().0.expect("a list").expect("it is new");
        assert_eq!(
            list.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["127.0.0.1:1 weight=7", "unix:/run/x.sock"]
        );
        assert_eq!(reader.read().0, Ok(None), "nothing is new");
        for part in ["", "127.0.0.1:1\n127.0.0"] {
            write(part);
            assert!(reader.read().0.expect_err("a part").contains("may not be whole"), "{part:?}");
        }
        // As one that could not be opened: what hindered may go without the file having changed.
        assert!(reader.read().0.is_err(), "a list that failed once was never read again");
        let mut pipe = Reader::new(Source::File("/dev/null".into()), Resolver::nowhere());
        assert!(pipe.read().0.expect_err("no list").contains("is no file"));
        write("127.0.0.1:1\nlocalhost\n");
        let error = reader.read().0.expect_err("no address");
        assert!(error.contains(":2: ") && error.contains("localhost"), "{error}");
        std::fs::remove_file(&path).expect("it is there");
        assert!(reader.read().0.expect_err("it is gone").contains("cannot read"));
        assert!(read_file(&path).is_err());
    }
}
