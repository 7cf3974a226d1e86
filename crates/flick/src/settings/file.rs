//! `flick.toml`: the same settings, kept.
//! Promises: an unknown key, a wrong value or a wrong channel is shown at its line with what would be right.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use flick_net::Endpoint;
use flick_runtime::Binding;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::addresses::{Connect, Part};
use super::health::HealthSettings;
use super::limits::{LimitSettings, TimeoutSettings};
use super::units::{Period, Workers};
use super::{Io, addresses};
use crate::access::Sample;
use crate::compile::EngineKind;
use crate::confine::{Confine, User};
use crate::failure::Failure;
use crate::logging::LogFormat;
use crate::report;

/// Channels of one table, with the places of their names.
pub type Table<T = Addresses> = BTreeMap<Spanned<String>, T>;

/// The whole file; `None` where it says nothing.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct File {
    /// Worker threads.
    pub workers: Option<Workers>,
    /// Whether each worker stays on a core.
    pub pin: Option<bool>,
    /// Which kernel interface.
    pub io: Option<Io>,
    /// How the log looks.
    pub log: Option<LogFormat>,
    /// Where the access log is written; relative to the file that names it.
    pub access_log: Option<PathBuf>,
    /// Which part of the requests is in it.
    pub access_log_sample: Option<Sample>,
    /// Whether perf is told the names of compiled functions.
    pub perf_map: Option<bool>,
    /// Who to become once the sockets are open.
    pub user: Option<User>,
    /// What is given up.
    pub confine: Option<Confine>,
    /// How long a drain may take.
    pub drain_deadline: Option<Period>,
    /// How long clients that cannot change hands may stay with what was before.
    pub reload_deadline: Option<Period>,
    /// How long a worker may not turn until it counts as hanging.
    pub hang_after: Option<Period>,
    /// Where dictionaries with a snapshot are kept across restarts.
    pub state_dir: Option<PathBuf>,
    /// Which name server is asked.
    pub resolver: Option<std::net::SocketAddr>,
    /// The admin side.
    pub admin: Admin,
    /// What to run: one table, or a list of them.
    pub service: Services,
    /// Channels to listen on.
    pub listen: Table,
    /// Channels to connect.
    pub connect: Table<Sources>,
    /// Health of backends.
    pub health: HealthSettings,
    /// Limits.
    pub limits: LimitSettings,
    /// Time-outs.
    pub timeouts: TimeoutSettings,
}

/// The admin side.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Admin {
    /// Where it listens.
    #[serde(deserialize_with = "admin_address")]
    pub listen: Option<flick_admin::Address>,
    /// Where its token is; relative to the file that names it.
    pub token_file: Option<PathBuf>,
}

/// An address of the admin side: in quotes, or a port alone.
fn admin_address<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<flick_admin::Address>, D::Error> {
    struct Text;
    impl Visitor<'_> for Text {
        type Value = flick_admin::Address;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a port of this machine, or an address in quotes")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
            text.parse().map_err(E::custom)
        }

        fn visit_i64<E: de::Error>(self, port: i64) -> Result<Self::Value, E> {
            port.to_string().parse().map_err(E::custom)
        }
    }
    deserializer.deserialize_any(Text).map(Some)
}

/// A program to run, and what holds for its services only.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Service {
    /// What operators call it; without a name, as its process.
    pub name: Option<String>,
    /// The program; relative to the file that names it.
    pub program: Option<PathBuf>,
    /// What runs it.
    pub engine: Option<EngineKind>,
    /// Channels to listen on.
    pub listen: Table,
    /// Channels to connect.
    pub connect: Table<Sources>,
    /// Health of backends.
    pub health: HealthSettings,
    /// Limits.
    pub limits: LimitSettings,
    /// Time-outs.
    pub timeouts: TimeoutSettings,
    /// Where dictionaries with a snapshot are kept across restarts.
    pub state_dir: Option<PathBuf>,
}

/// `[service]`, or any number of `[[service]]`.
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

/// What is written in quotes, alone or in a list.
pub trait Written: Sized {
    /// Reads one. Errors: what is wrong with it.
    fn parse(text: &str) -> Result<Self, String>;

    /// Errors: what is wrong with several that stand together.
    fn together(_all: &[Self]) -> Result<(), String> {
        Ok(())
    }
}

