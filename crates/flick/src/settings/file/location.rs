//! Locations in a settings file, to report an error where its cause is written.
//! A key that is written by its deprecated name is found by its new one.

use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::Service;
use crate::failure::Failure;
use crate::report;
use crate::settings::deprecated::{self, Deprecated};

/// The text of one file.
#[derive(Debug)]
pub(super) struct Source {
    path: PathBuf,
    text: String,
    /// Number of the file that includes it; `None`: the settings file itself.
    includer: Option<usize>,
    /// Deprecated keys in it.
    deprecated: Vec<Deprecated>,
}

/// A settings file with those that it includes, and the locations of services and channels in them.
#[derive(Debug)]
pub struct SettingsFile {
    /// Its path.
    pub path: PathBuf,
    /// The file itself, then the included ones.
    sources: Vec<Source>,
    /// By service: the number of its file, and its index there.
    services: Vec<(usize, usize)>,
    /// Channels: index of their service or `None` for the file's own tables, name, and location.
    channels: Vec<(Option<usize>, String, Range<usize>)>,
    /// Directories in which files to include were looked for.
    directories: Vec<PathBuf>,
}

impl Source {
    /// The text of the file at `path`.
    pub fn new(path: PathBuf, text: String, includer: Option<usize>) -> Self {
        Self { path, text, includer, deprecated: Vec::new() }
    }

    /// Its text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Notes its deprecated keys.
    pub fn set_deprecated(&mut self, deprecated: Vec<Deprecated>) {
        self.deprecated = deprecated;
    }

    /// Directory to which the paths in it are relative.
    pub fn directory(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new(""))
    }

    /// A failure at this place in it.
    pub fn failure(&self, span: Range<usize>, title: &str, help: Option<&str>) -> Failure {
        Failure::usage(self.excerpt(span, title, help))
    }

    fn excerpt(&self, span: Range<usize>, title: &str, help: Option<&str>) -> String {
        report::excerpt(title, &self.path.display().to_string(), &self.text, span, help)
    }

    /// Place of an item of a list, or of a value that is no list.
    pub fn span_of_item(&self, key: &str, item: usize) -> Range<usize> {
        let root = DeTable::parse(&self.text).ok();
        let value = root.as_ref().and_then(|root| entry(root.get_ref(), key)).map(|(_, value)| value);
        let span = value.map(|value| match value.get_ref() {
            DeValue::Array(all) => all.get(item).map_or(value.span(), Spanned::span),
            _ => value.span(),
        });
        span.unwrap_or_default()
    }
}

impl SettingsFile {
    /// A settings file of which nothing is known yet.
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            path,
            sources: Vec::new(),
            services: Vec::new(),
            channels: Vec::new(),
            directories: Vec::new(),
        }
    }

    /// Adds a file with these services, of which `known` are in earlier files. Its number.
    pub(super) fn add(&mut self, source: Source, services: &[Service], known: usize) -> usize {
        let number = self.sources.len();
        self.sources.push(source);
        for (index, service) in services.iter().enumerate() {
            self.services.push((number, index));
            let names = service.listen.keys().chain(service.connect.keys());
            self.add_channels(Some(known + index), names);
        }
        number
    }

    /// Adds channels of a service, or of the file's own tables.
    pub(super) fn add_channels<'a>(
        &mut self,
        service: Option<usize>,
        names: impl Iterator<Item = &'a Spanned<String>>,
    ) {
        self.channels.extend(names.map(|name| (service, name.get_ref().clone(), name.span())));
    }

    /// Adds a directory in which files to include are looked for.
    pub(super) fn add_directory(&mut self, directory: PathBuf) {
        self.directories.push(directory);
    }

    /// The file with this number.
    pub(super) fn source(&self, number: usize) -> &Source {
        &self.sources[number]
    }

    /// Number of the file at this path, if it has been read.
    pub(super) fn find(&self, path: &Path) -> Option<usize> {
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        let wanted = real(path);
        self.sources.iter().position(|source| real(&source.path) == wanted)
    }

    /// This file, the one that includes it, and so on.
    pub(super) fn includers(&self, number: usize) -> Vec<usize> {
        std::iter::successors(Some(number), |number| self.sources[*number].includer).collect()
    }

    /// Paths of all its files.
    pub fn files(&self) -> Vec<&Path> {
        self.sources.iter().map(|source| source.path.as_path()).collect()
    }

    /// Directories in which files to include were looked for.
    pub fn directories(&self) -> &[PathBuf] {
        &self.directories
    }

    /// Path of the file that a service is written in.
    pub fn path_of(&self, service: usize) -> &Path {
        &self.source_of(Some(service)).0.path
    }

    /// Directory to which the paths of a service, or of the file's own tables, are relative.
    pub fn directory_of(&self, service: Option<usize>) -> &Path {
        self.source_of(service).0.directory()
    }

    /// The file that a service is written in, and its index there.
    fn source_of(&self, service: Option<usize>) -> (&Source, Option<usize>) {
        match service.and_then(|service| self.services.get(service)) {
            Some((source, index)) => (&self.sources[*source], Some(*index)),
            None => (&self.sources[0], None),
        }
    }

    /// Logs a warning for each deprecated key.
    pub fn warn_deprecated(&self) {
        for source in &self.sources {
            let path = source.path.display().to_string();
            source.deprecated.iter().for_each(|deprecated| deprecated.warn(Some((&path, &source.text))));
        }
    }

    /// A failure at a channel in the tables of the file, or of the service with that index.
    pub fn at_channel(&self, service: Option<usize>, channel: &str, title: &str, help: &str) -> Failure {
        let found = self.channels.iter().find(|(of, name, _)| *of == service && name == channel);
        let span = found.map_or(0..0, |(_, _, span)| span.clone());
        self.source_of(service).0.failure(span, title, Some(help))
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
        let (source, index) = self.source_of(Some(service));
        let span = table_span(&source.text, index.unwrap_or_default()).unwrap_or(0..0);
        source.failure(span, title, Some(help))
    }

    /// Location of a setting in the file's own tables, for errors found after the file is dropped.
    pub fn location(&self, path: &[&str]) -> Option<Location> {
        let text = &self.sources[0].text;
        let span = setting_span(text, None, path)?;
        Some(Location { file: self.path.display().to_string(), text: text.clone(), span })
    }

    fn excerpt(
        &self,
        service: Option<usize>,
        path: &[&str],
        title: &str,
        help: Option<&str>,
    ) -> Option<String> {
        let (source, index) = self.source_of(service);
        let span = setting_span(&source.text, index, path)?;
        Some(source.excerpt(span, title, help))
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
