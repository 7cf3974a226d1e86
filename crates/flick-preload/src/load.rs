//! Starts the library, before any other constructor runs: finds libc, compares it with the patched text and maps that.
//! Promises: the process is left unchanged unless all of the patched text can be used.
#![allow(unsafe_code, reason = "the loader's tables are memory; only `sys`, `raw` and `load` have such code")]

use core::ptr;
use core::sync::atomic::Ordering::Relaxed;

use crate::image::{BUILD_ID_BYTES, Image, Mismatch};
use crate::limits::{IMAGE_BYTES_MAX, LIBRARIES_MAX, PATH_BYTES_MAX};
use crate::raw::entry_address;
use crate::state::{MOVES, MOVES_GENERATED, Method, ProcessTable, reason};
use crate::sys::{self, BoundedText, Libc, ProgramMemory};

#[cfg(flick_preload)]
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn(i32, *const u64, *const u64) = start;

/// Runs as a constructor, with the environment that the process has started with.
#[cfg_attr(not(flick_preload), expect(dead_code, reason = "only the library has a constructor"))]
extern "C" fn start(_count: i32, _arguments: *const u64, environment: *const u64) {
    // SAFETY: the loader passes its own lists, which end with zero; one thread runs.
    let memory = unsafe { ProgramMemory::new() };
    let began = sys::now_ns();
    let environment = Environment { memory, at: environment as u64 };
    let Some(libraries) = environment.libraries() else { return };
    let Some(own) = libraries.own else { return };
    let set = sys::set_settings(|settings| {
        let state = environment.variable(b"FLICK_ACCEL_STATE=").unwrap_or_default();
        let verify = environment.variable(b"FLICK_ACCEL_VERIFY=").is_some();
        let moves = environment.variable(b"FLICK_ACCEL_MOVE=").unwrap_or_default();
        settings.preload.push(b"LD_PRELOAD=")
            && settings.preload.push(own)
            && (state.is_empty() || settings.state.push(b"FLICK_ACCEL_STATE=") && settings.state.push(state))
            && (!verify || settings.verify.push(b"FLICK_ACCEL_VERIFY=1"))
            && (moves.is_empty() || settings.moves.push(b"FLICK_ACCEL_MOVE=") && settings.moves.push(moves))
    });
    if !set {
        return;
    }
    let Some(state) = sys::create_state() else { return };
    let has_uring = libraries.has_uring;
    state.not_followed.fetch_or(if has_uring { reason::IO_URING } else { 0 }, Relaxed);
    state.verify.store(u32::from(environment.variable(b"FLICK_ACCEL_VERIFY=").is_some()), Relaxed);
    if let Some(moves) = environment.variable(b"FLICK_ACCEL_MOVE=") {
        // The kernel has put the list of variables there.
        sys::set_stack_top(environment.at);
        state.moves.store(if moves == b"2" { MOVES_GENERATED } else { MOVES }, Relaxed);
        sys::map_polling_permits();
        sys::pipe::learn_core();
    }
    let outcome = match libraries.libc {
        Some(libc) => sys::set_fork_word().and_then(|()| {
            // Hooks may run as soon as the first page is mapped.
            sys::publish_state(state);
            patch(libc, own, state)
        }),
        None => Err(Mismatch::NoLibc.into()),
    };
    match outcome {
        Ok(()) => state.method.store(Method::PatchedText as u32, Relaxed),
        Err(why) => state.why_plain.store(why.unsigned_abs() as u32, Relaxed),
    }
    state.start_ns.store(sys::now_ns() - began, Relaxed);
    state.make_visible();
}

impl From<Mismatch> for i64 {
    fn from(mismatch: Mismatch) -> Self {
        -(mismatch as i64)
    }
}

/// Maps the patched text of a libc.
///
/// Errors: a [`Mismatch`] or an error of the kernel, negative. Pages that are mapped by then stay: they are right.
fn patch(libc: Libc, own: &[u8], state: &ProcessTable) -> Result<(), i64> {
    let build_id = build_id(libc).ok_or(Mismatch::BuildId)?;
    let fd = sys::open(&image_path(own, build_id).ok_or(Mismatch::Format)?)?;
    let outcome = map_image(fd, libc, build_id, state);
    sys::close(fd);
    outcome
}

fn map_image(fd: u64, libc: Libc, build_id: &[u8], state: &ProcessTable) -> Result<(), i64> {
    const OTHERS_WRITE: u32 = 0o022;
    let facts = sys::file_facts(fd).ok_or(Mismatch::Format)?;
    let is_trusted = facts.owner == 0 || facts.owner == sys::effective_user();
    if !is_trusted || facts.mode & OTHERS_WRITE != 0 {
        return Err(Mismatch::Owner.into());
    }
    let bytes = usize::try_from(facts.bytes).ok().filter(|bytes| (1..=IMAGE_BYTES_MAX).contains(bytes));
    let bytes = sys::map_file(fd, bytes.ok_or(Mismatch::Format)?)?;
    let outcome = map_pages(&Image::parse(bytes)?, fd, libc, build_id, state);
    sys::unmap(bytes);
    outcome
}

fn map_pages(
    image: &Image<'_>,
    fd: u64,
    libc: Libc,
    build_id: &[u8],
    state: &ProcessTable,
) -> Result<(), i64> {
    if image.build_id() != build_id {
        return Err(Mismatch::BuildId.into());
    }
    for run in image.runs() {
        image.verify(&run, libc.bytes(run.address, run.bytes))?;
    }
    let (offset, bytes, below) = (image.stub_offset(), image.stub_bytes(), image.stubs_below());
    libc.map_stubs(fd, offset, bytes, below, entry_address())?;
    for run in image.runs() {
        libc.map_text(fd, run.address, run.bytes, run.offset)?;
    }
    state.sites.store(image.sites().count() as u32, Relaxed);
    Ok(())
}

