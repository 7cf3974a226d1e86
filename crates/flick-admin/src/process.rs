//! Statistics of this process from `/proc/self`.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::state::Process;

/// Clock ticks per second in `/proc/self/stat`: always 100 on Linux.
const TICKS_PER_S: u64 = 100;
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
        cpu_ms: cpu_ms(&read_text("/proc/self/stat")),
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

/// Parses user and system time: the 12th and 13th field after the name, which is in parentheses and may contain any.
fn cpu_ms(stat: &str) -> u64 {
    let words = stat.rsplit_once(") ").map_or("", |(_, words)| words);
    let mut times = words.split_whitespace().skip(11).take(2).map(|word| number(Some(word)));
    (times.next().unwrap_or(0) + times.next().unwrap_or(0)) * 1000 / TICKS_PER_S
}

fn number(word: Option<&str>) -> u64 {
    word.and_then(|word| word.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_stat_with_parentheses_in_the_name() {
        let stat = "42 (a) S 1 (x) ) S 1 42 42 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 3 0";
        assert_eq!(cpu_ms(stat), 3000);
        assert_eq!(cpu_ms("nothing"), 0);
        assert_eq!(resident_bytes("900 25 3 1 0 9 0"), 25 * 4096);
        assert_eq!(resident_bytes(""), 0);
    }

    #[test]
    fn reads_this_process() {
        let process = read(7);
        assert_eq!((process.id, process.uptime_ms), (std::process::id(), 7));
        assert!(process.resident_bytes > 0 && process.open_files > 0 && process.now_ms > 0, "{process:?}");
    }
}
