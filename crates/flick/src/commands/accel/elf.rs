//! The parts of an ELF file that `flick accel` needs: segments, sections with code, symbols, notes.
//! Promises: a damaged file yields nothing, never a panic.
//! Refuses: other files than 64-bit little-endian ones.

use std::collections::BTreeSet;

/// An ELF file in memory.
#[derive(Debug, Clone, Copy)]
pub struct Elf<'a> {
    bytes: &'a [u8],
}

/// Types of program headers.
pub mod segment {
    /// `PT_LOAD`.
    pub const LOAD: u32 = 1;
    /// `PT_INTERP`.
    pub const INTERPRETER: u32 = 3;
    /// `PT_NOTE`.
    pub const NOTE: u32 = 4;
}

/// A range of the file that is loaded at an address.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    /// The kind: of a segment (see [`segment`]) or section.
    pub kind: u32,
    /// Flags.
    pub flags: u64,
    /// Its address.
    pub address: u64,
    /// Its offset in the file.
    pub offset: u64,
    /// Its bytes in the file.
    pub bytes: u64,
    /// For a section of symbols, the section with their names.
    names_section: u32,
}

const SYMBOL_BYTES: usize = 24;
/// `SHT_DYNSYM`.
const DYNAMIC_SYMBOLS: u32 = 11;
/// `SHF_EXECINSTR`.
const IS_CODE: u64 = 4;

impl<'a> Elf<'a> {
    /// Parses the identification of a file.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        bytes.starts_with(b"\x7fELF\x02\x01").then_some(Self { bytes })
    }

    fn number(&self, at: u64, bytes: usize) -> Option<u64> {
        let at = usize::try_from(at).ok()?;
        let mut word = [0; 8];
        word.get_mut(..bytes)?.copy_from_slice(self.bytes.get(at..at.checked_add(bytes)?)?);
        Some(u64::from_le_bytes(word))
    }

    /// Bytes of the file.
    pub fn range(&self, offset: u64, bytes: u64) -> Option<&'a [u8]> {
        let offset = usize::try_from(offset).ok()?;
        self.bytes.get(offset..offset.checked_add(usize::try_from(bytes).ok()?)?)
    }

    /// Entries of a table whose position, entry size and count are in the header.
    fn table(&self, position: u64, entry: u64, count: u64) -> impl Iterator<Item = u64> + use<> {
        let number = |at, bytes| self.number(at, bytes).unwrap_or_default();
        let (start, entry, count) = (number(position, 8), number(entry, 2), number(count, 2));
        (0..count).map(move |index| start.saturating_add(index * entry))
    }

    /// The segments.
    pub fn segments(&self) -> Vec<Part> {
        let part = |at: u64| {
            Some(Part {
                kind: self.number(at, 4)? as u32,
                flags: self.number(at + 4, 4)?,
                offset: self.number(at + 8, 8)?,
                address: self.number(at + 16, 8)?,
                bytes: self.number(at + 32, 8)?,
                names_section: 0,
            })
        };
        self.table(32, 54, 56).filter_map(part).collect()
    }

    fn sections(&self) -> Vec<Part> {
        let part = |at: u64| {
            Some(Part {
                kind: self.number(at + 4, 4)? as u32,
                flags: self.number(at + 8, 8)?,
                address: self.number(at + 16, 8)?,
                offset: self.number(at + 24, 8)?,
                bytes: self.number(at + 32, 8)?,
                names_section: self.number(at + 40, 4)? as u32,
            })
        };
        self.table(40, 58, 60).filter_map(part).collect()
    }

    /// The sections with code.
    pub fn code(&self) -> Vec<Part> {
        self.sections().into_iter().filter(|section| section.flags & IS_CODE != 0).collect()
    }

    /// Bytes of the segments at an address.
    pub fn at_address(&self, address: u64, bytes: u64) -> Option<&'a [u8]> {
        let segments = self.segments();
        let segment = segments.iter().find(|part| {
            let inside = address.checked_sub(part.address);
            part.kind == segment::LOAD
                && inside.and_then(|inside| inside.checked_add(bytes)).is_some_and(|end| end <= part.bytes)
        })?;
        self.range(segment.offset + (address - segment.address), bytes)
    }

    /// The symbols, and their names.
    fn symbols(&self) -> Option<(impl Iterator<Item = &'a [u8]> + use<'a>, &'a [u8])> {
        let sections = self.sections();
        let symbols = sections.iter().find(|section| section.kind == DYNAMIC_SYMBOLS)?;
        let names = sections.get(symbols.names_section as usize)?;
        let table = self.range(symbols.offset, symbols.bytes)?;
        Some((table.chunks_exact(SYMBOL_BYTES), self.range(names.offset, names.bytes)?))
    }

    /// The address and the bytes of an exported function.
    pub fn function(&self, name: &str) -> Option<(u64, u64)> {
        let (mut symbols, names) = self.symbols()?;
        let symbol = symbols.find(|symbol| {
            let at = u32::from_le_bytes([symbol[0], symbol[1], symbol[2], symbol[3]]) as usize;
            names.get(at..).is_some_and(|rest| rest.split(|byte| *byte == 0).next() == Some(name.as_bytes()))
        })?;
        Some((word(symbol, 8), word(symbol, 16)))
    }

    /// The addresses of all exported symbols.
    pub fn functions(&self) -> BTreeSet<u64> {
        self.symbols().into_iter().flat_map(|(symbols, _)| symbols.map(|symbol| word(symbol, 8))).collect()
    }

    /// The description of a note with this owner and type.
    pub fn note(&self, owner: &[u8], kind: u32) -> Option<&'a [u8]> {
        for part in self.segments().iter().filter(|part| part.kind == segment::NOTE) {
            let (mut at, end) = (part.offset, part.offset.saturating_add(part.bytes));
            while at.saturating_add(12) <= end {
                let [name, description, found] = [0, 4, 8].map(|field| self.number(at + field, 4));
                let (name, description) = (name?, description?);
                let start = at + 12 + name.next_multiple_of(4);
                if self.range(at + 12, name)? == owner && found? == u64::from(kind) {
                    return self.range(start, description);
                }
                at = start + description.next_multiple_of(4);
            }
        }
        None
    }
}

/// A word of a symbol.
fn word(symbol: &[u8], at: usize) -> u64 {
    symbol.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes).unwrap_or_default()
}
