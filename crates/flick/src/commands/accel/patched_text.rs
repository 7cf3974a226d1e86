//! Makes the patched text of a libc: finds the call sites, and writes stubs and the pages that jump to them.
//! Promises: a site is patched only if the instructions that its jump replaces are no target of another jump and run
//! elsewhere as they run there; the others are listed. A libc in which one of [`REQUIRED`] cannot be seen is refused.
//! Source: zpoline (ATC 2023), E9Patch (PLDI 2020) for moving instructions before a jump.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use flick_preload::image::{self, BUILD_ID_BYTES, PATCH_BYTES, PageRun, Site};
use flick_preload::limits::{PAGE_BYTES, RUNS_MAX, SITES_MAX};
use flick_preload::numbers::{self, HOOKED};
use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    OpKind, Register,
};

use super::elf::Elf;

/// Distance from libc's base down to the stubs: beyond the libraries that are loaded below it, within a jump.
const STUBS_BELOW: u32 = 256 << 20;

/// Instructions before a `syscall` that are looked at.
const WINDOW: usize = 16;

/// Pages without a site between two runs that are mapped as one, so that there are few mappings.
const GAP_PAGES: u32 = 3;

/// Functions that have to be seen: a libc that hides one would yield counts that are wrong.
const REQUIRED: &[&str] = &[
    "read",
    "write",
    "readv",
    "writev",
    "send",
    "recv",
    "sendto",
    "recvfrom",
    "sendmsg",
    "recvmsg",
    "accept4",
    "connect",
    "close",
    "shutdown",
    "setsockopt",
];

/// Functions whose call has no site that can be patched: they are patched where they begin.
const AT_ENTRY: &[(&str, u32)] = &[("_exit", numbers::EXIT_GROUP)];

/// Owner and type of the note with the build id.
const BUILD_ID_NOTE: (&[u8], u32) = (b"GNU\0", 3);

/// A call site that cannot be patched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unseen {
    /// Address of its `syscall`.
    pub address: u64,
    /// The name of the call.
    pub call: &'static str,
    /// The cause.
    pub cause: &'static str,
}

/// A patched text, and the facts of its making.
#[derive(Debug)]
pub struct PatchedText {
    /// The build id of the libc, in hexadecimal.
    pub build_id: String,
    /// The file.
    pub bytes: Vec<u8>,
    /// Sites that lead to the library, by the name of their call. `syscall` is the function that makes any call.
    pub sites: BTreeMap<&'static str, u32>,
    /// Sites that cannot be patched.
    pub unseen: Vec<Unseen>,
}

/// A `syscall` instruction with those before it.
struct Candidate {
    address: u64,
    before: Vec<(Instruction, Vec<u8>)>,
}

/// The window that a jump replaces, and the call.
struct Window {
    call: &'static str,
    moved: Vec<(Instruction, Vec<u8>)>,
    /// The number of the call, if the moved instructions do not load it.
    number: Option<u32>,
    /// Address at which a call that is passed on continues: its `syscall`.
    pass: u64,
    /// Address at which a call that was made continues.
    after: u64,
}

impl Window {
    fn address(&self) -> u64 {
        self.moved.first().map_or(0, |first| first.0.ip())
    }
}

