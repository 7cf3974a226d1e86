//! The checks of endpoints that are descriptors, before any is opened.
//! Promises: a start and `flick check` refuse the same; nothing is created, emptied, or seen by another process.

use std::io::Error;
use std::os::fd::AsFd;
use std::path::Path;

use flick_net::{DescriptorAddr, Endpoint};
use flick_runtime::{Binding, ServiceConfig};
use flick_shm::stream::StreamConfig;
use rustix::fs::{Access, AtFlags, CWD, FileType, Mode, OFlags, Stat, accessat, fcntl_getfl, fstat, open};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::{STDERR, STDOUT, number_of, uses_descriptors};
use crate::failure::{Failure, Outcome};
use crate::settings::Settings;
use crate::sys;

/// Direction in which a filter uses a descriptor.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Reading,
    Writing,
}

impl Purpose {
    fn name(self) -> &'static str {
        match self {
            Self::Reading => "reading",
            Self::Writing => "writing",
        }
    }
}

/// A descriptor that a service names.
struct Named<'a> {
    at: &'a DescriptorAddr,
    purpose: Purpose,
    /// The file, if it exists.
    file: Option<Stat>,
}

impl Named<'_> {
    /// Whether both are one regular file, whatever its names.
    fn is_file_of(&self, other: &Self) -> bool {
        let (Some(one), Some(other)) = (&self.file, &other.file) else { return false };
        let is_file = FileType::from_raw_mode(one.st_mode) == FileType::RegularFile;
        is_file && (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
    }

    /// Whether both name one descriptor, or one path.
    fn is_same(&self, other: &Self) -> bool {
        match (number_of(self.at), number_of(other.at)) {
            (Some(one), Some(other)) => one == other,
            _ => self.at == other.at,
        }
    }
}

/// Checks the descriptors of all services, and the settings beside them.
///
/// Errors: usage: a descriptor is not open, is named twice, or has the wrong direction; a file cannot be opened, or is
/// read and written; another setting has no meaning for a filter. Failure: files may not be as large as rings.
pub fn check(services: &[ServiceConfig], settings: &Settings) -> Outcome {
    if !services.iter().any(|service| uses_descriptors(&service.config)) {
        return Ok(());
    }
    let mut named = Vec::new();
    for ServiceConfig { program, config, .. } in services {
        let unit = |binding: &Binding, purpose: Purpose| {
            let known = program.channels.iter().find(|known| known.name == binding.channel)?;
            if purpose == Purpose::Reading { program.sent(known) } else { program.received(known) }
        };
        let listened = config.listen.iter().map(|binding| (binding, Purpose::Reading));
        let connected = config.connect.iter().map(|binding| (binding, Purpose::Writing));
        for (binding, purpose) in listened.chain(connected) {
            for endpoint in &binding.endpoints {
                if let Endpoint::Descriptor(at) = endpoint {
                    check_direction(at, &binding.channel, unit(binding, purpose), purpose)?;
                    add(&mut named, at, purpose)?;
                }
            }
        }
    }
    check_settings(&named, settings)?;
    named.first().map_or(Ok(()), |named| check_file_limit(named.at))
}

/// Checks that this process may create memory files as large as rings: the limit of file sizes counts for them too.
fn check_file_limit(at: &DescriptorAddr) -> Outcome {
    let needed = StreamConfig::default().segment.arena_bytes;
    match getrlimit(Resource::Fsize).current {
        Some(limit) if limit < needed => Err(Failure::failed(format!(
            "cannot pass `{at}` to the service through shared memory: the limit of a file's size (`ulimit -f`) is \
             {limit} bytes, and rings need {needed}"
        ))),
        _ => Ok(()),
    }
}

/// Adds a descriptor to those before it. Errors: it cannot be opened, or another one is the same.
fn add<'a>(named: &mut Vec<Named<'a>>, at: &'a DescriptorAddr, purpose: Purpose) -> Outcome {
    let mut new = Named { at, purpose, file: None };
    if let Some(other) = named.iter().find(|other| other.is_same(&new)) {
        return Err(Failure::usage(format!(
            "`{}` is named twice; a descriptor can have one channel",
            other.at
        )));
    }
    new.file = find(at, purpose)
        .map_err(|error| Failure::usage(format!("cannot open `{at}` for {}: {error}", purpose.name())))?;
    if let Some(other) = named.iter().find(|other| other.purpose != purpose && other.is_file_of(&new)) {
        let (reads, writes) = if purpose == Purpose::Writing { (other.at, at) } else { (at, other.at) };
        return Err(Failure::usage(format!("`{writes}` is the file that `{reads}` reads")));
    }
    named.push(new);
    Ok(())
}

