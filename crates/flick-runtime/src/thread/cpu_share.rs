//! The processor time of one of the services that share a thread: quanta by its weight, and no more than its share.
//! Promises: over any time it uses at most its share, plus [`CPU_WINDOW_NS`] of that share saved up, plus one quantum;
//! a quantum that was too long is subtracted from those that follow.
//! Refuses: reading clocks. The caller passes the time and the time that was used.
//! Source: deficit round robin (Shreedhar and Varghese, 1995); a token bucket for the maximum.

use crate::limits::{
    CPU_WEIGHT, CPU_WINDOW_NS, EVENTS_LONE_MAX, EVENTS_SHARED_MAX, EVENTS_SHARED_MIN, LONE_LONG_NS,
    LONE_QUANTUM_NS, QUANTUM_NS, QUANTUM_NS_MAX, SENT_BYTES_LONE_MAX, SENT_BYTES_SHARED_MAX,
};
use crate::worker::Quantum;

/// Processor time that a service may use, and has used.
pub struct CpuShare {
    /// The round in which it last got time.
    paid_in: u64,
    /// Events that it may take in one quantum: fewer where they make its quanta too long.
    events_max: usize,
    /// Events that it may take in one quantum while no other service has work.
    lone_events_max: usize,
    /// Length of one quantum.
    quantum_ns: i64,
    /// Time that it may use now; below zero it has used more than its quanta.
    credit_ns: i64,
    max_percent: i64,
    /// Time that it may use in this window.
    allowed_ns: i64,
    refilled_ns: u64,
}

impl CpuShare {
    /// For a weight among others ([`CPU_WEIGHT`] is usual), and a part of the thread in percent.
    pub fn new(weight: u32, max_percent: u32) -> Self {
        let quantum_ns =
            (QUANTUM_NS * u64::from(weight) / u64::from(CPU_WEIGHT)).clamp(1_000, QUANTUM_NS_MAX);
        Self {
            paid_in: 0,
            events_max: EVENTS_SHARED_MIN,
            lone_events_max: EVENTS_SHARED_MAX,
            quantum_ns: quantum_ns as i64,
            credit_ns: 0,
            max_percent: i64::from(max_percent),
            allowed_ns: CPU_WINDOW_NS as i64,
            refilled_ns: 0,
        }
    }

    /// Returns the time at which a service that has used up its share of the thread may run again; `None`: now.
    pub fn held_until_ns(&mut self, now_ns: u64) -> Option<u64> {
        if self.max_percent >= 100 {
            return None;
        }
        let passed = now_ns.saturating_sub(std::mem::replace(&mut self.refilled_ns, now_ns));
        let passed = passed.min(100 * CPU_WINDOW_NS) as i64;
        let full = CPU_WINDOW_NS as i64 * self.max_percent / 100;
        self.allowed_ns = (self.allowed_ns + passed * self.max_percent / 100).min(full);
        (self.allowed_ns <= 0).then(|| now_ns + ((-self.allowed_ns + 1) * 100 / self.max_percent) as u64 + 1)
    }

    /// Adds the time of a quantum, once in each round. Returns the time that it has now; `None`: it has none.
    pub fn pay(&mut self, round: u64) -> Option<i64> {
        if std::mem::replace(&mut self.paid_in, round) != round {
            self.credit_ns = (self.credit_ns + self.quantum_ns).min(self.quantum_ns);
        }
        (self.credit_ns > 0).then_some(self.credit_ns)
    }

    /// Its next quantum.
    pub fn quantum(&self) -> Quantum {
        let length_ns = self.credit_ns.max(0) as u64;
        Quantum { length_ns, events_max: self.events_max, sent_bytes_max: SENT_BYTES_SHARED_MAX }
    }

    /// Its next quantum while no other service has work; `None` if its share is bounded: then it gets no longer ones.
    pub fn lone_quantum(&self) -> Option<Quantum> {
        let (length_ns, events_max) = (LONE_QUANTUM_NS, self.lone_events_max);
        let quantum = Quantum { length_ns, events_max, sent_bytes_max: SENT_BYTES_LONE_MAX };
        (self.max_percent >= 100).then_some(quantum)
    }

    /// Subtracts the processor time that a quantum used.
    pub fn spend(&mut self, used_ns: u64) {
        let is_long = used_ns as i64 > self.quantum_ns;
        self.allowed_ns -= used_ns as i64;
        self.credit_ns -= used_ns as i64;
        self.events_max = next_events_max(self.events_max, is_long, EVENTS_SHARED_MAX);
    }

    /// Notes the time that a quantum used while no other service had work. Time that no other one wanted is no debt,
    /// but one may want some before such a quantum is over.
    pub fn spend_lone(&mut self, used_ns: u64) {
        self.lone_events_max = next_events_max(self.lone_events_max, used_ns > LONE_LONG_NS, EVENTS_LONE_MAX);
    }
}

/// Events of the next quantum. The kernel's work for the events of a quantum is not in the time that the worker looks
/// at, so a service whose quanta are too long gets fewer.
fn next_events_max(events_max: usize, is_long: bool, most: usize) -> usize {
    if is_long { (events_max / 2).max(EVENTS_SHARED_MIN) } else { (events_max + 1).min(most) }
}

#[cfg(test)]
mod tests;