/// Makes the patched text of a libc.
///
/// Errors: a sentence about the file.
pub fn make(libc: &[u8]) -> Result<PatchedText, String> {
    let elf = Elf::parse(libc).ok_or("it is not a 64-bit ELF file")?;
    let build_id = elf.note(BUILD_ID_NOTE.0, BUILD_ID_NOTE.1).and_then(|id| id.try_into().ok());
    let build_id: &[u8; BUILD_ID_BYTES] = build_id.ok_or("it has no build id")?;
    let (candidates, targets) = scan(&elf);
    let any_call = elf.function("syscall").map(|(start, bytes)| start..start + bytes).unwrap_or_default();
    let (mut windows, mut unseen) = (Vec::new(), Vec::new());
    for candidate in &candidates {
        let call =
            if any_call.contains(&candidate.address) { Some("syscall") } else { name(candidate, &targets) };
        let Some(call) = call else { continue };
        match window(candidate, &targets) {
            Ok(start) => {
                let (moved, pass) = (candidate.before[start..].to_vec(), candidate.address);
                windows.push(Window { call, moved, number: None, pass, after: pass + 2 });
            }
            Err(cause) => unseen.push(Unseen { address: candidate.address, call, cause }),
        }
    }
    for (function, number) in AT_ENTRY {
        windows.extend(at_entry(&elf, function, *number, &targets));
    }
    let mut sites = BTreeMap::new();
    windows.iter().for_each(|window| *sites.entry(window.call).or_default() += 1);
    for function in REQUIRED {
        let (start, bytes) = elf.function(function).ok_or(format!("it has no `{function}`"))?;
        let range = start..start + bytes;
        let is_seen = windows.iter().any(|window| range.contains(&window.pass));
        if !is_seen || unseen.iter().any(|site| range.contains(&site.address)) {
            return Err(format!("the system calls of its `{function}` cannot be seen"));
        }
    }
    let bytes = write(&elf, build_id, &windows).ok_or("its text cannot be patched")?;
    let build_id = build_id.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(PatchedText { build_id, bytes, sites, unseen })
}

/// Whether a file has code that makes system calls, or is no file whose code can be found.
pub fn makes_calls(file: &[u8]) -> bool {
    let Some(elf) = Elf::parse(file).filter(|elf| !elf.code().is_empty()) else { return true };
    elf.code().iter().any(|section| {
        elf.range(section.offset, section.bytes).is_none_or(|code| code_makes_calls(code, section.address))
    })
}

/// Instructions before a `syscall` in which its number is loaded.
const NUMBER_WINDOW: usize = 4;

/// Whether code makes system calls. Bytes of a table among the code (libcrypto has such) may read as one: it is taken
/// for data if bytes before and behind it are no instructions of programs, and none right before it loads a number.
fn code_makes_calls(code: &[u8], address: u64) -> bool {
    if !code.windows(2).any(|bytes| bytes == [0x0f, 0x05]) {
        return false;
    }
    let is_no_code = |one: &Instruction| one.is_invalid() || one.is_privileged();
    let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    let mut info = InstructionInfoFactory::new();
    let mut before: VecDeque<Instruction> = VecDeque::new();
    while decoder.can_decode() {
        let instruction = decoder.decode();
        if instruction.code() == Code::Syscall {
            let loads_number = |one: &Instruction| {
                let mut registers = info.info(one).used_registers().iter();
                registers.any(|used| {
                    used.register().full_register() == Register::RAX && used.access() != OpAccess::Read
                })
            };
            let is_number_loaded = before.iter().rev().take(NUMBER_WINDOW).any(loads_number);
            let at = (decoder.ip() - address) as usize;
            let behind = Decoder::with_ip(64, &code[at..], decoder.ip(), DecoderOptions::NONE);
            if is_number_loaded
                || !before.iter().any(is_no_code)
                || !behind.into_iter().take(WINDOW).any(|one| is_no_code(&one))
            {
                return true;
            }
        }
        if before.len() == WINDOW {
            before.pop_front();
        }
        before.push_back(instruction);
    }
    false
}

/// Decodes all code: the `syscall` instructions, and the targets of jumps and calls.
fn scan(elf: &Elf<'_>) -> (Vec<Candidate>, BTreeSet<u64>) {
    let (mut candidates, mut targets) = (Vec::new(), elf.functions());
    for section in elf.code() {
        let Some(code) = elf.range(section.offset, section.bytes) else { continue };
        let mut decoder = Decoder::with_ip(64, code, section.address, DecoderOptions::NONE);
        let mut recent: Vec<Instruction> = Vec::new();
        let mut instruction = Instruction::default();
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            if matches!(instruction.op0_kind(), OpKind::NearBranch64) {
                targets.insert(instruction.near_branch_target());
            }
            if instruction.code() == Code::Syscall {
                let bytes = |one: &Instruction| {
                    let at = (one.ip() - section.address) as usize;
                    code[at..at + one.len()].to_vec()
                };
                let before = recent.iter().rev().take(WINDOW).rev().map(|one| (*one, bytes(one))).collect();
                candidates.push(Candidate { address: instruction.ip(), before });
            }
            if recent.len() > 4 * WINDOW {
                recent.drain(..3 * WINDOW);
            }
            recent.push(instruction);
        }
    }
    (candidates, targets)
}