/// An address, or one for several streams.
impl Written for Vec<Endpoint> {
    fn parse(text: &str) -> Result<Self, String> {
        addresses::parse(text)
    }
}

/// A part of what a channel is connected to: an address, or a source of them.
impl Written for Part {
    fn parse(text: &str) -> Result<Self, String> {
        Self::parse(text)
    }

    fn together(all: &[Self]) -> Result<(), String> {
        Connect::new(String::new(), all).map(|_| ())
    }
}

/// One, or a list of them.
#[derive(Debug)]
pub struct Listed<T>(Vec<T>);

/// One address, or a list of them.
pub type Addresses = Listed<Vec<Endpoint>>;

/// What a channel is connected to.
pub type Sources = Listed<Part>;

/// One of a list.
struct Single<T>(T);

impl<'de, T: Written> Deserialize<'de> for Single<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // It is parsed inside the visitor, so that a mistake is shown at this element of the list.
        struct One<T>(PhantomData<T>);
        impl<T: Written> Visitor<'_> for One<T> {
            type Value = Single<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an address in quotes")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Single<T>, E> {
                T::parse(text).map(Single).map_err(E::custom)
            }
        }
        deserializer.deserialize_str(One(PhantomData))
    }
}

impl<'de, T: Written> Deserialize<'de> for Listed<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrMore<T>(PhantomData<T>);
        impl<'de, T: Written> Visitor<'de> for OneOrMore<T> {
            type Value = Listed<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an address in quotes, or a list of them in [brackets]")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Listed<T>, E> {
                T::parse(text).map(|one| Listed(vec![one])).map_err(E::custom)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Listed<T>, A::Error> {
                let mut all = Vec::new();
                while let Some(Single(one)) = items.next_element()? {
                    all.push(one);
                }
                // What is wrong with several is told here, where the place is known.
                T::together(&all).map_err(de::Error::custom)?;
                Ok(Listed(all))
            }
        }
        deserializer.deserialize_any(OneOrMore(PhantomData))
    }
}

/// A settings file that was read: enough to show a place in it.
#[derive(Debug)]
pub struct Named {
    /// Where it is.
    pub path: PathBuf,
    text: String,
    /// Names of channels, whose table they stand in (a number of a `[[service]]`, or the file's), and where.
    channels: Vec<(Option<usize>, String, Range<usize>)>,
}

impl Named {
    /// A failure at a channel that stands in the file's tables, or in those of the service of that number.
    pub fn at_channel(&self, service: Option<usize>, channel: &str, title: &str, help: &str) -> Failure {
        let place = self.channels.iter().find(|(of, name, _)| *of == service && name == channel);
        let place = place.map_or(0..0, |(_, _, place)| place.clone());
        let path = self.path.display().to_string();
        Failure::usage(report::excerpt(title, &path, &self.text, place, Some(help)))
    }

    /// A failure at a setting, named by its table and key, of the service of that number or of the file's own; without a place
    /// where it does not stand there.
    pub fn at_setting(&self, service: Option<usize>, path: &[&str], title: &str, help: &str) -> Failure {
        let shown = self.excerpt(service, path, title, Some(help));
        Failure::usage(shown.unwrap_or_else(|| format!("{title}; {help}")))
    }

    /// A failure that comes from what a setting names, shown there if it stands there.
    pub fn shown_at(&self, service: Option<usize>, path: &[&str], failure: Failure) -> Failure {
        failure.shown(|title| self.excerpt(service, path, title, None))
    }

    /// A failure at the table of the service of that number.
    pub fn at_service(&self, service: usize, title: &str, help: &str) -> Failure {
        let place = table_of(&self.text, service).unwrap_or(0..0);
        let path = self.path.display().to_string();
        Failure::usage(report::excerpt(title, &path, &self.text, place, Some(help)))
    }

    /// Where a setting of the file's own stands, for what is found wrong with it when the file is not at hand any more.
    pub fn place(&self, path: &[&str]) -> Option<Place> {
        let place = place_of(&self.text, None, path)?;
        Some(Place { name: self.path.display().to_string(), text: self.text.clone(), place })
    }

