//! Whether there is the memory that a service may need, before it starts, and the addresses for it where those are limited.
//! Promises: a service that starts never dies for want of memory that its limits and its program let it use; one that
//! does not start is told what takes most and what makes it smaller.
//! Refuses: to guess. Where the machine does not say what it has, nothing is compared.

use std::collections::BTreeMap;
use std::path::Path;

use flick_runtime::PlatformConfig;
use flick_runtime::memory::{Part, parts};
use rustix::process::{Resource, getrlimit};

use super::not_started;
use super::services::Named;
use crate::commands::check::amount;
use crate::failure::{Failure, Outcome};
use crate::settings::Settings;

/// Parts that a refusal lists.
const LISTED_MAX: usize = 4;

/// Addresses that a thread takes beside the tables of its services, for its stack and for what the allocator sets apart; generous.
const THREAD_ADDRESSES: u64 = 32 << 20;
/// Addresses that the process takes to compile, to answer and to write logs; generous.
const PROCESS_ADDRESSES: u64 = 192 << 20;

/// Compares what the services may need with what there is: what the operator allows, each program and all together, or
/// what the machine has; and with the addresses that the process may still have. Dictionaries that are `there` have theirs.
/// Gives those that will be there.
pub fn check(
    services: &[(&Named<'_>, &PlatformConfig)],
    settings: &Settings,
    there: &[Part],
) -> Result<Vec<Part>, Failure> {
    let mut all = Vec::new();
    let mut entries: BTreeMap<usize, Vec<Part>> = BTreeMap::new();
    for (index, (service, config)) in services.iter().enumerate() {
        let own = parts(service.program, config).map_err(not_started);
        let mut own = own.map_err(|failure| settings.at_program(service.entry, failure))?;
        let shares = services[..index].iter().any(|(other, _)| other.entry == service.entry);
        if shares {
            // The dictionaries of a program are there once, however many processes it has.
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
        let Some(allowed) = settings.entries[entry].memory else { continue };
        own.sort_by_key(|part| std::cmp::Reverse(part.bytes));
        let who = format!("the program {}", settings.entries[entry].program.display());
        told(refusal(&who, &own, allowed, "its `memory` allows"))?;
    }
    let available = match settings.memory {
        Some(bytes) => Some((bytes, "`--memory` allows")),
        None => {
            machine().map(|bytes| (bytes, "this machine, or the part of it that this process may use, has"))
        }
    };
    if let Some((available, whose)) = available {
        told(refusal(&who, &all, available, whose))?;
    }
    if let Some(left) = addresses_left() {
        let whose = "the limit on the addresses of this process (`ulimit -v`, `LimitAS=` in a unit of systemd) leaves";
        told(refusal(&who, &addressed(&all, there, settings.workers as u64), left, whose))?;
    }
    all.retain(|part| part.of_program);
    Ok(all)
}

/// The parts by the addresses that they take, and what threads and the process take beside them.
fn addressed(parts: &[Part], there: &[Part], threads: u64) -> Vec<Part> {
    let bytes = threads * THREAD_ADDRESSES + PROCESS_ADDRESSES;
    let beside = Part {
        what: format!("{threads} threads, and the process itself"),
        bytes,
        addresses: bytes,
        knob: "lower `--workers`".to_owned(),
        of_program: false,
    };
    let new = parts.iter().filter(|part| !part.of_program || !there.contains(part)).cloned();
    let mut all: Vec<Part> = new.chain([beside]).collect();
    all.iter_mut().for_each(|part| part.bytes = part.addresses);
    all.sort_by_key(|part| std::cmp::Reverse(part.bytes));
    all
}

/// What is left of the addresses that this process may have, if they are limited.
fn addresses_left() -> Option<u64> {
    let limit = getrlimit(Resource::As).current?;
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    Some(limit.saturating_sub(kilobytes(&status, "VmSize:")?))
}

fn told(refusal: Option<String>) -> Outcome {
    refusal.map_or(Ok(()), |text| Err(Failure::failed(text)))
}

/// What to tell where the parts do not fit.
fn refusal(who: &str, parts: &[Part], available: u64, whose: &str) -> Option<String> {
    let total = parts.iter().fold(0u64, |sum, part| sum.saturating_add(part.bytes));
    if total <= available {
        return None;
    }
    let mut text = format!(
        "{who} may need {} of memory, but {whose} {}; it does not start, because it could die later",
        amount(total),
        amount(available)
    );
    for part in parts.iter().take(LISTED_MAX) {
        text.push_str(&format!("\n  {:>10}  {}: {}", amount(part.bytes), part.what, part.knob));
    }
    if parts.len() > LISTED_MAX {
        let rest = parts[LISTED_MAX..].iter().fold(0u64, |sum, part| sum.saturating_add(part.bytes));
        text.push_str(&format!("\n  {:>10}  everything else", amount(rest)));
    }
    Some(text)
}

/// Memory of the machine, or of the control group that this process is in, in bytes.
fn machine() -> Option<u64> {
    let total = kilobytes(&std::fs::read_to_string("/proc/meminfo").ok()?, "MemTotal:")?;
    Some(group_limit().map_or(total, |limit| limit.min(total)))
}

/// A line of `/proc/meminfo` or of `/proc/self/status`, in bytes.
fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The least limit of the control groups around this process, in bytes. Source: the kernel's cgroup-v2 document.
fn group_limit() -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let path = Path::new("/sys/fs/cgroup").join(own.trim_start_matches('/'));
    let limits = path.ancestors().take_while(|path| path.starts_with("/sys/fs/cgroup"));
    limits.filter_map(|path| std::fs::read_to_string(path.join("memory.max")).ok()?.trim().parse().ok()).min()
}

#[cfg(test)]
mod tests {
    use super::{addressed, kilobytes, refusal};
    use flick_runtime::memory::Part;

    fn part(what: &str, bytes: u64) -> Part {
        let knob = format!("less of {what}");
        Part { what: what.to_owned(), bytes, addresses: bytes, knob, of_program: false }
    }

    #[test]
    fn a_dictionary_that_is_there_takes_no_addresses_again() {
        let dict = Part { of_program: true, ..part("the dictionary `hits`", 3 << 30) };
        let tables = Part { addresses: 4 << 30, ..part("tables", 1 << 30) };
        let total = |there: &[Part]| -> u64 {
            let all = addressed(&[dict.clone(), tables.clone()], there, 2);
            all.iter().map(|part| part.bytes).sum()
        };
        let beside = 2 * super::THREAD_ADDRESSES + super::PROCESS_ADDRESSES;
        assert_eq!(total(&[]), (7 << 30) + beside);
        assert_eq!(total(std::slice::from_ref(&dict)), (4 << 30) + beside);
        assert_eq!(total(&[Part { bytes: 1, ..dict.clone() }]), (7 << 30) + beside);
    }

    #[test]
    fn what_fits_starts_and_what_does_not_is_told_why() {
        let parts = [part("the dictionary `hits`", 3 << 30), part("network buffers", 1 << 30)];
        assert_eq!(refusal("process `P`", &parts, 4 << 30, "there are"), None);
        let text = refusal("process `P`", &parts, (4 << 30) - 1, "there are").expect("one byte is missing");
        for expected in
            ["may need 4 GiB", "3 GiB  the dictionary `hits`: less of the dictionary", "network buffers"]
        {
            assert!(text.contains(expected), "`{expected}` is not in\n{text}");
        }
    }

    #[test]
    fn the_least_parts_are_summed_up() {
        let parts: Vec<Part> =
            (0..6).map(|index| part(&format!("part {index}"), 600 - 100 * index)).collect();
        let text = refusal("process `P`", &parts, 0, "there are").expect("nothing fits into nothing");
        assert!(text.contains("part 3") && !text.contains("part 4"), "{text}");
        assert!(text.contains("300 B  everything else"), "{text}");
    }

    #[test]
    fn the_kernel_says_how_much_there_is() {
        let text = "MemTotal:       24601234 kB\nMemFree:        1 kB\n";
        assert_eq!(kilobytes(text, "MemTotal:"), Some(24_601_234 * 1024));
        assert_eq!(kilobytes("MemFree: 1 kB\n", "MemTotal:"), None);
    }
}
