//! Checks before the start that the memory and address space suffice for everything that the services may need.
//! Promises: a service that starts never runs out of memory within its limits; the error of one that does not start
//! names the largest parts and the settings that reduce them.
//! Refuses: to guess. Nothing is checked if the machine does not report its memory.

use std::collections::BTreeMap;
use std::path::Path;

use flick_runtime::PlatformConfig;
use flick_runtime::memory::{MemoryPart, parts};
use rustix::process::{Resource, getrlimit};

use super::services::NamedService;
use super::start_failure;
use crate::commands::check::size_text;
use crate::failure::{Failure, Outcome};
use crate::settings::Settings;

/// Number of parts that the error lists.
const LISTED_MAX: usize = 4;

/// Address space of a thread beside the tables of its services: its stack and its share of an arena. Rounded up.
const THREAD_ADDRESSES: u64 = 32 << 20;
/// Address space of the process for the compiler, the admin endpoint and the logs. Rounded up.
const PROCESS_ADDRESSES: u64 = 192 << 20;

/// Compares the memory that the services may need with the `max_memory` of each program and of all together, or with
/// the memory of the machine; and their address space with what the process may still map. Dictionaries in `existing`
/// are mapped already. Returns the dictionaries of these services.
pub fn check(
    services: &[(&NamedService<'_>, &PlatformConfig)],
    settings: &Settings,
    existing: &[MemoryPart],
) -> Result<Vec<MemoryPart>, Failure> {
    let mut all = Vec::new();
    let mut entries: BTreeMap<usize, Vec<MemoryPart>> = BTreeMap::new();
    for (index, (service, config)) in services.iter().enumerate() {
        let own = parts(service.program, config).map_err(start_failure);
        let mut own = own.map_err(|failure| settings.at_program(service.entry, failure))?;
        let shares = services[..index].iter().any(|(other, _)| other.entry == service.entry);
        if shares {
            // All processes of a program share its dictionaries.
            own.retain(|part| !part.of_program);
        }
        if services.len() > 1 {
            own.iter_mut().for_each(|part| part.what = format!("`{}`: {}", service.name, part.what));
        }
        entries.entry(service.entry).or_default().extend(own.iter().cloned());
        all.extend(own);
    }
    all.sort_by_key(|part| std::cmp::Reverse(part.bytes));
    let who = match services {
        [(only, _)] => format!("process `{}`", only.program.name),
        _ => format!("the {} services together", services.len()),
    };
    for (entry, mut own) in entries {
        let Some(allowed) = settings.programs[entry].max_memory else { continue };
        own.sort_by_key(|part| std::cmp::Reverse(part.bytes));
        let who = format!("the program {}", settings.programs[entry].program.display());
        check_sum(&who, &own, allowed, "its `max_memory` allows")?;
    }
    let available = match settings.max_memory {
        Some(bytes) => Some((bytes, "`--max-memory` allows")),
        None => machine_memory().map(|bytes| (bytes, "this machine, or the cgroup of this process, has")),
    };
    if let Some((available, whose)) = available {
        check_sum(&who, &all, available, whose)?;
    }
    if let Some(left) = address_space_left() {
        let whose =
            "the address space limit of this process (`ulimit -v`, `LimitAS=` of a systemd unit) leaves";
        check_sum(&who, &by_address_space(&all, existing, settings.workers as u64), left, whose)?;
    }
    all.retain(|part| part.of_program);
    Ok(all)
}

/// The parts by address space, with a part for the threads and the process.
fn by_address_space(parts: &[MemoryPart], existing: &[MemoryPart], threads: u64) -> Vec<MemoryPart> {
    let bytes = threads * THREAD_ADDRESSES + PROCESS_ADDRESSES;
    let process = MemoryPart {
        what: format!("{threads} threads and the process"),
        bytes,
        addresses: bytes,
        remedy: "lower `--workers`".to_owned(),
        of_program: false,
    };
    let new = parts.iter().filter(|part| !part.of_program || !existing.contains(part)).cloned();
    let mut all: Vec<MemoryPart> = new.chain([process]).collect();
    all.iter_mut().for_each(|part| part.bytes = part.addresses);
    all.sort_by_key(|part| std::cmp::Reverse(part.bytes));
    all
}

/// Address space that this process may still map, if it is limited.
fn address_space_left() -> Option<u64> {
    let limit = getrlimit(Resource::As).current?;
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    Some(limit.saturating_sub(kilobytes(&status, "VmSize:")?))
}

fn check_sum(who: &str, parts: &[MemoryPart], available: u64, whose: &str) -> Outcome {
    excess(who, parts, available, whose).map_or(Ok(()), |text| Err(Failure::failed(text)))
}

/// The error if the parts do not fit.
fn excess(who: &str, parts: &[MemoryPart], available: u64, whose: &str) -> Option<String> {
    let total = parts.iter().fold(0u64, |sum, part| sum.saturating_add(part.bytes));
    if total <= available {
        return None;
    }
    let mut text = format!(
        "{who} may need {} of memory, but {whose} {}, so flick does not start",
        size_text(total),
        size_text(available)
    );
    for part in parts.iter().take(LISTED_MAX) {
        text.push_str(&format!("\n  {:>10}  {}: {}", size_text(part.bytes), part.what, part.remedy));
    }
    if parts.len() > LISTED_MAX {
        let rest = parts[LISTED_MAX..].iter().fold(0u64, |sum, part| sum.saturating_add(part.bytes));
        text.push_str(&format!("\n  {:>10}  everything else", size_text(rest)));
    }
    Some(text)
}

/// Memory of the machine or of the process's cgroup, in bytes.
fn machine_memory() -> Option<u64> {
    let total = kilobytes(&std::fs::read_to_string("/proc/meminfo").ok()?, "MemTotal:")?;
    Some(cgroup_limit().map_or(total, |limit| limit.min(total)))
}

/// Parses a line of `/proc/meminfo` or `/proc/self/status`, in bytes.
fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The smallest limit of the cgroups around this process, in bytes. Source: the kernel's cgroup-v2 document.
fn cgroup_limit() -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let path = Path::new("/sys/fs/cgroup").join(own.trim_start_matches('/'));
    let limits = path.ancestors().take_while(|path| path.starts_with("/sys/fs/cgroup"));
    limits.filter_map(|path| std::fs::read_to_string(path.join("memory.max")).ok()?.trim().parse().ok()).min()
}

#[cfg(test)]
mod tests {
    use super::{by_address_space, excess, kilobytes};
    use flick_runtime::memory::MemoryPart;

    fn part(what: &str, bytes: u64) -> MemoryPart {
        let remedy = format!("less of {what}");
        MemoryPart { what: what.to_owned(), bytes, addresses: bytes, remedy, of_program: false }
    }

    #[test]
    fn existing_dictionary_needs_no_more_address_space() {
        let dict = MemoryPart { of_program: true, ..part("the dictionary `hits`", 3 << 30) };
        let tables = MemoryPart { addresses: 4 << 30, ..part("tables", 1 << 30) };
        let total = |existing: &[MemoryPart]| -> u64 {
            let all = by_address_space(&[dict.clone(), tables.clone()], existing, 2);
            all.iter().map(|part| part.bytes).sum()
        };
        let process = 2 * super::THREAD_ADDRESSES + super::PROCESS_ADDRESSES;
        assert_eq!(total(&[]), (7 << 30) + process);
        assert_eq!(total(std::slice::from_ref(&dict)), (4 << 30) + process);
        assert_eq!(total(&[MemoryPart { bytes: 1, ..dict.clone() }]), (7 << 30) + process);
    }

    #[test]
    fn excess_names_the_largest_parts() {
        let parts = [part("the dictionary `hits`", 3 << 30), part("network buffers", 1 << 30)];
        assert_eq!(excess("process `P`", &parts, 4 << 30, "there are"), None);
        let text = excess("process `P`", &parts, (4 << 30) - 1, "there are").expect("one byte is missing");
        for expected in
            ["may need 4 GiB", "3 GiB  the dictionary `hits`: less of the dictionary", "network buffers"]
        {
            assert!(text.contains(expected), "`{expected}` is not in\n{text}");
        }
    }

    #[test]
    fn excess_sums_up_the_smallest_parts() {
        let parts: Vec<MemoryPart> =
            (0..6).map(|index| part(&format!("part {index}"), 600 - 100 * index)).collect();
        let text = excess("process `P`", &parts, 0, "there are").expect("nothing fits into nothing");
        assert!(text.contains("part 3") && !text.contains("part 4"), "{text}");
        assert!(text.contains("300 B  everything else"), "{text}");
    }

    #[test]
    fn kilobytes_of_meminfo() {
        let text = "MemTotal:       24601234 kB\nMemFree:        1 kB\n";
        assert_eq!(kilobytes(text, "MemTotal:"), Some(24_601_234 * 1024));
        assert_eq!(kilobytes("MemFree: 1 kB\n", "MemTotal:"), None);
    }
}