/// The name of the hooked call that a site makes. Going back from the `syscall`, the number must be a constant; an
/// instruction that may change rax in another way, or a jump to a place in between, ends the search.
fn name(candidate: &Candidate, targets: &BTreeSet<u64>) -> Option<&'static str> {
    if targets.contains(&candidate.address) {
        return None;
    }
    for (instruction, _) in candidate.before.iter().rev() {
        let writes_rax = instruction.op_count() > 0
            && instruction.op0_kind() == OpKind::Register
            && instruction.op0_register().full_register() == Register::RAX;
        let number = match instruction.mnemonic() {
            Mnemonic::Mov if writes_rax && instruction.op1_kind() == OpKind::Immediate32 => {
                Some(instruction.immediate32())
            }
            Mnemonic::Xor if writes_rax && instruction.op1_register().full_register() == Register::RAX => {
                Some(0)
            }
            _ => None,
        };
        if let Some(number) = number {
            return HOOKED.iter().find(|call| call.0 == number).map(|call| call.1);
        }
        let is_plain = matches!(
            instruction.mnemonic(),
            Mnemonic::Mov
                | Mnemonic::Lea
                | Mnemonic::Xor
                | Mnemonic::Movsxd
                | Mnemonic::Movzx
                | Mnemonic::And
                | Mnemonic::Or
                | Mnemonic::Add
                | Mnemonic::Sub
                | Mnemonic::Push
                | Mnemonic::Pop
                | Mnemonic::Shl
                | Mnemonic::Nop
                | Mnemonic::Movaps
                | Mnemonic::Movups
                | Mnemonic::Movdqa
        ) || is_compare(instruction)
            || instruction.flow_control() == FlowControl::ConditionalBranch;
        if !is_plain || (writes_rax && !is_compare(instruction)) || targets.contains(&instruction.ip()) {
            return None;
        }
    }
    None
}

fn is_compare(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Cmp | Mnemonic::Test)
}

/// The first instruction of the window: as few as have the bytes of a jump.
fn window(candidate: &Candidate, targets: &BTreeSet<u64>) -> Result<usize, &'static str> {
    let mut bytes = 0;
    for (index, (instruction, _)) in candidate.before.iter().enumerate().rev() {
        let next = instruction.next_ip();
        if next != candidate.address && targets.contains(&next) {
            return Err("a jump leads into the instructions before it");
        }
        // What is before padding is another function.
        let is_movable = instruction.flow_control() == FlowControl::Next
            && !matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::INVALID | Mnemonic::Int3)
            || instruction.is_jcc_short_or_near();
        if !is_movable {
            return Err("a call, a jump or padding is directly before it");
        }
        bytes += instruction.len();
        if bytes >= PATCH_BYTES {
            return Ok(index);
        }
    }
    Err("too few instructions are before it")
}

/// The window at the begin of a function without arguments in rax.
fn at_entry(elf: &Elf<'_>, function: &str, number: u32, targets: &BTreeSet<u64>) -> Option<Window> {
    let (start, bytes) = elf.function(function)?;
    let code = elf.at_address(start, bytes)?;
    let mut decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
    let (mut moved, mut end) = (Vec::new(), start);
    while end < start + PATCH_BYTES as u64 {
        let instruction = decoder.decode();
        let is_movable = instruction.flow_control() == FlowControl::Next;
        if !is_movable || (end != start && targets.contains(&end)) {
            return None;
        }
        let at = (end - start) as usize;
        moved.push((instruction, code.get(at..at + instruction.len())?.to_vec()));
        end = instruction.next_ip();
    }
    let call = HOOKED.iter().find(|call| call.0 == number)?.1;
    Some(Window { call, moved, number: Some(number), pass: end, after: end })
}

