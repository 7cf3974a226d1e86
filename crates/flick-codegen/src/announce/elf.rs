//! An object file without content: where functions lie and what they are called, for gdb.
//! Promises: one section at the functions' own addresses, one symbol for each.
//! Refuses: lines, types and frames of the stack; gdb finds frames by the code's prologues.
//! Source: the ELF-64 object file format; gdb takes sections' addresses for absolute.

use super::FunctionSymbol;

const HEADER_BYTES: usize = 64;
const SECTION_BYTES: usize = 64;
const SYMBOL_BYTES: usize = 24;
/// Names of the sections, and where each stands.
const SECTION_NAMES: &[u8] = b"\0.text\0.symtab\0.strtab\0";
const TEXT_NAME: u32 = 1;
const SYMTAB_NAME: u32 = 7;
const STRTAB_NAME: u32 = 15;
/// Sections: none, code, symbols, names.
const SECTIONS: u16 = 4;

#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = 62;
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = 183;

/// The object file of these functions.
pub(super) fn image(symbols: &[FunctionSymbol]) -> Vec<u8> {
    let start = symbols.iter().map(|symbol| symbol.address).min().unwrap_or(0);
    let end = symbols.iter().map(|symbol| symbol.address + symbol.size_bytes).max().unwrap_or(start);
    let mut names = SECTION_NAMES.to_vec();
    let mut table = vec![0; SYMBOL_BYTES];
    for symbol in symbols {
        table.extend((names.len() as u32).to_le_bytes());
        // A function, seen everywhere, of section 1.
        table.extend([0x12, 0]);
        table.extend(1u16.to_le_bytes());
        table.extend(((symbol.address - start) as u64).to_le_bytes());
        table.extend((symbol.size_bytes as u64).to_le_bytes());
        names.extend(symbol.name.bytes().filter(|byte| *byte != 0));
        names.push(0);
    }
    let sections_at = HEADER_BYTES;
    let table_at = sections_at + usize::from(SECTIONS) * SECTION_BYTES;
    let names_at = table_at + table.len();
    let mut out = header(sections_at);
    out.extend([0; SECTION_BYTES]);
    // No content (8), in memory (2) and executable (4).
    section(&mut out, (TEXT_NAME, 8, 6), [start, HEADER_BYTES, end - start], [0, 0, 16, 0]);
    section(&mut out, (SYMTAB_NAME, 2, 0), [0, table_at, table.len()], [3, 1, 8, SYMBOL_BYTES]);
    section(&mut out, (STRTAB_NAME, 3, 0), [0, names_at, names.len()], [0, 0, 1, 0]);
    out.extend(table);
    out.extend(names);
    out
}

fn header(sections_at: usize) -> Vec<u8> {
    // 64 bits, little-endian, version 1, of no particular system.
    let mut out = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0];
    out.extend([0; 8]);
    // Relocatable.
    out.extend(1u16.to_le_bytes());
    out.extend(MACHINE.to_le_bytes());
    out.extend(1u32.to_le_bytes());
    // Neither an entry nor segments.
    out.extend([0; 16]);
    out.extend((sections_at as u64).to_le_bytes());
    out.extend([0; 4]);
    for half in [HEADER_BYTES as u16, 0, 0, SECTION_BYTES as u16, SECTIONS, SECTIONS - 1] {
        out.extend(half.to_le_bytes());
    }
    out
}

/// Writes a section header: name, kind and flags; address, offset and size; link, info, alignment and entry size.
fn section(
    out: &mut Vec<u8>,
    (name, kind, flags): (u32, u32, u64),
    extent: [usize; 3],
    [linked, info, alignment, entry]: [usize; 4],
) {
    out.extend(name.to_le_bytes());
    out.extend(kind.to_le_bytes());
    out.extend(flags.to_le_bytes());
    extent.iter().for_each(|word| out.extend((*word as u64).to_le_bytes()));
    out.extend((linked as u32).to_le_bytes());
    out.extend((info as u32).to_le_bytes());
    out.extend((alignment as u64).to_le_bytes());
    out.extend((entry as u64).to_le_bytes());
}
