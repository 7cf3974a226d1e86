//! The sleep of pairs: the other side signals a pair that sleeps, and the ready bits of all others are looked at.

use super::PairTable;

impl PairTable {
    /// Announces that all pairs are about to sleep. The caller executes a fence and calls
    /// [`PairTable::confirm_sleep`].
    pub(in crate::shm) fn announce_sleep(&mut self) {
        for _ in 0..self.awake.len() {
            let Some(number) = self.awake.pop() else { return };
            let Some(open) = self.open_pair(number).filter(|open| !open.is_asleep) else { continue };
            open.pair.announce_sleep();
            self.awake.push(number);
        }
    }

    /// Ends an announcement. `may_sleep`: all pairs of which no ready bit is set sleep. Returns whether all do.
    pub(in crate::shm) fn confirm_sleep(&mut self, may_sleep: bool) -> bool {
        let mut is_quiet = may_sleep;
        for _ in 0..self.awake.len() {
            let Some(number) = self.awake.pop() else { break };
            let Some(open) = self.open_pair(number) else { continue };
            open.is_asleep = may_sleep && !open.pair.is_any_ready();
            if !open.is_asleep {
                open.pair.wake();
                is_quiet = false;
                self.awake.push(number);
            }
        }
        is_quiet
    }

    /// Wakes a pair: its ready bits are looked at in every poll.
    pub(in crate::shm) fn wake(&mut self, number: u32) {
        let Some(open) = self.open_pair(number) else { return };
        open.pair.wake();
        (open.is_asleep, open.idle_looks) = (false, 0);
        self.awake.push(number);
    }
}