    /// What is wrong at a setting, shown there; nothing where it does not stand there.
    fn excerpt(
        &self,
        service: Option<usize>,
        path: &[&str],
        title: &str,
        help: Option<&str>,
    ) -> Option<String> {
        let place = place_of(&self.text, service, path)?;
        Some(report::excerpt(title, &self.path.display().to_string(), &self.text, place, help))
    }
}

/// A place in a settings file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    name: String,
    text: String,
    place: Range<usize>,
}

impl Place {
    /// A failure that comes from what stands there, shown there.
    fn shown(&self, failure: Failure) -> Failure {
        failure.shown(|title| Some(report::excerpt(title, &self.name, &self.text, self.place.clone(), None)))
    }
}

/// A failure, shown where it comes from if that is a settings file.
pub fn shown_at(place: Option<&Place>, failure: Failure) -> Failure {
    match place {
        Some(place) => place.shown(failure),
        None => failure,
    }
}

/// Where the table of a service stands.
fn table_of(text: &str, service: usize) -> Option<Range<usize>> {
    let root = DeTable::parse(text).ok()?;
    let (_, services) = entry(root.get_ref(), "service")?;
    match services.get_ref() {
        DeValue::Array(all) => Some(all.get(service)?.span()),
        _ => Some(services.span()),
    }
}

/// Where a setting stands, with its value.
fn place_of(text: &str, service: Option<usize>, path: &[&str]) -> Option<Range<usize>> {
    let root = DeTable::parse(text).ok()?;
    let mut table = root.get_ref();
    if let Some(number) = service {
        table = match entry(table, "service")?.1.get_ref() {
            DeValue::Array(all) => all.get(number)?.get_ref().as_table()?,
            one => one.as_table()?,
        };
    }
    let (last, tables) = path.split_last()?;
    for name in tables {
        table = entry(table, name)?.1.get_ref().as_table()?;
    }
    let (key, value) = entry(table, last)?;
    Some(key.start..value.span().end)
}

/// A key of a table, with what it is set to.
fn entry<'t, 'f>(table: &'t DeTable<'f>, name: &str) -> Option<(Range<usize>, &'t Spanned<DeValue<'f>>)> {
    let found = table.iter().find(|(key, _)| key.get_ref() == name);
    found.map(|(key, value)| (key.span(), value))
}

/// How the log looks, as far as the file at `path` says so at all.
pub fn log_format(path: &Path) -> Option<LogFormat> {
    let text = crate::console::read_source(path).ok()?;
    let (root, _) = DeTable::parse_recoverable(&text);
    let (_, format) = entry(root.get_ref(), "log")?;
    LogFormat::from_str(format.get_ref().as_str()?, false).ok()
}

/// Reads the settings file at `path`.
///
/// Errors: it cannot be read, or is not what [`File`] describes; shown at its place.
pub fn read(path: &Path) -> Result<(File, Named), Failure> {
    let shown = path.display().to_string();
    let text = crate::console::read_source(path)
        .map_err(|error| Failure::usage(format!("cannot read the settings in {shown}: {error}")))?;
    let file: File = toml::from_str(&text).map_err(|error| {
        let place = error.span().unwrap_or(0..0);
        Failure::usage(report::excerpt(error.message().trim_end(), &shown, &text, place, None))
    })?;
    let own = file.service.0.iter().enumerate().flat_map(|(number, service)| {
        service.listen.keys().chain(service.connect.keys()).map(move |name| (Some(number), name))
    });
    let names = file.listen.keys().chain(file.connect.keys()).map(|name| (None, name)).chain(own);
    let channels = names.map(|(of, name)| (of, name.get_ref().clone(), name.span())).collect();
    Ok((file, Named { path: path.to_path_buf(), text, channels }))
}

/// The channels of one table that are connected.
pub fn connects(table: Table<Sources>) -> Vec<Connect> {
    let connect = |(name, sources): (Spanned<String>, Sources)| {
        Connect::new(name.into_inner(), &sources.0).expect("what was read has been checked")
    };
    table.into_iter().map(connect).collect()
}

/// The channels of one table as the platform takes them.
pub fn bindings(table: Table) -> Vec<Binding> {
    let binding = |(name, addresses): (Spanned<String>, Addresses)| {
        Binding::new(name.into_inner(), addresses.0.concat())
    };
    table.into_iter().map(binding).collect()
}
