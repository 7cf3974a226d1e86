//! `flick.toml`: the same settings, kept.
//! Promises: an unknown key, a wrong value or a wrong channel is shown at its line with what would be right.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use flick_net::Endpoint;
use flick_runtime::Binding;
use serde::Deserialize;
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use toml::Spanned;

use super::limits::{LimitSettings, TimeoutSettings};
use super::units::{Period, Workers};
use super::{Io, addresses};
use crate::compile::EngineKind;
use crate::failure::Failure;
use crate::logging::LogFormat;
use crate::report;

/// Channels of one table, with the places of their names.
pub type Table = BTreeMap<Spanned<String>, Addresses>;

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
    /// How long a drain may take.
    pub drain_deadline: Option<Period>,
    /// Where dictionaries with a snapshot are kept across restarts.
    pub state_dir: Option<PathBuf>,
    /// The admin side.
    pub admin: Admin,
    /// What to run.
    pub service: Option<Service>,
    /// Channels to listen on.
    pub listen: Table,
    /// Channels to connect.
    pub connect: Table,
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

/// What to run.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Service {
    /// The program; relative to the file that names it.
    pub program: Option<PathBuf>,
    /// What runs it.
    pub engine: Option<EngineKind>,
}

/// One address, or a list of them.
#[derive(Debug, Default)]
pub struct Addresses(Vec<Endpoint>);

/// One address, or one for several streams.
struct Address(Vec<Endpoint>);

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // The address is parsed inside the visitor, so that a mistake is shown at this element of the list.
        struct One;
        impl Visitor<'_> for One {
            type Value = Address;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an address in quotes")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Address, E> {
                addresses::parse(text).map(Address).map_err(E::custom)
            }
        }
        deserializer.deserialize_str(One)
    }
}

impl<'de> Deserialize<'de> for Addresses {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrMore;
        impl<'de> Visitor<'de> for OneOrMore {
            type Value = Addresses;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an address in quotes, or a list of them in [brackets]")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Addresses, E> {
                addresses::parse(text).map(Addresses).map_err(E::custom)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Addresses, A::Error> {
                let mut endpoints = Vec::new();
                while let Some(Address(element)) = items.next_element()? {
                    endpoints.extend(element);
                }
                Ok(Addresses(endpoints))
            }
        }
        deserializer.deserialize_any(OneOrMore)
    }
}

/// A settings file that was read: enough to show a place in it.
#[derive(Debug)]
pub struct Named {
    /// Where it is.
    pub path: PathBuf,
    text: String,
    /// Names of channels and where they stand.
    channels: Vec<(String, Range<usize>)>,
}

impl Named {
    /// A failure at the first channel of the file that is not one of `known`; `list` says which there are.
    pub fn unknown_channel(&self, known: &[&str], list: &str) -> Option<Failure> {
        let (name, place) = self.channels.iter().find(|(name, _)| !known.contains(&name.as_str()))?;
        let title = format!("the process has no channel `{name}`");
        let help = format!("its channels are: {list}");
        let path = self.path.display().to_string();
        Some(Failure::usage(report::excerpt(&title, &path, &self.text, place.clone(), Some(&help))))
    }
}

/// Reads the settings file at `path`.
///
/// Errors: it cannot be read, or is not what [`File`] describes; shown at its place.
pub fn read(path: &Path) -> Result<(File, Named), Failure> {
    let shown = path.display().to_string();
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::usage(format!("cannot read the settings in {shown}: {error}")))?;
    let file: File = toml::from_str(&text).map_err(|error| {
        let place = error.span().unwrap_or(0..0);
        Failure::usage(report::excerpt(error.message().trim_end(), &shown, &text, place, None))
    })?;
    let names = file.listen.keys().chain(file.connect.keys());
    let channels = names.map(|name| (name.get_ref().clone(), name.span())).collect();
    Ok((file, Named { path: path.to_path_buf(), text, channels }))
}

/// The channels of one table as the platform takes them.
pub fn bindings(table: Table) -> Vec<Binding> {
    let binding = |(name, addresses): (Spanned<String>, Addresses)| Binding {
        channel: name.into_inner(),
        endpoints: addresses.0,
    };
    table.into_iter().map(binding).collect()
}