/// The path of the patched text: beside the library, by the build id.
fn image_path(own: &[u8], build_id: &[u8]) -> Option<BoundedText> {
    let mut path = BoundedText::empty();
    let directory = own.get(..=own.iter().rposition(|byte| *byte == b'/')?)?;
    let mut is_complete = path.push(directory);
    for byte in build_id {
        let digit = |value: u8| if value < 10 { b'0' + value } else { b'a' + value - 10 };
        is_complete &= path.push(&[digit(byte >> 4), digit(byte & 15)]);
    }
    (is_complete && path.push(b".text")).then_some(path)
}

const NOTE: u32 = 4;
const DYNAMIC: u32 = 2;
const PHDR: u32 = 6;

/// The build id of a libc, from its notes.
fn build_id(libc: Libc) -> Option<&'static [u8]> {
    const BUILD_ID: u32 = 3;
    const NOTES_MAX: u32 = 8;
    let half = |at: u32| libc.bytes(at, 4).try_into().map(u32::from_le_bytes).ok();
    let (table, count) = (half(32)?, half(56)? & 0xffff);
    for header in (0..count).map(|index| table + index * 56) {
        if half(header)? != NOTE {
            continue;
        }
        let (mut at, bytes) = (half(header + 16)?, half(header + 32)?);
        let end = at + bytes;
        for _ in 0..NOTES_MAX {
            if at + 16 > end {
                break;
            }
            let (name, description, kind) = (half(at)?, half(at + 4)?, half(at + 8)?);
            if kind == BUILD_ID && description as usize == BUILD_ID_BYTES {
                return Some(libc.bytes(at + 12 + name.next_multiple_of(4), description));
            }
            at += 12 + name.next_multiple_of(4) + description.next_multiple_of(4);
        }
    }
    None
}

/// The list of variables, with the kernel's vector behind it.
#[derive(Clone, Copy)]
struct Environment {
    memory: ProgramMemory,
    at: u64,
}

/// Facts from the loader's list of libraries.
#[derive(Default)]
struct Libraries {
    libc: Option<Libc>,
    own: Option<&'static [u8]>,
    has_uring: bool,
}

impl Environment {
    /// The value of a variable, whose name ends with `=`.
    fn variable(self, name: &[u8]) -> Option<&'static [u8]> {
        self.variables().find_map(|at| self.memory.text(at, PATH_BYTES_MAX).strip_prefix(name))
    }

    fn variables(self) -> impl Iterator<Item = u64> {
        (0..).map(move |index| self.memory.word(self.at + 8 * index)).take_while(|at| *at != 0)
    }

    /// A value of the kernel's vector (`getauxval`).
    fn auxiliary(self, key: u64) -> Option<u64> {
        let first = self.at + 8 * (self.variables().count() as u64 + 1);
        let keys = (0..).map(|index| first + 16 * index);
        let mut pairs = keys.map(|at| (self.memory.word(at), self.memory.word(at + 8)));
        pairs.by_ref().take_while(|pair| pair.0 != 0).find(|pair| pair.0 == key).map(|pair| pair.1)
    }

    /// The address of the loader's debugging table (`struct r_debug`), which the program's dynamic section holds.
    fn debug_table(self) -> Option<u64> {
        const AT_PHDR: u64 = 3;
        const AT_PHNUM: u64 = 5;
        const DT_DEBUG: u64 = 21;
        let (table, count) = (self.auxiliary(AT_PHDR)?, self.auxiliary(AT_PHNUM)?);
        let headers = || (0..count).map(|index| table + 56 * index);
        let of_kind = |kind| headers().find(|at| self.memory.half(*at) == kind);
        let bias = of_kind(PHDR).map_or(0, |at| table.wrapping_sub(self.memory.word(at + 16)));
        let dynamic = bias.wrapping_add(self.memory.word(of_kind(DYNAMIC)? + 16));
        let entries = (0..).map(|index| dynamic + 16 * index);
        let mut entries = entries.map(|at| (self.memory.word(at), self.memory.word(at + 8)));
        entries
            .by_ref()
            .take_while(|entry| entry.0 != 0)
            .find(|entry| entry.0 == DT_DEBUG)
            .map(|entry| entry.1)
    }

    /// Looks through the loader's list.
    fn libraries(self) -> Option<Libraries> {
        let mut found = Libraries::default();
        let mut at = self.memory.word(self.debug_table().filter(|table| *table != 0)? + 8);
        for _ in 0..LIBRARIES_MAX {
            if at == 0 {
                break;
            }
            // `struct link_map`: base, name, dynamic section, next.
            let [base, name, dynamic, next] = [0, 8, 16, 24].map(|field| self.memory.word(at + field));
            let path = self.memory.text(name, PATH_BYTES_MAX);
            let file = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
            if file == b"libc.so.6" {
                // SAFETY: glibc's file has this name, and the loader lists what is loaded.
                found.libc = Some(unsafe { Libc::at(base) });
            }
            found.has_uring |= file.starts_with(b"liburing.so");
            if dynamic == own_dynamic() {
                found.own = Some(path);
            }
            at = next;
        }
        Some(found)
    }
}

unsafe extern "C" {
    /// The library's dynamic section; the linker defines it.
    static _DYNAMIC: [u64; 2];
}

fn own_dynamic() -> u64 {
    ptr::addr_of!(_DYNAMIC) as u64
}
