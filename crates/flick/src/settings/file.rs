//! `flick.toml`: the settings of `flick run` as a file.
//! Promises: an unknown key, a wrong value or a wrong channel is reported at its line, with what is allowed there.

pub mod edit;
mod environment;
mod include;
mod location;

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use flick_compiler::EngineKind;
use flick_discovery::address::parse_endpoints;
use flick_net::Endpoint;
use flick_runtime::Binding;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};
use toml::Spanned;
use toml::de::DeTable;

use super::addresses::{Connect, ConnectTarget};
use super::deprecated;
use super::following::TuneSettings;
use super::health::HealthSettings;
use super::limits::{LimitSettings, TimeoutSettings};
use super::units::{CountOrZero, Period, Size, Workers};
use super::{Io, Shm};
use crate::access::{FieldName, FieldNames, Sample};
use crate::failure::Failure;
use crate::logging::LogFormat;
use crate::sandbox::{SandboxMode, User};
use location::Source;
pub use location::{Location, SettingsFile, at_location};

/// Channels of one table, with the locations of their names.
pub type Table<T = Addresses> = BTreeMap<Spanned<String>, T>;

/// A whole settings file; `None` is a key that is not set.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct File {
    /// Further files with services, relative to this one.
    pub include: Option<Patterns>,
    /// Number of worker threads.
    pub workers: Option<Workers>,
    /// Whether each worker is bound to a core.
    pub cpu_affinity: Option<bool>,
    /// Kernel interface for network I/O.
    pub io: Option<Io>,
    /// Use of shared memory in place of pipes and sockets between flick processes of this host.
    pub shm: Option<Shm>,
    /// Format of the log.
    pub log: Option<LogFormat>,
    /// File of the access log, relative to the settings file.
    #[serde(deserialize_with = "path")]
    pub access_log: Option<PathBuf>,
    /// Ratio of requests in the access log.
    pub access_log_sample: Option<Sample>,
    /// Fields of requests in the access log.
    pub access_log_fields: Option<Listed<FieldName>>,
    /// Size from which the access log is rotated.
    pub access_log_max_size: Option<Size>,
    /// Number of old files of the access log.
    pub access_log_keep: Option<CountOrZero>,
    /// Whether to write `/tmp/perf-PID.map`.
    pub perf_map: Option<bool>,
    /// User to switch to once the sockets are open.
    pub user: Option<User>,
    /// Mode in which the process restricts itself.
    pub sandbox: Option<SandboxMode>,
    /// Longest graceful shutdown.
    pub shutdown_timeout: Option<Period>,
    /// Longest time that an old generation may serve its clients after a reload.
    pub old_generation_timeout: Option<Period>,
    /// Time without an event-loop iteration after which a worker counts as stalled.
    pub watchdog_timeout: Option<Period>,
    /// Directory of the snapshots of dictionaries.
    #[serde(deserialize_with = "path")]
    pub state_dir: Option<PathBuf>,
    /// File of what an operator changes of backends at run time, relative to the settings file.
    #[serde(deserialize_with = "path")]
    pub backend_state_file: Option<PathBuf>,
    /// DNS server for backend names.
    #[serde(deserialize_with = "resolver_address")]
    pub resolver: Option<std::net::SocketAddr>,
    /// The admin endpoint.
    pub admin: Admin,
    /// Services to run: one table, or a list of them.
    pub service: Services,
    /// Channels to listen on.
    pub listen: Table,
    /// Channels to connect to backends.
    pub connect: Table<ConnectTargets>,
    /// Backend health.
    pub health: HealthSettings,
    /// Limits.
    pub limits: LimitSettings,
    /// Timeouts.
    pub timeouts: TimeoutSettings,
    /// Tunables that follow the load.
    pub tune: TuneSettings,
}

/// The admin endpoint.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Admin {
    /// Its address.
    #[serde(deserialize_with = "admin_address")]
    pub listen: Option<flick_admin::Address>,
    /// File of its token, relative to the settings file.
    #[serde(deserialize_with = "path")]
    pub token_file: Option<PathBuf>,
    /// File of a token that may only read, relative to the settings file.
    #[serde(deserialize_with = "path")]
    pub read_token_file: Option<PathBuf>,
}