/// Checks that a channel uses one direction only, that of its descriptor: the other one would be `unit` messages.
fn check_direction(at: &DescriptorAddr, channel: &str, unit: Option<&str>, purpose: Purpose) -> Outcome {
    let refused = match (at, purpose) {
        (DescriptorAddr::Stdin, Purpose::Writing) => {
            Some("`stdin:` is read, so it belongs to `--listen`".to_owned())
        }
        (DescriptorAddr::Stdout, Purpose::Reading) => {
            Some("`stdout:` is written to, so it belongs to `--connect`".to_owned())
        }
        _ => unit.map(|unit| match purpose {
            Purpose::Reading => {
                format!("channel `{channel}` also sends `{unit}`, but `{at}` is only read there")
            }
            Purpose::Writing => {
                format!("channel `{channel}` also receives `{unit}`, but `{at}` is only written to there")
            }
        }),
    };
    refused.map_or(Ok(()), |text| Err(Failure::usage(text)))
}

/// Looks at the file behind a descriptor, which is none if it is created at the start.
///
/// Errors: it is not open, is a directory, or cannot be used in this direction.
fn find(at: &DescriptorAddr, purpose: Purpose) -> Result<Option<Stat>, String> {
    let text = |error: Errno| Error::from(error).to_string();
    let file = match (at, number_of(at)) {
        (DescriptorAddr::Pipe(path), _) => {
            let wanted = if purpose == Purpose::Reading { Access::READ_OK } else { Access::WRITE_OK };
            match open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
                Ok(file) => {
                    accessat(CWD, path, wanted, AtFlags::EACCESS).map_err(text)?;
                    file
                }
                Err(Errno::NOENT) if purpose == Purpose::Writing => {
                    let parent = path.parent().filter(|parent| *parent != Path::new(""));
                    let parent = parent.unwrap_or(Path::new("."));
                    accessat(CWD, parent, Access::WRITE_OK, AtFlags::EACCESS).map_err(text)?;
                    return Ok(None);
                }
                Err(error) => return Err(text(error)),
            }
        }
        (_, number) => {
            let file = sys::inherited_descriptor(number.unwrap_or_default()).map_err(text)?;
            let mode = fcntl_getfl(&file).map_err(text)? & OFlags::RWMODE;
            if mode != OFlags::RDWR && (mode == OFlags::RDONLY) != (purpose == Purpose::Reading) {
                let way = if mode == OFlags::RDONLY { "reading" } else { "writing" };
                return Err(format!("it is open for {way} only"));
            }
            file
        }
    };
    let stat = fstat(file.as_fd()).map_err(text)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => Err("it is a directory".to_owned()),
        FileType::Socket if matches!(at, DescriptorAddr::Pipe(_)) => {
            Err("it is a socket; `unix:PATH` connects to one".to_owned())
        }
        _ => Ok(Some(stat)),
    }
}

/// Checks settings that a process with descriptors cannot have.
fn check_settings(named: &[Named<'_>], settings: &Settings) -> Outcome {
    let has = |number: u32| named.iter().any(|known| number_of(known.at) == Some(number));
    let without = |setting: &str, reason: &str| {
        Err(Failure::usage(format!(
            "{setting} does not go with `stdin:`, `stdout:`, `fd:` and `pipe:`: {reason}"
        )))
    };
    if has(STDERR) {
        let text = "standard error carries the log, so it cannot carry data; name another descriptor, such as `fd:3`";
        return Err(Failure::usage(text));
    }
    if has(STDOUT) && settings.access_log.as_ref().is_some_and(|log| log.file().is_none()) {
        let text = "standard output carries data, so it cannot carry the access log; name a file";
        return Err(Failure::usage(text));
    }
    if settings.user.is_some() {
        return without("`--user`", "they belong to the user who opened them");
    }
    if settings.watch {
        return without("`--watch`", "such a process cannot be reloaded");
    }
    match settings.workers_set {
        Some(workers) if workers > 1 => {
            without(&format!("`--workers {workers}`"), "one worker keeps their bytes in order")
        }
        _ => Ok(()),
    }
}
