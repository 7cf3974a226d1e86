//! The way from a stub into the library and back, and the mark of a thread that has a child by `vfork`.
//! Promises: a call that is passed on is made by libc's own `syscall` instruction, with every register but rcx and r11,
//! with the stack and the 128 bytes below it as they were. A call that is counted is made here and returns behind that
//! instruction; the frame has unwind information, so that a cancelled thread unwinds through it into libc's function,
//! and gives back what its call has held.
#![allow(unsafe_code, reason = "the entry is assembly; only modules named `sys` and `raw` have such code")]

use core::arch::{asm, global_asm};

use crate::calls::{self, Call, HookDecision};
use crate::fast;
use crate::numbers as nr;
use crate::sys::ProgramMemory;

// A stub enters with the call's registers, and r11 at its tail: two jumps of five bytes, to the `syscall` instruction
// and behind it. From rbp downwards: tail, number, rdi, rsi, rdx, r10, r8, r9, result, context (`Call`), xmm0-15.
global_asm!(
    ".pushsection .tbss.flick_vfork, \"awT\", @nobits",
    ".p2align 2",
    ".hidden flick_vfork_parent",
    ".globl flick_vfork_parent",
    ".type flick_vfork_parent, @object",
    ".size flick_vfork_parent, 4",
    "flick_vfork_parent: .zero 4",
    ".hidden flick_thread",
    ".globl flick_thread",
    ".type flick_thread, @object",
    ".size flick_thread, 4",
    "flick_thread: .zero 4",
    ".hidden flick_forking",
    ".globl flick_forking",
    ".type flick_forking, @object",
    ".size flick_forking, 4",
    "flick_forking: .zero 4",
    ".hidden flick_parted",
    ".globl flick_parted",
    ".type flick_parted, @object",
    ".size flick_parted, 4",
    "flick_parted: .zero 4",
    ".popsection",
    ".pushsection .text.flick_entry, \"ax\", @progbits",
    ".hidden flick_entry",
    ".globl flick_entry",
    ".type flick_entry, @function",
    ".p2align 4",
    "flick_entry:",
    ".cfi_startproc",
    // `DW_EH_PE_pcrel | DW_EH_PE_sdata4`.
    ".cfi_personality 0x1b, {personality}",
    ".cfi_def_cfa rsp, 0",
    "lea rsp, [rsp - 128]",
    ".cfi_def_cfa_offset 128",
    "movsxd rcx, dword ptr [r11 + 6]",
    "lea rcx, [r11 + rcx + 10]",
    "push rcx",
    ".cfi_def_cfa_offset 136",
    ".cfi_offset rip, -136",
    "push rbp",
    ".cfi_def_cfa_offset 144",
    ".cfi_offset rbp, -144",
    "mov rbp, rsp",
    ".cfi_def_cfa rbp, 144",
    "push r11",
    "push rax",
    "push rdi",
    "push rsi",
    "push rdx",
    "push r10",
    "push r8",
    "push r9",
    "sub rsp, 272",
    "and rsp, -16",
    "movaps [rsp], xmm0",
    "movaps [rsp + 16], xmm1",
    "movaps [rsp + 32], xmm2",
    "movaps [rsp + 48], xmm3",
    "movaps [rsp + 64], xmm4",
    "movaps [rsp + 80], xmm5",
    "movaps [rsp + 96], xmm6",
    "movaps [rsp + 112], xmm7",
    "movaps [rsp + 128], xmm8",
    "movaps [rsp + 144], xmm9",
    "movaps [rsp + 160], xmm10",
    "movaps [rsp + 176], xmm11",
    "movaps [rsp + 192], xmm12",
    "movaps [rsp + 208], xmm13",
    "movaps [rsp + 224], xmm14",
    "movaps [rsp + 240], xmm15",
    // `read` and `write`.
    "cmp eax, 1",
    "ja 6f",
    "mov ecx, eax",
    "call {fast}",
    "test rax, rax",
    "js 6f",
    "mov [rbp - 72], rax",
    "jmp 2f",
    "6:",
    "lea rdi, [rbp - 80]",
    "call {before}",
    "cmp eax, 1",
    "jb 3f",
    "ja 2f",
    "mov rax, [rbp - 16]",
    "mov rdi, [rbp - 24]",
    "mov rsi, [rbp - 32]",
    "mov rdx, [rbp - 40]",
    "mov r10, [rbp - 48]",
    "mov r8, [rbp - 56]",
    "mov r9, [rbp - 64]",
    "syscall",
    "mov [rbp - 72], rax",
    "lea rdi, [rbp - 80]",
    "call {after}",
    "2:",
    "call 5f",
    "mov rax, [rbp - 72]",
    "mov rcx, [rbp + 8]",
    "jmp 4f",
    "3:",
    "call 5f",
    "mov rax, [rbp - 16]",
    "mov rcx, [rbp - 8]",
    "4:",
    "mov rdi, [rbp - 24]",
    "mov rsi, [rbp - 32]",
    "mov rdx, [rbp - 40]",
    "mov r10, [rbp - 48]",
    "mov r8, [rbp - 56]",
    "mov r9, [rbp - 64]",
    "lea rsp, [rbp + 144]",
    "mov rbp, [rbp]",
    ".cfi_def_cfa rsp, 0",
    ".cfi_restore rbp",
    ".cfi_register rip, rcx",
    "jmp rcx",
    ".cfi_def_cfa rbp, 144",
    ".cfi_offset rbp, -144",
    ".cfi_offset rip, -136",
    "5:",
    "movaps xmm0, [rsp + 8]",
    "movaps xmm1, [rsp + 24]",
    "movaps xmm2, [rsp + 40]",
    "movaps xmm3, [rsp + 56]",
    "movaps xmm4, [rsp + 72]",
    "movaps xmm5, [rsp + 88]",
    "movaps xmm6, [rsp + 104]",
    "movaps xmm7, [rsp + 120]",
    "movaps xmm8, [rsp + 136]",
    "movaps xmm9, [rsp + 152]",
    "movaps xmm10, [rsp + 168]",
    "movaps xmm11, [rsp + 184]",
    "movaps xmm12, [rsp + 200]",
    "movaps xmm13, [rsp + 216]",
    "movaps xmm14, [rsp + 232]",
    "movaps xmm15, [rsp + 248]",
    "ret",
    ".cfi_endproc",
    ".size flick_entry, . - flick_entry",
    ".popsection",
    fast = sym fast,
    before = sym before,
    after = sym after,
    personality = sym personality,
);

