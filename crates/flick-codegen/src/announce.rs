//! Names of compiled functions for gdb and perf, which see memory without names otherwise.
//! Promises: a program's names are known for as long as its code is there; without a debugger they cost a few
//! kilobytes. gdb finds them whenever it attaches; perf reads a map file, if one was configured.
//! Source: gdb's manual, "JIT Compilation Interface"; the kernel's `tools/perf/Documentation/jit-interface.txt`.

mod elf;
mod raw;

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Seek, Write as _};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A compiled function in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FunctionSymbol {
    /// Name.
    pub(crate) name: String,
    /// Address of its first instruction.
    pub(crate) address: usize,
    /// Bytes of its code.
    pub(crate) size_bytes: usize,
}

/// All programs whose names are known.
static KNOWN: Mutex<Known> = Mutex::new(Known { next: 0, programs: Vec::new(), map: None });

struct Known {
    next: u64,
    programs: Vec<(u64, Vec<FunctionSymbol>)>,
    map: Option<File>,
}

/// Names of one program. Dropping it unregisters them, which must happen before its code is freed.
#[derive(Debug)]
pub(crate) struct Announced {
    number: u64,
    _of_gdb: raw::GdbRegistration,
}

impl Announced {
    /// Tells the names of these functions.
    pub(crate) fn new(symbols: Vec<FunctionSymbol>) -> Self {
        let of_gdb = raw::GdbRegistration::new(elf::image(&symbols));
        let mut known = known();
        let number = known.next;
        known.next += 1;
        known.programs.push((number, symbols));
        known.write_map();
        Self { number, _of_gdb: of_gdb }
    }
}

impl Drop for Announced {
    fn drop(&mut self) {
        let mut known = known();
        known.programs.retain(|(number, _)| *number != self.number);
        known.write_map();
    }
}

/// Keeps the names of all functions that there are in this file, as perf reads them, from here on.
///
/// Errors: it cannot be written.
pub fn keep_perf_map(file: File) -> io::Result<()> {
    let mut known = known();
    known.map = Some(file);
    known.try_write_map()
}

fn known() -> MutexGuard<'static, Known> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Known {
    fn try_write_map(&mut self) -> io::Result<()> {
        let Some(map) = &mut self.map else { return Ok(()) };
        let mut text = String::new();
        for symbol in self.programs.iter().flat_map(|(_, symbols)| symbols) {
            writeln!(text, "{:x} {:x} {}", symbol.address, symbol.size_bytes, symbol.name)
                .expect("memory takes what is written to it");
        }
        map.set_len(0)?;
        map.rewind()?;
        map.write_all(text.as_bytes())
    }

    /// Writes the map; on an error, as a full disk, perf has no names and the service continues.
    fn write_map(&mut self) {
        if self.try_write_map().is_err() {
            self.map = None;
        }
    }
}
