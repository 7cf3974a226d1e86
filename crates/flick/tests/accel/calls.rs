//! Calls that a ring does not serve, on a connection that moves and on other files (`calls.c`): they find what they
//! find in the kernel.

use rustix::process::Signal;

use super::moving::{pids, setting_with, signal, start};
use super::{Setting, run};
use crate::common::wait;

fn setting(name: &str) -> Setting {
    setting_with(&format!("calls-{name}"), "calls")
}

#[test]
fn select_of_many_descriptors_beside_threads_read_behind_its_set() {
    let setting = setting("many");
    let program = setting.path("calls");
    let program = program.to_str().expect("a path in UTF-8");
    let (status, stdout, stderr) = run(setting.accel(&["--move", "--", program, "select_many"]));
    assert_eq!((status, stdout.as_str()), (0, "selected\n"), "{stderr}");
}

/// Compares what a mode of `calls.c` prints with and without the library.
fn check(setting: &Setting, families: &[&str], mode: &str) {
    for family in families {
        setting.check(&[&format!("./calls {family} {mode} 20000")]);
    }
}

/// As `check`, of a mode whose connection stays in the kernel, until another one beside it has moved.
fn check_unmoved(setting: &Setting, families: &[&str], mode: &str) {
    for family in families {
        setting.check(&[&format!("./calls {family} {mode} 20000; ./calls {family} nothing 20000")]);
    }
}

#[test]
fn receive_of_no_bytes_slept_while_the_ring_had_some() {
    check(&setting("nothing"), &["tcp", "pair"], "nothing");
}

#[test]
fn select_of_a_duplicate_did_not_see_bytes_of_the_ring() {
    check(&setting("duplicate"), &["tcp", "pair"], "duplicate");
}

#[test]
fn socket_that_was_connected_again_spoke_to_its_old_peer() {
    check(&setting("again"), &["tcp"], "again");
}

#[test]
fn connection_that_was_passed_by_sendmmsg_lost_its_bytes() {
    check(&setting("passed"), &["tcp", "pair"], "passed");
}

#[test]
fn sender_that_does_not_wait_never_saw_that_its_receiver_was_killed() {
    check(&setting("killed"), &["pipe"], "killed");
}

#[test]
fn thread_that_waited_for_a_process_kept_all_in_the_kernel() {
    check(&setting("spawn"), &["tcp", "pair"], "spawn");
}

#[test]
fn thread_that_ended_behind_its_fork_kept_all_in_the_kernel() {
    check(&setting("spawn-and-end"), &["tcp", "pair"], "spawn_and_end");
}

#[test]
fn peeks_began_with_the_first_byte_again() {
    check_unmoved(&setting("peeks"), &["tcp", "pair"], "peeks");
}

#[test]
fn message_named_its_receiver_as_its_sender() {
    check_unmoved(&setting("sender"), &["pair"], "sender");
}

#[test]
fn signal_ended_a_wait_for_a_ring_that_had_bytes() {
    check(&setting("ready"), &["tcp", "pair"], "ready");
}

#[test]
fn bad_addresses_of_other_files_ended_the_program() {
    check(&setting("faults"), &["tcp", "pair"], "faults");
}

#[test]
fn message_in_parts_was_held_up_where_it_entered_the_ring() {
    // One may have been held up by other processes of the machine.
    let count = "for i in {1..10}; do ./calls tcp more 3000; done | grep -c 'held up'";
    setting("more").check(&[&format!("[ $({count}) -lt 3 ]; echo $?")]);
}

#[test]
fn connection_that_holds_sends_back_entered_the_ring() {
    let setting = setting("corked");
    let program = "./calls tcp corked 1";
    let mut child = start(&setting, program);
    wait::until("the reason why it is in the kernel", || {
        assert_eq!(setting.ring_bytes(), 0);
        let processes = setting.status();
        let files = processes.iter().filter_map(|process| process["files"].as_array()).flatten();
        let mut whys = files.filter_map(|file| file["why_kernel"].as_str());
        whys.any(|why| why.starts_with("it has timeouts, flags")).then_some(())
    });
    for pid in pids(&setting, program) {
        signal(pid, Signal::KILL);
    }
    child.wait().expect("our own child");
}
