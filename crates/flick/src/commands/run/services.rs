//! The names of services, and the binding of addresses to their channels.
//! Promises: every address belongs to one channel of one service, or the error lists the candidates; an error in the
//! settings file is reported at its line.

use flick_abi::Program;
use flick_runtime::Binding;

use super::channels;
use crate::failure::Failure;
use crate::settings::addresses::Connect;
use crate::settings::{ChannelBindings, Settings};

/// A service by name.
pub struct NamedService<'a> {
    /// Its name.
    pub name: String,
    /// Index of its program.
    pub entry: usize,
    /// The process.
    pub program: &'a Program,
}

/// Origin of a binding.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BindingOrigin {
    /// The settings file: in the service of this index, or in the file's own tables.
    File(Option<usize>),
    Flags,
}

/// Names the processes of all programs, which are given with the index of their program.
///
/// Errors: two services have the same name; a name is empty, or has a character that paths, metrics and `--service`
/// would have to quote.
pub fn named<'a>(
    settings: &Settings,
    programs: &[(usize, &'a Program)],
) -> Result<Vec<NamedService<'a>>, Failure> {
    let mut out: Vec<NamedService<'a>> = Vec::new();
    for (entry, program) in programs {
        let siblings = programs.iter().filter(|(other, _)| other == entry).count();
        let own = &settings.programs[*entry].name;
        if own.as_ref().is_some_and(|name| name.trim().is_empty()) {
            let refused = "the `name` of a service is empty; remove it to use the name of its process";
            return Err(settings.at_program(*entry, Failure::usage(refused)));
        }
        let is_plain =
            |name: &String| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte));
        if let Some(name) = own.as_ref().filter(|name| !is_plain(name)) {
            let refused = format!(
                "the `name` of a service is `{}`; it may have ASCII letters, digits, `_`, `.` and `-`",
                name.escape_debug()
            );
            return Err(settings.at_program(*entry, Failure::usage(refused)));
        }
        let name = match own {
            Some(name) if siblings == 1 => name.clone(),
            Some(name) => format!("{name}.{}", program.name),
            None => program.name.clone(),
        };
        if let Some(known) = out.iter().find(|known| known.name == name) {
            let files = settings.files_of([known.entry, *entry]);
            let files = files.map(|[one, other]| format!(", in {one} and {other}")).unwrap_or_default();
            let refused = format!(
                "two services are called `{name}`{files}; set another `name = \"...\"` in the [[service]] of one of \
                 them"
            );
            return Err(settings.at_program(*entry, Failure::usage(refused)));
        }
        out.push(NamedService { name, entry: *entry, program });
    }
    Ok(out)
}

/// The bindings of each service, in their order.
///
/// Errors: no service has a channel of that name, or several have.
pub fn bound(settings: &Settings, services: &[NamedService<'_>]) -> Result<Vec<ChannelBindings>, Failure> {
    let mut out: Vec<ChannelBindings> = services.iter().map(|_| ChannelBindings::default()).collect();
    let mut known: Vec<Vec<(BindingOrigin, String)>> = services.iter().map(|_| Vec::new()).collect();
    // The service and the channel, unless the command line, which has precedence, has bound the channel already.
    let mut resolve = |origin: BindingOrigin, wanted: &str| -> Result<Option<(usize, String)>, Failure> {
        let (service, channel) = find(settings, services, origin, wanted)?;
        let known = &mut known[service];
        if origin != BindingOrigin::Flags
            && known.iter().any(|(of, name)| *of == BindingOrigin::Flags && *name == channel)
        {
            return Ok(None);
        }
        known.push((origin, channel.clone()));
        Ok(Some((service, channel)))
    };
    let mut add_all =
        |origin: BindingOrigin, listen: &[Binding], connect: &[Connect]| -> Result<(), Failure> {
            for binding in listen {
                if let Some((service, channel)) = resolve(origin, &binding.channel)? {
                    let endpoints = binding.endpoints.clone();
                    out[service].listen.push(Binding::new(channel, endpoints));
                }
            }
            for connect in connect {
                if let Some((service, channel)) = resolve(origin, &connect.channel)? {
                    out[service].connect.push(Connect { channel, ..connect.clone() });
                }
            }
            Ok(())
        };
    add_all(BindingOrigin::Flags, &settings.of_flags.listen, &settings.of_flags.connect)?;
    add_all(BindingOrigin::File(None), &settings.of_file.listen, &settings.of_file.connect)?;
    for (entry, own) in settings.programs.iter().enumerate() {
        add_all(BindingOrigin::File(Some(entry)), &own.listen, &own.connect)?;
    }
    Ok(out)
}

/// Finds the service and the channel that `CHANNEL` or `SERVICE.CHANNEL` names.
fn find(
    settings: &Settings,
    services: &[NamedService<'_>],
    origin: BindingOrigin,
    wanted: &str,
) -> Result<(usize, String), Failure> {
    let (scope, channel) =
        wanted.rsplit_once('.').map_or((None, wanted), |(scope, name)| (Some(scope), name));
    let is_meant = |service: &NamedService<'_>| {
        let is_of_program = match origin {
            BindingOrigin::File(Some(entry)) => service.entry == entry,
            _ => true,
        };
        let entry_name = settings.programs[service.entry].name.as_deref();
        let in_scope = scope.is_none_or(|scope| {
            scope == service.name || scope == service.program.name || Some(scope) == entry_name
        });
        is_of_program && in_scope && service.program.channels.iter().any(|known| known.name == channel)
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
            format!("write {}", each.join(" or ")),
        )
    };
    Err(match (origin, &settings.file) {
        (BindingOrigin::File(table), Some(file)) => file.at_channel(table, wanted, &title, &help),
        _ => Failure::usage(format!("{title}; {help}")),
    })
}

/// Title and help of the error for a channel that no service has.
fn unknown(services: &[NamedService<'_>], wanted: &str) -> (String, String) {
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
