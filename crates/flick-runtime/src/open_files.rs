//! How many files a service may have open at a time: its clients, and its connections to backends.
//! Promises: enough for as many clients as there may be with an exchange under way each.
//! Refuses: to count a connection for each of several requests that one client sends ahead: few do, and those then wait. The
//! machine's limit; whoever starts the service compares.

use flick_abi::Program;

use crate::config::PlatformConfig;
use crate::setup::{BoundBackends, StartError, lent_links_max};

/// What a worker has for itself: its driver, its wakers, its timers; generous.
const OF_A_WORKER: u64 = 8;

/// Files that a service may have open. Errors: the bindings do not fit the process.
pub fn open_files(program: &Program, config: &PlatformConfig) -> Result<u64, StartError> {
    let limits = &config.limits;
    let bound = BoundBackends::of(program, config)?;
    let private = config.listen.first().and_then(|binding| {
        let listened = program.channels.iter().find(|channel| channel.name == binding.channel)?;
        Some(program.protocols[listened.protocol].is_private() && program.merges.is_empty())
    });
    let private = private.unwrap_or(false);
    let backends: u32 = bound.rooms.iter().map(|room| room.slots.len() as u32).sum();
    let lent_of = |(channel, room): (&flick_abi::Channel, &crate::roster::Room)| {
        let protocol = &program.protocols[channel.protocol];
        room.slots.len() as u64 * u64::from(lent_links_max(limits, protocol, private, backends))
    };
    let lent: u64 = program.channels.iter().zip(&bound.rooms).map(lent_of).sum();
    let workers = config.workers.max(1) as u64;
    let sessions = u64::from(limits.sessions_max);
    // A connection that is lent carries something of a client, so there are no more of them than clients.
    let links = workers * u64::from(backends) + (workers * lent).min(sessions);
    let listened: u64 = config.listen.iter().map(|binding| binding.endpoints.len() as u64).sum();
    Ok(sessions + links + workers * (listened + OF_A_WORKER))
}
