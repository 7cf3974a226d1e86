//! Which services there are, what they are called, and whose channel each address is for.
//! Promises: every address goes to one channel of one service, or the operator is told which there are; a mistake of
//! the settings file is shown at its line.

use flick_abi::Program;
use flick_runtime::Binding;

use super::channels;
use crate::failure::Failure;
use crate::settings::addresses::Connect;
use crate::settings::{Bound, Settings};

/// A service as far as names go.
pub struct Named<'a> {
    /// What operators call it.
    pub name: String,
    /// The program file that it is a process of.
    pub entry: usize,
    /// The process.
    pub program: &'a Program,
}

/// Who says where a channel is bound.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    /// A table of the settings file: a service's, or the file's own.
    File(Option<usize>),
    Flags,
}

/// Names all processes of all programs, given with the number of their entry.
///
/// Errors: two would have the same name.
pub fn named<'a>(settings: &Settings, programs: &[(usize, &'a Program)]) -> Result<Vec<Named<'a>>, Failure> {
    let mut out: Vec<Named<'a>> = Vec::new();
    for (entry, program) in programs {
        let siblings = programs.iter().filter(|(other, _)| other == entry).count();
        let own = &settings.entries[*entry].name;
        if own.as_ref().is_some_and(|name| name.trim().is_empty()) {
            let refused = "a service is called by its `name`, and this one is empty; without it the service is called as its process";
            return Err(settings.at_program(*entry, Failure::usage(refused)));
        }
        let name = match own {
            Some(name) if siblings == 1 => name.clone(),
            Some(name) => format!("{name}.{}", program.name),
            None => program.name.clone(),
        };
        if out.iter().any(|known| known.name == name) {
            let refused = format!(
                "two services are called `{name}`; give one of them another `name = \"...\"` in its [[service]] of a \
                 settings file"
            );
            return Err(settings.at_program(*entry, Failure::usage(refused)));
        }
        out.push(Named { name, entry: *entry, program });
    }
    Ok(out)
}

/// What each service listens on and connects, in their order.
///
/// Errors: a name of a channel that no service has, or several.
pub fn bound(settings: &Settings, services: &[Named<'_>]) -> Result<Vec<Bound>, Failure> {
    let mut out: Vec<Bound> = services.iter().map(|_| Bound::default()).collect();
    let mut known: Vec<Vec<(Source, String)>> = services.iter().map(|_| Vec::new()).collect();
    // The service and the channel that are meant, unless the command line, which comes first, has said so already.
    let mut place = |source: Source, wanted: &str| -> Result<Option<(usize, String)>, Failure> {
        let (service, channel) = find(settings, services, source, wanted)?;
        let known = &mut known[service];
        if source != Source::Flags && known.iter().any(|(of, name)| *of == Source::Flags && *name == channel)
        {
            return Ok(None);
        }
        known.push((source, channel.clone()));
        Ok(Some((service, channel)))
    };
    let mut add_all = |source: Source, listen: &[Binding], connect: &[Connect]| -> Result<(), Failure> {
        for binding in listen {
            if let Some((service, channel)) = place(source, &binding.channel)? {
                let endpoints = binding.endpoints.clone();
                out[service].listen.push(Binding::new(channel, endpoints));
            }
        }
        for connect in connect {
            if let Some((service, channel)) = place(source, &connect.channel)? {
                out[service].connect.push(Connect { channel, ..connect.clone() });
            }
        }
        Ok(())
    };
    add_all(Source::Flags, &settings.of_flags.listen, &settings.of_flags.connect)?;
    add_all(Source::File(None), &settings.of_file.listen, &settings.of_file.connect)?;
    for (entry, own) in settings.entries.iter().enumerate() {
        add_all(Source::File(Some(entry)), &own.listen, &own.connect)?;
    }
    Ok(out)
}

/// The service and its channel that `CHANNEL` or `SERVICE.CHANNEL` names.
fn find(
    settings: &Settings,
    services: &[Named<'_>],
    source: Source,
    wanted: &str,
) -> Result<(usize, String), Failure> {
    let (scope, channel) =
        wanted.rsplit_once('.').map_or((None, wanted), |(scope, name)| (Some(scope), name));
    let is_meant = |service: &Named<'_>| {
        let of_entry = match source {
            Source::File(Some(entry)) => service.entry == entry,
            _ => true,
        };
        let entry_name = settings.entries[service.entry].name.as_deref();
        let in_scope = scope.is_none_or(|scope| {
            scope == service.name || scope == service.program.name || Some(scope) == entry_name
        });
        of_entry && in_scope && service.program.channels.iter().any(|known| known.name == channel)
    };
    let found: Vec<usize> = (0..services.len()).filter(|index| is_meant(&services[*index])).collect();
    if let [only] = found.as_slice() {
        return Ok((*only, channel.to_owned()));
    }
    let (title, help) = if found.is_empty() {
        unknown(services, wanted)
    } else {
        let each: Vec<String> =
            found.iter().map(|index| format!("`{}.{channel}`", services[*index].name)).collect();
        (
            format!("{} services have a channel `{channel}`", found.len()),
            format!("say which is meant: {}", each.join(" or ")),
        )
    };
    Err(match (source, &settings.file) {
        (Source::File(table), Some(file)) => file.at_channel(table, wanted, &title, &help),
        _ => Failure::usage(format!("{title}; {help}")),
    })
}

/// What to say of a channel that nobody has.
fn unknown(services: &[Named<'_>], wanted: &str) -> (String, String) {
    if let [only] = services {
        return (
            format!("the process has no channel `{wanted}`"),
            format!("its channels are: {}", channels(only.program)),
        );
    }
    let each: Vec<String> = services
        .iter()
        .map(|service| format!("of `{}`: {}", service.name, channels(service.program)))
        .collect();
    (format!("no service has a channel `{wanted}`"), format!("the channels are, {}", each.join("; ")))
}
