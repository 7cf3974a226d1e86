//! Registrations in epoll instances that the kernel gets later (`registrations.c`): whatever asks an instance sees what
//! the program has registered, errors are the kernel's, and most calls do not reach it.

use super::moving::setting_with;
use super::{Setting, run};
use crate::common::wait;

fn setting(name: &str) -> Setting {
    setting_with(&format!("registrations-{name}"), "registrations")
}

/// Calls of `epoll_ctl` that were kept, and those that the kernel got in their place, over all processes.
fn controls(setting: &Setting) -> [u64; 2] {
    ["controls_kept", "controls_sent"]
        .map(|name| setting.status().iter().filter_map(|process| process["waits"][name].as_u64()).sum())
}

/// Runs the program with these arguments until calls were kept in it; it prints what it is expected to each time.
fn check(setting: &Setting, arguments: &str, expected: &str) {
    wait::until("calls that are kept", || {
        let (status, stdout, stderr) = run(setting.moved(&format!("./registrations {arguments}")));
        assert_eq!((status, stdout.as_str()), (0, expected), "{arguments}: {stderr}");
        let [kept, _] = controls(setting);
        setting.forget();
        (kept > 0).then_some(())
    });
}

#[test]
fn removed_file_was_reported() {
    check(&setting("removed"), "known removed", "equal\n");
}

#[test]
fn file_that_was_added_again_was_there_already() {
    check(&setting("errors"), "known errors", "equal\n");
}

#[test]
fn end_of_a_pipe_was_seen_late_or_with_earlier_data() {
    let setting = setting("ended");
    for way in ["level", "edge", "removed"] {
        check(&setting, &format!("known ended {way}"), "equal\n");
    }
}

#[test]
fn duplicate_of_a_file_kept_what_was_removed() {
    let setting = setting("duplicated");
    for way in ["removed", "changed"] {
        check(&setting, &format!("known duplicated {way}"), "equal\n");
    }
}

#[test]
fn instance_with_the_number_of_a_closed_one_lost_a_file() {
    check(&setting("reopened"), "known reopened", "equal\n");
}

#[test]
fn instance_was_blind_to_rings_after_a_call_that_failed_to_replace_it() {
    let setting = setting("refused");
    for way in ["dup2", "dup3", "close_range"] {
        check(&setting, &format!("known refused {way}"), "equal\n");
    }
}

#[test]
fn change_of_a_signal_handler_that_had_waited_was_missed() {
    check(&setting("handled"), "questions 1 6400 handled", "6400 1\n");
}

#[test]
fn file_of_an_instance_that_was_duplicated_before_was_not_reported() {
    let setting = setting("early");
    for way in ["dup", "around"] {
        check(&setting, &format!("known early {way}"), "equal\n");
    }
}

#[test]
fn others_that_ask_an_instance_saw_earlier_registrations() {
    let setting = setting("asked");
    for way in ["fork", "thread", "dup", "dup2", "fcntl", "passed", "around", "poll", "select"] {
        for name in ["asked", "asked-removed"] {
            check(&setting, &format!("known {name} {way}"), "equal\n");
        }
    }
    // The next program has counts of its own.
    setting.check(&["./registrations known exec"]);
}

#[test]
fn sequences_at_random_return_what_they_return_for_a_pipe_of_the_kernel() {
    let setting = setting("model");
    let seeds = std::env::var("FLICK_ACCEL_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(3);
    for seed in 1..=seeds {
        check(&setting, &format!("model {seed} 3000"), "equal\n");
    }
}

#[test]
fn client_that_removes_and_adds_for_each_question_asked_the_kernel_each_time() {
    let setting = setting("questions");
    for (clients, name) in [(1, ""), (10, ""), (50, ""), (10, "signals"), (10, "fork")] {
        let count = 100_000 / clients;
        let answered = format!("{} 1\n", count * clients);
        wait::until("calls that are kept", || {
            let command = format!("./registrations questions {clients} {count} {name}");
            let (status, stdout, stderr) = run(setting.moved(&command));
            assert_eq!((status, &stdout), (0, &answered), "{command}: {stderr}");
            let [kept, sent] = controls(&setting);
            setting.forget();
            // A question takes four calls, which go in pairs: of each the kernel gets one call or none.
            assert!(sent <= kept / 2 + clients, "{command}: {sent} calls in place of {kept}");
            // A handler that waits within a call on a connection takes that out of its ring, and a fork takes out all.
            let kept_min = if name.is_empty() { 2 * count * clients } else { 1 };
            (kept >= kept_min).then_some(())
        });
    }
}
