//! Whether there is the memory that a service may need, before it starts.
//! Promises: a service that starts never dies for want of memory that its limits and its program let it use; one that
//! does not start is told what takes most and what makes it smaller.
//! Refuses: to guess. Where the machine does not say what it has, nothing is compared.

use std::collections::BTreeMap;
use std::path::Path;

use flick_runtime::PlatformConfig;
use flick_runtime::memory::{Part, parts};

use super::not_started;
use super::services::Named;
use crate::commands::check::amount;
use crate::failure::{Failure, Outcome};
use crate::settings::Settings;

/// Parts that a refusal lists.
const LISTED_MAX: usize = 4;

/// Compares what the services may need with what there is: what the operator allows, each program and all together, or
/// what the machine has.
pub fn check(services: &[(&Named<'_>, &PlatformConfig)], settings: &Settings) -> Outcome {
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
    let (available, whose) = match settings.memory {
        Some(bytes) => (bytes, "`--memory` allows"),
        None => match machine() {
            Some(bytes) => (bytes, "this machine, or the part of it that this process may use, has"),
            None => return Ok(()),
        },
    };
    told(refusal(&who, &all, available, whose))
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
    let total = meminfo_total(&std::fs::read_to_string("/proc/meminfo").ok()?)?;
    Some(group_limit().map_or(total, |limit| limit.min(total)))
}

/// `MemTotal` of `/proc/meminfo`, in bytes.
fn meminfo_total(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
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
    use super::{meminfo_total, refusal};
    use flick_runtime::memory::Part;

    fn part(what: &str, bytes: u64) -> Part {
        Part { what: what.to_owned(), bytes, knob: format!("less of {what}"), of_program: false }
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
        assert_eq!(meminfo_total(text), Some(24_601_234 * 1024));
        assert_eq!(meminfo_total("MemFree: 1 kB\n"), None);
    }
}
