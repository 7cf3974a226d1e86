//! Event loops that wait beside their rings (`waits.c`, mode `loops`): no wake-up is lost, and times, signals, deaths,
//! stops and forks are those of the kernel.

use rustix::process::Signal;

use super::moving::{kill_one_end, pids, rounds, setting_with, signal, start, state_of};
use super::{Setting, run};
use crate::common::wait;

/// Sleeps beside rings that a comparison of counts needs.
const SLEEPS_MIN: u64 = 100;

const CALLS: [&str; 5] = ["poll", "select", "level", "edge", "once"];

fn setting(name: &str) -> Setting {
    setting_with(&format!("waits-{name}"), "waits")
}

/// Sums of one of the counts of waits, over all processes.
fn sum(setting: &Setting, count: &str) -> u64 {
    setting.status().iter().filter_map(|process| process["waits"][count].as_u64()).sum()
}

#[test]
fn event_loop_left_its_rings_whenever_it_waited() {
    let setting = setting("loops");
    for way in CALLS {
        let [mut slept, mut woken, mut late] = [0; 3];
        wait::until("sleeps beside rings", || {
            let (status, stdout, stderr) = run(setting.moved(&format!("./waits loops {way} 10 1000")));
            assert_eq!((status, stdout.as_str()), (0, "1\n"), "{way}: {stderr}");
            slept += sum(&setting, "slept");
            woken += sum(&setting, "woken");
            late += sum(&setting, "late");
            setting.forget();
            (slept >= SLEEPS_MIN).then_some(())
        });
        // A sleep ends after 20 milliseconds also if its wake-up is lost.
        assert!(late <= 1 + slept / 50, "{way}: of {slept} sleeps {late} ended late");
        assert!(woken <= slept + slept / 10, "{way}: {slept} sleeps took {woken} wake-ups");
    }
}

#[test]
fn waits_beside_rings_end_in_time_and_with_signals() {
    let setting = setting("vain");
    for way in ["poll", "select", "edge"] {
        setting.check(&[&format!("./waits loops {way} 1 2500 vain")]);
    }
}

#[test]
fn fork_in_the_middle_wakes_both_loops() {
    let setting = setting("fork");
    for way in ["poll", "level", "once"] {
        setting.check(&[&format!("./waits loops {way} 3 2000 fork")]);
    }
}

#[test]
fn edge_of_a_ring_behind_the_last_byte_of_the_kernel_came_late() {
    let setting = setting("border");
    wait::until("a short read", || {
        let (status, stdout, stderr) = run(setting.moved("./waits border 10"));
        assert_eq!((status, stdout.as_str()), (0, "in time 1\n"), "{stderr}");
        setting.forget();
        (!stderr.lines().any(|line| line == "0 short reads")).then_some(())
    });
}

#[test]
fn program_that_closes_unknown_descriptors_is_woken() {
    let setting = setting("close");
    for way in ["select", "level"] {
        setting.check(&[&format!("./waits loops {way} 3 2000 close")]);
    }
}

#[test]
fn receiver_whose_event_cannot_be_had_is_woken_by_the_kernel() {
    let setting = setting("limit");
    wait::until("a refused wake-up", || {
        let (status, stdout, stderr) = run(setting.moved("./waits loops level 3 4000 limit"));
        assert_eq!((status, stdout.as_str()), (0, "1\n"), "{stderr}");
        let refused = sum(&setting, "refused");
        setting.forget();
        (refused > 0).then_some(())
    });
}

#[test]
fn end_of_a_killed_process_wakes_the_other_loop() {
    let setting = setting("kills");
    for round in 0..rounds(5) {
        let program = format!("./waits loops {} 4 1000000000", CALLS[round % CALLS.len()]);
        let stderr = kill_one_end(&setting, &program, round, round % 2 == 0);
        assert!(!["stalled", "wrong", "write", "wait"].iter().any(|word| stderr.contains(word)), "{stderr}");
    }
}

#[test]
fn programs_polled_on_all_cores() {
    let setting = setting_with("waits-polling", "sockets");
    assert_eq!(run(setting.accel(&["--move", "--", "true"])).0, 0);
    let path = setting.path("run/flick-accel/polling");
    let page = std::fs::read(&path).expect("the permits to poll");
    for (permits, are_refused) in [(0, true), (8, false)] {
        let page = [&u32::to_le_bytes(permits)[..], &page[4..]].concat();
        std::fs::write(&path, page).expect("our own file");
        let refused = wait::until("bytes in rings", || {
            let (status, stdout, stderr) = run(setting.moved("./sockets tcp echo 2000000"));
            assert_eq!((status, stdout.as_str()), (0, "2000000\nchild 0\n"), "{stderr}");
            let (moved, refused) = (setting.ring_bytes(), sum(&setting, "polls_refused"));
            setting.forget();
            (moved > 0).then_some(refused)
        });
        assert_eq!(refused > 0, are_refused, "{permits} permits: {refused} waits slept early");
    }
}

#[test]
fn stopped_process_lets_the_other_loop_sleep_in_the_kernel_and_goes_on() {
    let setting = setting("stops");
    for (round, way) in ["select", "level"].iter().enumerate() {
        let program = format!("./waits loops {way} 4 10000");
        wait::until("the ring before the end", || {
            let child = start(&setting, &program);
            let victim = wait::until("two processes or the end", || {
                let pids = pids(&setting, &program);
                let is_moved = setting.ring_bytes() > 1000;
                (is_moved || setting.status().iter().any(|process| process["ended"] == true))
                    .then(|| if round % 2 == 0 { pids.first().copied() } else { pids.last().copied() })
            });
            let mut is_stopped = false;
            if let Some(victim) = victim {
                signal(victim, Signal::STOP);
                is_stopped = wait::until("the stop or the end", || match state_of(victim) {
                    Some('T') => Some(true),
                    None | Some('Z' | 'X') => Some(false),
                    Some(_) => None,
                });
                // The other one comes to the bound of its sleep meanwhile.
                std::thread::sleep(std::time::Duration::from_millis(if is_stopped { 40 } else { 0 }));
                signal(victim, Signal::CONT);
            }
            let output = child.wait_with_output().expect("our own child");
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert_eq!(String::from_utf8_lossy(&output.stdout), "1\n", "{way}: {stderr}");
            setting.forget();
            is_stopped.then_some(())
        });
    }
}