/// Deserialises the address of the admin endpoint: a string, or a port number.
fn admin_address<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<flick_admin::Address>, D::Error> {
    struct AddressOrPort;
    impl Visitor<'_> for AddressOrPort {
        type Value = flick_admin::Address;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a port number, or an address in quotes")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
            text.parse().map_err(E::custom)
        }

        fn visit_i64<E: de::Error>(self, port: i64) -> Result<Self::Value, E> {
            port.to_string().parse().map_err(E::custom)
        }
    }
    deserializer.deserialize_any(AddressOrPort).map(Some)
}

/// Deserialises the address of a name server.
fn resolver_address<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<std::net::SocketAddr>, D::Error> {
    let text = String::deserialize(deserializer)?;
    super::addresses::name_server(&text).map(Some).map_err(de::Error::custom)
}

/// Deserialises a path.
fn path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PathBuf>, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text.is_empty() || text.contains('\0') {
        return Err(de::Error::custom("expected a path, which is not empty and has no NUL"));
    }
    Ok(Some(text.into()))
}

/// A program to run, with the settings of its services.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Service {
    /// Name of the service; by default that of its process.
    pub name: Option<String>,
    /// The program, relative to the settings file.
    #[serde(deserialize_with = "path")]
    pub program: Option<PathBuf>,
    /// Engine that executes the code.
    pub engine: Option<EngineKind>,
    /// Channels to listen on.
    pub listen: Table,
    /// Channels to connect to backends.
    pub connect: Table<ConnectTargets>,
    /// Backend health.
    pub health: HealthSettings,
    /// Limits.
    pub limits: LimitSettings,
    /// Timeouts.
    pub timeouts: TimeoutSettings,
    /// Directory of the snapshots of dictionaries.
    #[serde(deserialize_with = "path")]
    pub state_dir: Option<PathBuf>,
}

/// One table `[service]`, or several tables `[[service]]`.
#[derive(Debug, Default)]
pub struct Services(pub Vec<Service>);

impl<'de> Deserialize<'de> for Services {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrMore;
        impl<'de> Visitor<'de> for OneOrMore {
            type Value = Services;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table `[service]`, or several `[[service]]`")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Services, A::Error> {
                Service::deserialize(MapAccessDeserializer::new(map)).map(|service| Services(vec![service]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Services, A::Error> {
                let mut services = Vec::new();
                while let Some(service) = items.next_element()? {
                    services.push(service);
                }
                Ok(Services(services))
            }
        }
        deserializer.deserialize_any(OneOrMore)
    }
}

/// A value that is one string or a list of strings.
pub trait ListItem: Sized {
    /// Name of one string in errors.
    const WHAT: &str = "an address";

    /// Parses one string. Errors: what is wrong with it.
    fn parse(text: &str) -> Result<Self, String>;

    /// Checks the items of a list against each other. Errors: what contradicts what.
    fn check_all(_items: &[Self]) -> Result<(), String> {
        Ok(())
    }
}

/// An address, repeated for each stream it stands for.
impl ListItem for Vec<Endpoint> {
    fn parse(text: &str) -> Result<Self, String> {
        parse_endpoints(text)
    }
}

/// An address of a backend, or a source of addresses.
impl ListItem for ConnectTarget {
    fn parse(text: &str) -> Result<Self, String> {
        Self::parse(text)
    }

    fn check_all(items: &[Self]) -> Result<(), String> {
        Connect::new(String::new(), items).map(|_| ())
    }
}

/// A field of requests.
impl ListItem for FieldName {
    const WHAT: &str = "the name of a field";

    fn parse(text: &str) -> Result<Self, String> {
        text.parse()
    }

    fn check_all(items: &[Self]) -> Result<(), String> {
        FieldNames::check_all(items)
    }
}

/// A pattern of file names.
impl ListItem for String {
    const WHAT: &str = "a file name";

