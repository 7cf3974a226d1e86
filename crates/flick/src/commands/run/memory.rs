//! Whether there is the memory that a service may need, before it starts.
//! Promises: a service that starts never dies for want of memory that its limits and its program let it use; one that
//! does not start is told what takes most and what makes it smaller.
//! Refuses: to guess. Where the machine does not say what it has, nothing is compared.

use std::path::Path;

use flick_abi::Program;
use flick_runtime::PlatformConfig;
use flick_runtime::memory::{Part, parts};

use super::not_started;
use crate::commands::check::amount;
use crate::failure::{Failure, Outcome};

/// Parts that a refusal lists.
const LISTED_MAX: usize = 4;

/// Compares what the service may need with what there is: what the operator allows, or what the machine has.
pub fn check(program: &Program, config: &PlatformConfig, allowed: Option<u64>) -> Outcome {
    let parts = parts(program, config).map_err(not_started)?;
    let (available, whose) = match allowed {
        Some(bytes) => (bytes, "`--memory` allows"),
        None => match machine() {
            Some(bytes) => (bytes, "this machine, or the part of it that this process may use, has"),
            None => return Ok(()),
        },
    };
    match refusal(&program.name, &parts, available, whose) {
        Some(text) => Err(Failure::failed(text)),
        None => Ok(()),
    }
}

/// What to tell where the parts do not fit.
fn refusal(process: &str, parts: &[Part], available: u64, whose: &str) -> Option<String> {
    let total = parts.iter().fold(0u64, |sum, part| sum.saturating_add(part.bytes));
    if total <= available {
        return None;
    }
    let mut text = format!(
        "process `{process}` may need {} of memory, but {whose} {}; it does not start, because it could die later",
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
        Part { what: what.to_owned(), bytes, knob: format!("less of {what}") }
    }

    #[test]
    fn what_fits_starts_and_what_does_not_is_told_why() {
        let parts = [part("the dictionary `hits`", 3 << 30), part("network buffers", 1 << 30)];
        assert_eq!(refusal("P", &parts, 4 << 30, "there are"), None);
        let text = refusal("P", &parts, (4 << 30) - 1, "there are").expect("one byte is missing");
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
        let text = refusal("P", &parts, 0, "there are").expect("nothing fits into nothing");
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