unsafe extern "C" {
    /// The entry of all stubs; never called by its name.
    fn flick_entry();
}

/// The address of the entry.
pub fn entry_address() -> u64 {
    flick_entry as *const () as u64
}

/// Makes a `read` or `write` through a ring, where that needs nothing else. Returns [`fast::ELSEWHERE`] if it does.
extern "C" fn fast(fd: u64, address: u64, bytes: u64, number: u64) -> i64 {
    if number == u64::from(nr::READ) {
        fast::read(fd, address, bytes)
    } else {
        fast::write(fd, address, bytes)
    }
}

/// Decides on a call before it is made. The values are those of [`HookDecision`].
extern "C" fn before(call: &mut Call) -> u32 {
    // SAFETY: `flick_entry` calls this with the registers of a call that the program makes.
    let memory = unsafe { ProgramMemory::new() };
    calls::before(call, memory) as u32
}

/// Counts a call of which [`before`] has said [`HookDecision::Count`].
extern "C" fn after(call: &mut Call) {
    // SAFETY: as above.
    let memory = unsafe { ProgramMemory::new() };
    calls::after(call, memory);
}

/// Ends the call of a thread that is cancelled, or ends by `pthread_exit` in a signal handler: the unwinder, which goes
/// through the entry's frame, calls this. No landing pad follows.
extern "C" fn personality(_version: i32, actions: i32, _class: u64, _exception: u64, _context: u64) -> i32 {
    const CLEANUP_PHASE: i32 = 2;
    const CONTINUE_UNWIND: i32 = 8;
    if actions & CLEANUP_PHASE != 0 {
        calls::abandoned();
    }
    CONTINUE_UNWIND
}