    fn parse(text: &str) -> Result<Self, String> {
        Ok(text.to_owned())
    }
}

/// One string, or a list of strings.
#[derive(Debug)]
pub struct Listed<T>(pub Vec<T>);

/// One address, or a list of addresses.
pub type Addresses = Listed<Vec<Endpoint>>;

/// Targets that a channel is connected to.
pub type ConnectTargets = Listed<ConnectTarget>;

/// Patterns of file names.
pub type Patterns = Listed<String>;

/// One item of a list.
struct Single<T>(T);

impl<'de, T: ListItem> Deserialize<'de> for Single<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Parsed inside the visitor, so that an error points at this item of the list.
        struct One<T>(PhantomData<T>);
        impl<T: ListItem> Visitor<'_> for One<T> {
            type Value = Single<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{} in quotes", T::WHAT)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Single<T>, E> {
                T::parse(text).map(Single).map_err(E::custom)
            }
        }
        deserializer.deserialize_str(One(PhantomData))
    }
}

impl<'de, T: ListItem> Deserialize<'de> for Listed<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrMore<T>(PhantomData<T>);
        impl<'de, T: ListItem> Visitor<'de> for OneOrMore<T> {
            type Value = Listed<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{} in quotes, or a list of them in [brackets]", T::WHAT)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Listed<T>, E> {
                T::parse(text).map(|one| Listed(vec![one])).map_err(E::custom)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Listed<T>, A::Error> {
                let mut all = Vec::new();
                while let Some(Single(one)) = items.next_element()? {
                    all.push(one);
                }
                // Checked here, where the location of the list is known.
                T::check_all(&all).map_err(de::Error::custom)?;
                Ok(Listed(all))
            }
        }
        deserializer.deserialize_any(OneOrMore(PhantomData))
    }
}

/// The `log` key of the file at `path`, even if the rest of the file is wrong.
pub fn log_format(path: &Path) -> Option<LogFormat> {
    let text = flick_compiler::read_source(path).ok()?;
    let (root, _) = DeTable::parse_recoverable(&text);
    let (_, format) = location::entry(root.get_ref(), "log")?;
    let format = environment::expand(format.get_ref().as_str()?, &variable).ok()?;
    LogFormat::from_str(&format, false).ok()
}

/// The value of a variable of the environment.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// A settings file that was read.
pub struct Loaded {
    /// Its contents, and the services of the files that it includes.
    pub file: File,
    /// Its text, to report errors in it.
    pub source: SettingsFile,
}

/// Reads the settings file at `path`, and those that it includes.
///
/// Errors: one cannot be read, or is not what [`File`] describes; reported at the line.
pub fn read(path: &Path) -> Result<Loaded, Failure> {
    let text = flick_compiler::read_source(path).map_err(|error| {
        Failure::usage(format!("cannot read the settings in {}: {error}", path.display()))
    })?;
    let mut own = Source::new(path.to_path_buf(), text, None);
    let mut file: File = parse(&mut own)?;
    let mut source = SettingsFile::new(path.to_path_buf());
    let number = source.add(own, &file.service.0, 0);
    source.add_channels(None, file.listen.keys().chain(file.connect.keys()));
    include::read(&mut source, &mut file.service.0, number, file.include.take())?;
    Ok(Loaded { file, source })
}

/// Parses the text of one file, and notes its deprecated keys.
fn parse<T: for<'de> Deserialize<'de>>(source: &mut Source) -> Result<T, Failure> {
    let refused = |title: &str, span, help: Option<String>| source.failure(span, title, help.as_deref());
    let wrong = |error: toml::de::Error| {
        let span = error.span().unwrap_or_default();
        let (title, help) = in_words(error.message().trim_end(), source.text(), span.start);
        refused(&title, span, help)
    };
    let mut root = DeTable::parse(source.text()).map_err(wrong)?;
    let deprecated = deprecated::translate_keys(root.get_mut());
    let deprecated = deprecated.map_err(|twice| refused(&twice.message, twice.span, None))?;
    environment::substitute(root.get_mut(), &variable)
        .map_err(|unset| refused(&unset.message, unset.span, None))?;
    let parsed = T::deserialize(toml::de::Deserializer::from(root)).map_err(wrong)?;
    source.set_deprecated(deprecated);
    Ok(parsed)
}

