//! The segment of this process as bytes that anyone may overwrite, through the process's memory file.

use std::fs::{File, read_to_string};
use std::os::unix::fs::FileExt;

use crate::random::Random;

/// Offset of the number of slots, and of the first page behind the header; see `segment.rs` of flick-shm.
const COUNT_AT: u64 = 24;
const PAGE_BYTES: u64 = 4096;
const SLOT_BYTES: u64 = 512;
/// Slots that are looked at, of each side.
const LOOKED_AT: u64 = 32;

pub struct Segment {
    memory: File,
    start: u64,
    line: String,
}

impl Segment {
    /// Finds the last segment that this process has mapped.
    pub fn of_this_process() -> Segment {
        let line = Self::lines().find(|line| line.contains("memfd:flick-shm")).expect("a segment");
        let (start, _) = line.split_once('-').expect("a range");
        let memory = File::options().read(true).write(true).open("/proc/self/mem").expect("own memory");
        let start = u64::from_str_radix(start, 16).expect("an address");
        Segment { memory, start, line }
    }

    fn lines() -> impl Iterator<Item = String> {
        let maps = read_to_string("/proc/self/maps").expect("procfs");
        maps.lines().map(str::to_owned).collect::<Vec<_>>().into_iter()
    }

    /// Returns whether the segment is still in use.
    pub fn is_mapped(&self) -> bool {
        Self::lines().any(|line| line == self.line)
    }

    fn word(&self, at: u64) -> u64 {
        let mut bytes = [0; 8];
        self.memory.read_exact_at(&mut bytes, self.start + at).expect("it is mapped");
        u64::from_le_bytes(bytes)
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        self.memory.write_all_at(bytes, self.start + at).expect("it is mapped");
    }

    fn slots(&self) -> impl Iterator<Item = u64> {
        // The second side opens connections in the second half.
        let second = self.word(COUNT_AT) / 2;
        (0..LOOKED_AT).chain(second..second + LOOKED_AT)
    }

    /// Returns the offset of a slot: two ready bits for each are before the slots.
    fn slot_at(&self, slot: u64) -> u64 {
        let bitmap_bytes = (2 * self.word(COUNT_AT) / 8).next_multiple_of(PAGE_BYTES);
        PAGE_BYTES + bitmap_bytes + slot * SLOT_BYTES
    }

    /// Returns the indices of both senders of each slot.
    pub fn heads(&self) -> Vec<[u64; 2]> {
        let head = |slot: u64, side: u64| self.word(self.slot_at(slot) + side * SLOT_BYTES / 2);
        self.slots().map(|slot| [head(slot, 0), head(slot, 1)]).collect()
    }

    /// Returns the slot in which something was sent since.
    pub fn slot_with_other_head(&self, before: &[[u64; 2]]) -> u64 {
        let now = self.heads();
        let changed: Vec<u64> = self
            .slots()
            .zip(before.iter().zip(&now))
            .filter(|(_, (a, b))| a != b)
            .map(|(slot, _)| slot)
            .collect();
        assert_eq!(changed.len(), 1, "one connection has sent: {changed:?}");
        changed[0]
    }

    /// Overwrites a word of a slot.
    pub fn overwrite_any_word(&self, slot: u64, random: &mut Random) {
        let at = self.slot_at(slot) + random.below(SLOT_BYTES / 8) * 8;
        let value = random.word_instead_of(self.word(at));
        if random.below(4) == 0 {
            self.write(at + 4 * random.below(2), &(value as u32).to_le_bytes());
        } else {
            self.write(at, &value.to_le_bytes());
        }
    }
}