/// Writes the file.
fn write(elf: &Elf<'_>, build_id: &[u8; BUILD_ID_BYTES], windows: &[Window]) -> Option<Vec<u8>> {
    let mut windows: Vec<_> = windows.iter().collect();
    windows.sort_by_key(|window| window.address());
    let is_apart = windows.windows(2).all(|two| two[0].pass <= two[1].address());
    let (mut stubs, mut sites) = (vec![0xcc; windows.len() * 96], Vec::new());
    let stub_bytes = (stubs.len() as u32).next_multiple_of(PAGE_BYTES as u32);
    stubs.resize(stub_bytes as usize, 0xcc);
    let mut at = 0;
    for window in &windows {
        let stub = stub(window, at, stub_bytes)?;
        let original = elf.at_address(window.address(), PATCH_BYTES as u64)?.try_into().ok()?;
        sites.push(Site { address: u32::try_from(window.address()).ok()?, stub: at, original });
        stubs.get_mut(at as usize..at as usize + stub.len())?.copy_from_slice(&stub);
        at = (at + stub.len() as u32).next_multiple_of(16);
    }
    let runs = runs(&sites);
    if !is_apart || runs.len() > RUNS_MAX || sites.len() > SITES_MAX {
        return None;
    }
    let stub_offset = image::table_bytes(runs.len(), sites.len()).next_multiple_of(PAGE_BYTES) as u32;
    let mut offset = stub_offset + stub_bytes;
    let runs: Vec<_> = runs
        .into_iter()
        .map(|run| {
            offset += run.bytes;
            PageRun { offset: offset - run.bytes, ..run }
        })
        .collect();
    let mut file = Vec::with_capacity(offset as usize);
    let numbers = (STUBS_BELOW, stub_bytes, stub_offset);
    image::write_tables(&mut |bytes| file.extend_from_slice(bytes), build_id, numbers, &runs, &sites);
    file.resize(stub_offset as usize, 0);
    file.extend_from_slice(&stubs);
    for run in &runs {
        file.extend_from_slice(elf.at_address(run.address.into(), run.bytes.into())?);
    }
    patch(&mut file, &runs, &sites);
    Some(file)
}

/// Writes the jumps into the pages of a file that is complete otherwise.
fn patch(file: &mut [u8], runs: &[PageRun], sites: &[Site]) {
    for run in runs {
        let inside =
            sites.iter().filter(|site| (run.address..run.address + run.bytes).contains(&site.address));
        for site in inside {
            let at = (run.offset + (site.address - run.address)) as usize;
            file[at..at + PATCH_BYTES].copy_from_slice(&image::jump(site, STUBS_BELOW));
        }
    }
}

/// The runs of pages with sites, without their offsets in the file.
fn runs(sites: &[Site]) -> Vec<PageRun> {
    let page = PAGE_BYTES as u32;
    let mut runs: Vec<PageRun> = Vec::new();
    for site in sites {
        let (first, end) =
            (site.address / page * page, (site.address + PATCH_BYTES as u32).next_multiple_of(page));
        match runs.last_mut() {
            Some(run) if first <= run.address + run.bytes + GAP_PAGES * page => {
                run.bytes = run.bytes.max(end - run.address);
            }
            _ => runs.push(PageRun { address: first, bytes: end - first, offset: 0 }),
        }
    }
    runs
}

/// The stub of a window: the moved instructions, `lea r11, [tail]`, `jmp [entry]`, and the tail: jumps to the `syscall`
/// instruction and behind it.
fn stub(window: &Window, offset: u32, stub_bytes: u32) -> Option<Vec<u8>> {
    // Addresses count from libc's base; stubs are below it.
    let base = i64::from(offset) - i64::from(STUBS_BELOW);
    let mut stub = Vec::new();
    for (instruction, bytes) in &window.moved {
        move_instruction(&mut stub, base, instruction, bytes)?;
    }
    if let Some(number) = window.number {
        stub.push(0xb8);
        stub.extend_from_slice(&number.to_le_bytes());
    }
    stub.extend_from_slice(&[0x4c, 0x8d, 0x1d, 6, 0, 0, 0, 0xff, 0x25]);
    let entry = i64::from(stub_bytes) - i64::from(STUBS_BELOW);
    push_distance(&mut stub, base, entry)?;
    for target in [window.pass, window.after] {
        stub.push(0xe9);
        push_distance(&mut stub, base, i64::try_from(target).ok()?)?;
    }
    Some(stub)
}

