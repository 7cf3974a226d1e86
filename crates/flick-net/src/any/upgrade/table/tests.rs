//! Tests of the reason for which a connection stays in the kernel.

use super::*;

/// Number of a Unix socket or a port.
const KEY: ListenerKey = 8080;
const CONN: Handle = Handle { index: 3, generation: 1 };

fn table() -> UpgradeTable {
    let mut table = UpgradeTable::new(8, 8, "flick-upgrade".into());
    table.connecting(CONN, UPGRADE_ATTEMPTS_MAX);
    table
}

/// Ends the attempts of a connection, each of which meets `met`; returns how many there were.
fn end_attempts(table: &mut UpgradeTable, met: impl Fn(&mut UpgradeTable)) -> u64 {
    let mut attempts = 0;
    while table.candidates.pop().is_some() {
        met(table);
        table.candidates.pop();
        table.end_attempt(CONN, 0);
        attempts += 1;
    }
    attempts
}

fn plain_reason(table: &UpgradeTable) -> Option<PlainReason> {
    table.look(CONN).map(Entry::plain_reason)
}

#[test]
fn service_of_another_user_counted_as_one_that_is_no_flick_process() {
    let mut table = table();
    table.note_absent(KEY, 0, ConnFault::OtherUser, 0);
    table.note_absent(KEY, 1, ConnFault::Refused, 0);
    // The names that are known to be of no use are all that the attempt meets.
    let attempts = end_attempts(&mut table, |table| {
        for name in 0..2 {
            let why = table.absence(KEY, name, 1).expect("it was noted");
            table.note_met(CONN, why);
        }
    });
    assert_eq!((attempts, plain_reason(&table)), (1, Some(PlainReason::OtherUser)));
    assert_eq!((table.stats.plain_other_user, table.stats.plain_no_peer), (1, 0));
}

#[test]
fn connection_without_a_worker_tries_again_and_has_no_peer_at_the_end() {
    let mut table = table();
    let attempts = end_attempts(&mut table, |table| table.note_met(CONN, ConnFault::Refused));
    assert_eq!((attempts, plain_reason(&table)), (UPGRADE_ATTEMPTS_MAX.into(), Some(PlainReason::NoPeer)));
    assert_eq!((table.stats.plain_no_peer, table.stats.plain_other_user), (1, 0));
}

#[test]
fn worker_of_this_user_beside_one_of_another_is_asked_again() {
    let mut table = table();
    let attempts = end_attempts(&mut table, |table| {
        table.note_met(CONN, ConnFault::OtherUser);
        table.ask_next(CONN, ConnFault::Refused);
    });
    assert_eq!((attempts, plain_reason(&table)), (UPGRADE_ATTEMPTS_MAX.into(), Some(PlainReason::Refused)));
    assert_eq!((table.stats.plain_refused, table.stats.plain_other_user), (1, 0));
}

#[test]
fn worker_without_memory_for_rings_counted_as_one_without_the_connection() {
    let mut table = table();
    let attempts = end_attempts(&mut table, |table| table.ask_next(CONN, ConnFault::PairMemory));
    assert_eq!((attempts, plain_reason(&table)), (UPGRADE_ATTEMPTS_MAX.into(), Some(PlainReason::Limit)));
    assert_eq!((table.stats.plain_limit, table.stats.plain_refused), (attempts, 0));
}
