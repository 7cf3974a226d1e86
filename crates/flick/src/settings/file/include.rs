//! `include = ["services/*.toml"]`: further files with services.
//! Promises: the files of a pattern are read in the order of their names; no file is read twice, so that a cycle is an
//! error; an error names the file and the line that it is about.
//! Not here: wildcards in the names of directories.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::location::{SettingsFile, Source};
use super::{Listed, Patterns, Service, Services, parse};
use crate::failure::Outcome;

/// Most files that settings consist of; a process has at most as many services.
const FILES_MAX: usize = 256;

/// An included file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct IncludedFile {
    /// Further files.
    include: Option<Patterns>,
    /// Services to run: one table, or a list of them.
    service: Services,
}

/// Reads the files that the file with this number includes, and appends their services.
///
/// Errors: a file cannot be read, is wrong, or is included twice.
pub(super) fn read(
    settings: &mut SettingsFile,
    services: &mut Vec<Service>,
    from: usize,
    patterns: Option<Patterns>,
) -> Outcome {
    let Some(Listed(patterns)) = patterns else { return Ok(()) };
    for (number, pattern) in patterns.iter().enumerate() {
        let directory = settings.source(from).directory();
        let path = directory.join(pattern);
        settings.add_directory(path.parent().unwrap_or(Path::new("")).to_path_buf());
        let refused = |settings: &SettingsFile, title: &str, help: Option<&str>| {
            let source = settings.source(from);
            source.failure(source.span_of_item("include", number), title, help)
        };
        let files = matching(&path).map_err(|error| {
            refused(settings, &format!("cannot include {}: {error}", path.display()), None)
        })?;
        for file in files {
            if let Some(known) = settings.find(&file) {
                let title = format!("{} is included a second time", file.display());
                let help = match settings.includers(from).contains(&known) {
                    true => "it includes this file: remove one of the two",
                    false => "its services would run twice: remove it from one of the lists",
                };
                return Err(refused(settings, &title, Some(help)));
            }
            if settings.files().len() == FILES_MAX {
                let title = format!("more than {FILES_MAX} files are included");
                return Err(refused(settings, &title, None));
            }
            let text = flick_compiler::read_source(&file).map_err(|error| {
                refused(settings, &format!("cannot read the settings in {}: {error}", file.display()), None)
            })?;
            read_one(settings, services, Source::new(file, text, Some(from)))?;
        }
    }
    Ok(())
}

fn read_one(settings: &mut SettingsFile, services: &mut Vec<Service>, mut source: Source) -> Outcome {
    let included: IncludedFile = parse(&mut source)?;
    let number = settings.add(source, &included.service.0, services.len());
    services.extend(included.service.0);
    read(settings, services, number, included.include)
}

/// Returns the files that a path with wildcards in its last part matches, by name.
///
/// Errors: the directory cannot be read; another part has wildcards.
fn matching(path: &Path) -> io::Result<Vec<PathBuf>> {
    let is_pattern = |part: &OsStr| part.as_bytes().iter().any(|byte| matches!(byte, b'*' | b'?'));
    let directory = path.parent().unwrap_or(Path::new(""));
    let Some(pattern) = path.file_name() else { return Err(io::ErrorKind::InvalidFilename.into()) };
    if directory.iter().any(is_pattern) {
        let why = "wildcards are allowed in the last part of a path only";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    if !is_pattern(pattern) {
        return Ok(vec![path.to_path_buf()]);
    }
    let listed = if directory == Path::new("") { Path::new(".") } else { directory };
    let mut names: Vec<OsString> = Vec::new();
    for entry in std::fs::read_dir(listed)? {
        let name = entry?.file_name();
        // As in a shell, hidden files are not matched by a wildcard.
        let is_hidden = name.as_bytes().starts_with(b".") && !pattern.as_bytes().starts_with(b".");
        if !is_hidden && is_match(pattern.as_bytes(), name.as_bytes()) {
            names.push(name);
        }
    }
    names.sort();
    Ok(names.into_iter().map(|name| directory.join(name)).collect())
}

/// Whether a name matches a pattern, in which `*` stands for any bytes and `?` for one.
fn is_match(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut seen) = (0, 0);
    // Where the last `*` was, and how much of the name it covers.
    let mut star: Option<(usize, usize)> = None;
    while seen < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, seen));
                at += 1;
            }
            Some(byte) if *byte == b'?' || *byte == name[seen] => (at, seen) = (at + 1, seen + 1),
            _ => {
                let Some((behind, covered)) = star else { return false };
                star = Some((behind, covered + 1));
                (at, seen) = (behind + 1, covered + 1);
            }
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::is_match;

    #[test]
    fn wildcards_match_as_in_a_shell() {
        for (pattern, name, expected) in [
            ("*.toml", "a.toml", true),
            ("*.toml", ".toml", true),
            ("*.toml", "a.toml~", false),
            ("*.toml", "a.tom", false),
            ("a*b*c", "axbyc", true),
            ("a*b*c", "abbc", true),
            ("a*b*c", "acb", false),
            ("??.toml", "10.toml", true),
            ("??.toml", "1.toml", false),
            ("*", "", true),
            ("?", "", false),
            ("a", "a", true),
            ("a", "ab", false),
        ] {
            assert_eq!(is_match(pattern.as_bytes(), name.as_bytes()), expected, "{pattern} {name}");
        }
    }
}
