//! Statistics of this process from `/proc/self` and its clock of CPU time.

use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

use crate::state::Process;

/// Page size of `statm`.
const PAGE_BYTES: u64 = 4096;

/// Reads the statistics; a value that cannot be read is 0.
pub fn read(uptime_ms: u64) -> Process {
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    Process {
        id: std::process::id(),
        uptime_ms,
        now_ms,
        resident_bytes: resident_bytes(&read_text("/proc/self/statm")),
        cpu_ms: cpu_ms(),
        // Without the descriptor of the directory itself.
        open_files: std::fs::read_dir("/proc/self/fd")
            .map_or(0, |entries| (entries.count() as u64).saturating_sub(1)),
    }
}

fn read_text(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

fn resident_bytes(statm: &str) -> u64 {
    number(statm.split_whitespace().nth(1)) * PAGE_BYTES
}

/// User and system time of all threads, those that have ended included. `/proc/self/stat` has it in steps of 10 ms.
fn cpu_ms() -> u64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    let (seconds, nanos) = (used.tv_sec.unsigned_abs(), used.tv_nsec.unsigned_abs());
    seconds * 1000 + nanos / 1_000_000
}

fn number(word: Option<&str>) -> u64 {
    word.and_then(|word| word.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_the_second_number() {
        assert_eq!(resident_bytes("900 25 3 1 0 9 0"), 25 * 4096);
        assert_eq!(resident_bytes(""), 0);
    }

    #[test]
    fn cpu_time_has_a_resolution_of_a_millisecond() {
        let first = cpu_ms();
        let next = std::iter::repeat_with(cpu_ms).find(|now| *now > first).expect("this loop uses CPU time");
        assert!(next - first < 10, "{first} {next}");
    }

    #[test]
    fn reads_this_process() {
        let process = read(7);
        assert_eq!((process.id, process.uptime_ms), (std::process::id(), 7));
        assert!(process.resident_bytes > 0 && process.open_files > 0 && process.now_ms > 0, "{process:?}");
    }
}
