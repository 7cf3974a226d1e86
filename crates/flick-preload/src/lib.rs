//! The library that `flick accel` preloads into unmodified programs: it sees their system calls on sockets and pipes
//! where libc makes them, counts the bytes of each connection, and with `--move` moves pipes and connections to rings.
//! Promises: a call that is not moved is passed to the kernel unchanged, with its result, its registers and its stack;
//! a hook allocates nothing, calls no function of libc and does not panic; a libc without a patched
//! text, or with other bytes, is left alone.
//! Refuses: programs without glibc (static, musl, Go); architectures other than x86-64.
//! Source: SocksDirect (SIGCOMM 2019) for the idea; zpoline (ATC 2023) and syscall_intercept for rewriting call sites.
//!
//! The build script of `flick` compiles these sources a second time, as a shared library that depends on nothing.
#![cfg_attr(not(test), no_std)]

pub mod image;
pub mod limits;
pub mod numbers;
pub mod permits;
pub mod ring;
pub mod sleep;
pub mod state;
pub mod sync;

#[cfg(all(target_arch = "x86_64", not(loom)))]
pub mod calls;
#[cfg(all(target_arch = "x86_64", not(loom)))]
mod exec;
#[cfg(all(target_arch = "x86_64", not(loom)))]
mod fast;
#[cfg(all(target_arch = "x86_64", not(loom)))]
mod load;
#[cfg(all(target_arch = "x86_64", not(loom)))]
mod moving;
#[cfg(all(target_arch = "x86_64", not(loom)))]
mod polling;
#[cfg(all(target_arch = "x86_64", not(loom)))]
mod raw;
#[cfg(all(target_arch = "x86_64", not(loom)))]
mod registrations;
#[cfg(all(target_arch = "x86_64", not(loom)))]
mod socket;
#[cfg(all(target_arch = "x86_64", not(loom)))]
mod sys;
#[cfg(all(target_arch = "x86_64", not(loom)))]
mod threads;
#[cfg(all(target_arch = "x86_64", not(loom)))]
mod transfer;
#[cfg(all(target_arch = "x86_64", not(loom)))]
mod verify;
#[cfg(all(target_arch = "x86_64", not(loom)))]
mod wait;
#[cfg(all(target_arch = "x86_64", not(loom)))]
mod wake;

/// Ends the process: a hook cannot unwind through frames of libc.
#[cfg(flick_preload)]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    sys::abort()
}