/// Rewrites a message of the parser, about the place `start` of `text`, into a title and a help text.
fn in_words(message: &str, text: &str, start: usize) -> (String, Option<String>) {
    let here = text.get(start..).unwrap_or_default();
    let without_quotes = ["string values must be quoted", "invalid boolean", "invalid float"];
    if without_quotes.iter().any(|begin| message.starts_with(begin)) {
        let help = "write text in double quotes, such as `\"10s\"` or `\"127.0.0.1:8080\"`";
        return (
            "this value is no number, `true` or `false`, and has no quotes".to_owned(),
            Some(help.to_owned()),
        );
    }
    if message == "duplicate key" && here.starts_with("service") {
        return (message.to_owned(), Some("write `[[service]]` above each of several services".to_owned()));
    }
    let of_a_table =
        message.split_once(", expected struct ").or_else(|| message.split_once(", expected a map"));
    if let Some((given, _)) = of_a_table {
        let line = text.get(..start).unwrap_or_default().lines().next_back().unwrap_or_default();
        let key = line.trim().trim_end_matches('=').trim_end();
        return (format!("{given}, expected a table"), Some(format!("write `[{key}]`, and its keys below")));
    }
    in_words_of_names(message)
}

/// Rewrites the message for an unknown key or value into a title and a help text that names the likely one.
fn in_words_of_names(message: &str) -> (String, Option<String>) {
    let unknown = [("unknown field `", "key"), ("unknown variant `", "value")];
    let found = unknown.iter().find_map(|(start, what)| Some((message.strip_prefix(start)?, *what)));
    let Some(((name, expected), what)) = found.and_then(|(rest, what)| Some((rest.split_once('`')?, what)))
    else {
        return (message.to_owned(), None);
    };
    let known: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
    let name_of_key = name.replace('-', "_");
    // An option of the command line has the name of its key, or that and `-timeout`.
    let is_option =
        |known: &&str| name_of_key.strip_prefix(known).is_some_and(|rest| ["", "_timeout"].contains(&rest));
    let exact = known.iter().copied().find(is_option);
    let table = || (what == "key").then(|| table_of(&name_of_key)).flatten();
    let help = match (exact, table()) {
        (None, Some((table, key))) => format!("`{key}` is a key of the table `[{table}]`"),
        (exact, _) => match exact.or_else(|| flick_check::similar(&name_of_key, known.iter().copied())) {
            Some(likely) => format!("did you mean `{likely}`?"),
            None => format!("the {what}s here are `{}`", known.join("`, `")),
        },
    };
    (format!("unknown {what} `{name}`"), Some(help))
}

/// The table that has a key, or an option of the command line as a key.
fn table_of(name: &str) -> Option<(&'static str, String)> {
    let tables = [
        ("limits", keys_of::<LimitSettings>("")),
        ("timeouts", keys_of::<TimeoutSettings>("_timeout")),
        ("health", keys_of::<HealthSettings>("")),
    ];
    tables.into_iter().find_map(|(table, keys)| {
        let is_it = |key: &String| *key == name || format!("{key}_timeout") == name;
        Some((table, keys.into_iter().find(is_it)?))
    })
}

/// The keys of a table: its options, whose names end in `suffix` besides.
fn keys_of<T: clap::Args>(suffix: &str) -> Vec<String> {
    let options = T::augment_args(clap::Command::new("keys"));
    let ids = options.get_arguments().map(|option| option.get_id().as_str());
    ids.map(|id| id.strip_suffix(suffix).unwrap_or(id).to_owned()).collect()
}

/// The channels of a `[connect]` table.
pub fn connects(table: Table<ConnectTargets>) -> Vec<Connect> {
    let connect = |(name, targets): (Spanned<String>, ConnectTargets)| {
        Connect::new(name.into_inner(), &targets.0).expect("`check_all` accepted the list")
    };
    table.into_iter().map(connect).collect()
}

/// The channels of a `[listen]` table.
pub fn bindings(table: Table) -> Vec<Binding> {
    let binding = |(name, addresses): (Spanned<String>, Addresses)| {
        Binding::new(name.into_inner(), addresses.0.concat())
    };
    table.into_iter().map(binding).collect()
}