const _: () = assert!(
    HookDecision::Pass as u32 == 0 && HookDecision::Count as u32 == 1 && HookDecision::Done as u32 == 2
);
const _: () = assert!(size_of::<Call>() == 80);
const _: () = assert!(nr::READ == 0 && nr::WRITE == 1 && fast::ELSEWHERE < 0);

/// Declares a word of the thread's own memory.
macro_rules! thread_word {
    ($(#[$get_doc:meta])* $get:ident, $(#[$set_doc:meta])* $set:ident, $name:literal) => {
        $(#[$get_doc])*
        #[inline]
        pub fn $get() -> u32 {
            let value: u32;
            // SAFETY: the variable is in the static block of thread-local storage: the loader fills its offset in.
            unsafe {
                asm!(concat!("mov {offset}, qword ptr [rip + ", $name, "@GOTTPOFF]"),
                    "mov {value:e}, dword ptr fs:[{offset}]",
                    offset = out(reg) _, value = out(reg) value, options(nostack, readonly, preserves_flags));
            }
            value
        }

        $(#[$set_doc])*
        pub fn $set(value: u32) {
            // SAFETY: as above.
            unsafe {
                asm!(concat!("mov {offset}, qword ptr [rip + ", $name, "@GOTTPOFF]"),
                    "mov dword ptr fs:[{offset}], {value:e}",
                    offset = out(reg) _, value = in(reg) value, options(nostack, preserves_flags));
            }
        }
    };
}

thread_word!(
    /// The thread that has a child by `vfork`, as this thread's memory says; 0: none. The child sees the same memory.
    vfork_parent,
    /// Sets the thread that has a child by `vfork`.
    set_vfork_parent,
    "flick_vfork_parent"
);
thread_word!(
    /// The number of this thread, once it was asked for. 0: it was not. A forked process has that of its parent.
    known_thread,
    /// Sets the number of this thread.
    set_known_thread,
    "flick_thread"
);
thread_word!(
    /// Not 0: this thread makes a process, or has made one in its last call (`threads.rs`).
    is_forking,
    /// Sets whether it does.
    set_forking,
    "flick_forking"
);
thread_word!(
    /// The duplicate with which this thread's call goes on after another one has closed its descriptor. 0: none.
    parted_fd,
    /// Sets it.
    set_parted_fd,
    "flick_parted"
);

// Compilers call these for copies and comparisons. The library has its own, hidden, so that no hook enters libc.
#[cfg(flick_preload)]
global_asm!(
    ".macro flick_function name",
    ".hidden \\name",
    ".globl \\name",
    ".type \\name, @function",
    "\\name:",
    ".endm",
    ".pushsection .text.flick_memory, \"ax\", @progbits",
    "flick_function memcpy",
    "mov rax, rdi",
    "mov rcx, rdx",
    "rep movsb",
    "ret",
    "flick_function memset",
    "mov r9, rdi",
    "mov eax, esi",
    "mov rcx, rdx",
    "rep stosb",
    "mov rax, r9",
    "ret",
    "flick_function memmove",
    "mov rax, rdi",
    "mov rcx, rdx",
    "cmp rdi, rsi",
    "jbe 2f",
    "lea rdi, [rdi + rcx - 1]",
    "lea rsi, [rsi + rcx - 1]",
    "std",
    "rep movsb",
    "cld",
    "ret",
    "2: rep movsb",
    "ret",
    "flick_function bcmp",
    "flick_function memcmp",
    "xor eax, eax",
    "mov rcx, rdx",
    "test rcx, rcx",
    "je 2f",
    "repe cmpsb",
    "je 2f",
    "movzx eax, byte ptr [rdi - 1]",
    "movzx ecx, byte ptr [rsi - 1]",
    "sub ecx, eax",
    "mov eax, ecx",
    "2: ret",
    ".popsection",
);
