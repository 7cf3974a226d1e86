//! One log line a second for all workers of the process while it has no free file descriptor.
//! Promises: a line costs two atomic operations; those that are left out are counted in the next one.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::limits::BACKEND_LOG_MS;

/// Throttle of the lines about file descriptors, which all workers of the process share as they share the limit.
pub(crate) static DESCRIPTOR_LOG: DescriptorLog = DescriptorLog::new();

/// Throttle of log lines.
#[derive(Debug)]
pub(crate) struct DescriptorLog {
    next_ns: AtomicU64,
    left_out: AtomicU64,
}

impl DescriptorLog {
    const fn new() -> Self {
        Self { next_ns: AtomicU64::new(0), left_out: AtomicU64::new(0) }
    }

    /// Lines that were left out since the last one; `None`: one more is to be left out.
    pub(crate) fn admit(&self, now_ns: u64) -> Option<u64> {
        let next_ns = self.next_ns.load(Ordering::Relaxed);
        let later_ns = now_ns + BACKEND_LOG_MS * 1_000_000;
        let is_due = now_ns >= next_ns
            && self.next_ns.compare_exchange(next_ns, later_ns, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if is_due {
            return Some(self.left_out.swap(0, Ordering::Relaxed));
        }
        self.left_out.fetch_add(1, Ordering::Relaxed);
        None
    }
}

/// Whether an error number says that no file descriptor is free, in the process or the system.
pub(crate) fn is_exhaustion(errno: Option<i32>) -> bool {
    let exhausted = [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE];
    exhausted.iter().any(|known| errno == Some(known.raw_os_error()))
}

#[cfg(test)]
mod tests {
    use super::DescriptorLog;

    #[test]
    fn process_without_descriptors_logs_one_line_a_second() {
        const MS: u64 = 1_000_000;
        let log = DescriptorLog::new();
        let lines: Vec<u64> = (0..3_000).filter_map(|at| log.admit(1 + at * MS)).collect();
        assert_eq!(lines, [0, 999, 999]);
    }
}