/// Appends the distance from behind it to a target.
fn push_distance(stub: &mut Vec<u8>, base: i64, target: i64) -> Option<()> {
    let from = base + stub.len() as i64 + 4;
    stub.extend_from_slice(&i32::try_from(target - from).ok()?.to_le_bytes());
    Some(())
}

/// Appends an instruction as it has to be at its new address.
fn move_instruction(stub: &mut Vec<u8>, base: i64, instruction: &Instruction, bytes: &[u8]) -> Option<()> {
    if instruction.flow_control() == FlowControl::ConditionalBranch {
        let condition = instruction.condition_code() as u8;
        stub.extend_from_slice(&[0x0f, 0x80 | condition_bits(condition)?]);
        return push_distance(stub, base, i64::try_from(instruction.near_branch_target()).ok()?);
    }
    if !instruction.is_ip_rel_memory_operand() {
        stub.extend_from_slice(bytes);
        return Some(());
    }
    let mut decoder = Decoder::with_ip(64, bytes, instruction.ip(), DecoderOptions::NONE);
    let decoded = decoder.decode();
    let at = decoder.get_constant_offsets(&decoded).displacement_offset();
    let target = i64::try_from(instruction.ip_rel_memory_address()).ok()?;
    let distance = i32::try_from(target - (base + stub.len() as i64 + bytes.len() as i64)).ok()?;
    let mut moved = bytes.to_vec();
    moved.get_mut(at..at + 4)?.copy_from_slice(&distance.to_le_bytes());
    stub.extend_from_slice(&moved);
    Some(())
}

/// The condition in the opcode of a jump, for a condition of the decoder.
fn condition_bits(condition: u8) -> Option<u8> {
    // The decoder counts from 1 in the order of the opcodes.
    condition.checked_sub(1).filter(|bits| *bits < 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A part of a table of libcrypto 3.0 that lies among its code, in which two bytes read as `syscall`.
    const TABLE: [u8; 61] = [
        0xd9, 0xdd, 0x86, 0xc0, 0x5b, 0xf2, 0x6f, 0x0f, 0x9f, 0x77, 0xee, 0x5e, 0x65, 0xff, 0xcc, 0xd1, 0x09,
        0xf1, 0x7d, 0xef, 0x5b, 0x79, 0x5f, 0x47, 0x45, 0xcc, 0x02, 0xf7, 0x86, 0xfa, 0x28, 0xaa, 0x3f, 0x07,
        0x1f, 0x02, 0x0f, 0x05, 0x09, 0xe6, 0x92, 0xc6, 0xa8, 0x8f, 0x7f, 0x68, 0x29, 0xe6, 0xe9, 0x2c, 0xea,
        0x36, 0xf0, 0x9a, 0x41, 0x71, 0xbd, 0x9a, 0xda, 0x28, 0x60,
    ];

    #[test]
    fn bytes_of_a_table_are_no_system_call() {
        assert!(TABLE.windows(2).any(|bytes| bytes == [0x0f, 0x05]));
        assert!(!code_makes_calls(&TABLE, 0x1000));
    }

    #[test]
    fn system_calls_are_found_between_code_and_between_tables() {
        // mov ebp to eax, or 39 to eax; syscall; ret.
        for call in [&[0x89, 0xe8, 0x0f, 0x05, 0xc3][..], &[0xb8, 39, 0, 0, 0, 0x0f, 0x05, 0xc3]] {
            assert!(code_makes_calls(call, 0x1000));
            assert!(code_makes_calls(&[&TABLE[..], &[0x90; 8], call, &TABLE].concat(), 0x1000));
        }
        // xor r10d, r10d; mov rbx to rdi; syscall; ret: the number was loaded before a jump.
        assert!(code_makes_calls(&[0x45, 0x31, 0xd2, 0x48, 0x89, 0xdf, 0x0f, 0x05, 0xc3], 0x1000));
        assert!(!code_makes_calls(&[0x45, 0x31, 0xd2, 0xc3], 0x1000));
    }
}
