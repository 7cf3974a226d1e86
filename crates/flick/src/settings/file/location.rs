//! Locations in a settings file, to report an error where its cause is written.
//! A key that is written by its deprecated name is found by its new one.

use std::ops::Range;
use std::path::PathBuf;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::failure::Failure;
use crate::report;
use crate::settings::deprecated;

/// The text of a settings file and the locations of the channels in it.
#[derive(Debug)]
pub struct SettingsFile {
    /// Its path.
    pub path: PathBuf,
    text: String,
    /// Channels: index of their `[[service]]` or `None` for the file's own tables, name, and location.
    channels: Vec<(Option<usize>, String, Range<usize>)>,
}

impl SettingsFile {
    /// The file at `path` with its text and channels.
    pub(super) fn new(
        path: PathBuf,
        text: String,
        channels: Vec<(Option<usize>, String, Range<usize>)>,
    ) -> Self {
        Self { path, text, channels }
    }

    /// Its text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// A failure at a channel in the tables of the file, or of the service with that index.
    pub fn at_channel(&self, service: Option<usize>, channel: &str, title: &str, help: &str) -> Failure {
        let found = self.channels.iter().find(|(of, name, _)| *of == service && name == channel);
        let span = found.map_or(0..0, |(_, _, span)| span.clone());
        let path = self.path.display().to_string();
        Failure::usage(report::excerpt(title, &path, &self.text, span, Some(help)))
    }

    /// A failure at a setting, given by its tables and key, of the file or of the service with that index. Without an
    /// excerpt if the file does not have the setting.
    pub fn at_setting(&self, service: Option<usize>, path: &[&str], title: &str, help: &str) -> Failure {
        let shown = self.excerpt(service, path, title, Some(help));
        Failure::usage(shown.unwrap_or_else(|| format!("{title}; {help}")))
    }

    /// Adds an excerpt of a setting to the failure that it caused, if the file has the setting.
    pub fn shown_at(&self, service: Option<usize>, path: &[&str], failure: Failure) -> Failure {
        failure.shown(|title| self.excerpt(service, path, title, None))
    }

    /// A failure at the table of the service with that index.
    pub fn at_service(&self, service: usize, title: &str, help: &str) -> Failure {
        let span = table_span(&self.text, service).unwrap_or(0..0);
        let path = self.path.display().to_string();
        Failure::usage(report::excerpt(title, &path, &self.text, span, Some(help)))
    }

    /// Location of a setting in the file's own tables, for errors found after the file is dropped.
    pub fn location(&self, path: &[&str]) -> Option<Location> {
        let span = setting_span(&self.text, None, path)?;
        Some(Location { file: self.path.display().to_string(), text: self.text.clone(), span })
    }

    fn excerpt(
        &self,
        service: Option<usize>,
        path: &[&str],
        title: &str,
        help: Option<&str>,
    ) -> Option<String> {
        let span = setting_span(&self.text, service, path)?;
        Some(report::excerpt(title, &self.path.display().to_string(), &self.text, span, help))
    }
}

/// A location in a settings file, with the text around it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    file: String,
    text: String,
    span: Range<usize>,
}

/// Adds an excerpt to a failure whose cause is in a settings file.
pub fn at_location(location: Option<&Location>, failure: Failure) -> Failure {
    let Some(Location { file, text, span }) = location else { return failure };
    failure.shown(|title| Some(report::excerpt(title, file, text, span.clone(), None)))
}

/// Span of the table of a service.
fn table_span(text: &str, service: usize) -> Option<Range<usize>> {
    let root = DeTable::parse(text).ok()?;
    let (_, services) = entry(root.get_ref(), "service")?;
    match services.get_ref() {
        DeValue::Array(all) => Some(all.get(service)?.span()),
        _ => Some(services.span()),
    }
}

/// Span of a setting: its key and value.
fn setting_span(text: &str, service: Option<usize>, path: &[&str]) -> Option<Range<usize>> {
    let mut root = DeTable::parse(text).ok()?;
    deprecated::translate_keys(root.get_mut()).ok()?;
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

/// Span of a key of a table, and its value.
pub(super) fn entry<'t, 'f>(
    table: &'t DeTable<'f>,
    name: &str,
) -> Option<(Range<usize>, &'t Spanned<DeValue<'f>>)> {
    let found = table.iter().find(|(key, _)| key.get_ref() == name);
    found.map(|(key, value)| (key.span(), value))
}
