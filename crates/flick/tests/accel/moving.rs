//! Pipes that move to rings: no byte is lost, doubled or out of order, and the kernel's errors stay, whatever happens
//! to the programs. Each comparison requires that bytes went through rings.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::{Setting, compile, run};
use crate::common::wait;

/// Time in which the monitor has to come to a pipe before its programs have ended. On a machine with nothing else to do
/// it does so in the first round; where others keep all cores busy, in one round of twenty.
const PAIRED_MAX: Duration = Duration::from_secs(120);

/// A setting with `pipes.c` in the directory `run`, in which scripts are run.
fn setting(name: &str) -> Setting {
    setting_with(&format!("moving-{name}"), "pipes")
}

/// A setting with a program of ours in the directory in which scripts are run.
pub fn setting_with(name: &str, program: &str) -> Setting {
    let setting = Setting::new(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/accel/{program}.c"));
    compile(&source, &setting.path(program), &[]);
    setting
}

impl Setting {
    /// A script of bash whose pipes move. The tables of its processes are kept.
    pub fn moved(&self, script: &str) -> Command {
        // A session of its own: no process of another user can hold its pipes.
        let mut command = self.accel(&["--verify", "--move", "--", "setsid", "--wait", "bash", "-c", script]);
        command.current_dir(self.scratch.path());
        command
    }

    /// The same script without the library.
    fn plain(&self, script: &str) -> Command {
        let mut command = Command::new("bash");
        command.current_dir(self.scratch.path()).args(["-c", script]);
        command
    }

    /// Bytes that went through rings so far.
    pub fn ring_bytes(&self) -> u64 {
        self.status().iter().filter_map(|process| process["ring_bytes"].as_u64()).sum()
    }

    /// Runs scripts with and without the library until a pipe has moved, and compares what each prints. What bash says
    /// of signals has process numbers and is not compared.
    pub fn check(&self, scripts: &[&str]) {
        let plain: Vec<_> = scripts.iter().map(|script| run(self.plain(script))).collect();
        let has_moved = wait::within(PAIRED_MAX, || {
            for (script, (status, stdout, _)) in scripts.iter().zip(&plain) {
                let moved = run(self.moved(script));
                assert_eq!((&moved.0, &moved.1), (status, stdout), "{script}: {}", moved.2);
            }
            let has_moved = self.ring_bytes() > 0;
            self.forget();
            has_moved.then_some(())
        });
        assert!(has_moved.is_some(), "no byte of {scripts:?} went through a ring");
    }

    /// Waits until all processes have ended, and removes their tables.
    pub fn forget_all(&self) {
        wait::until("the end of all processes", || {
            self.forget();
            self.status().is_empty().then_some(())
        });
    }

    /// Removes the tables of processes that have ended.
    pub fn forget(&self) {
        assert_eq!(run(self.accel(&["--", "true"])).0, 0);
    }
}

#[test]
fn filters_of_the_distribution_pass_each_byte() {
    setting("filters").check(&[
        "seq 1 150000 | cat | tr 1 x | sed -u s/x/1/ | grep -v z | md5sum",
        "seq 1 150000 | awk '{print}' | sort -n | tee copy | dd bs=777 2>/dev/null | md5sum",
        "seq 1 150000 | gzip -1 | cat | gzip -d | cat | wc -l",
        "yes | tr y x | head -n 300000 | md5sum; echo ${PIPESTATUS[@]}",
        "seq 1 20000 | xargs -n 1000 echo | cat | md5sum; ./pipes source 3000000 | cat | md5sum",
    ]);
}

#[test]
fn shells_with_subshells_and_here_documents_read_the_same() {
    setting("shells").check(&[
        "seq 1 3000 | while read line; do echo \"<$line>\"; done | cat | md5sum",
        "cat <<END | (cat; seq 1 100000 | cat) | md5sum\nhere\nEND\n",
        "seq 1 150000 | cat | (read a; read b; echo $a $b; cat) | md5sum",
        "x=$(seq 1 50000 | cat | tail -n 1); echo \"$x\"; seq 1 90000 | (head -n 1; exec cat) | tail -c 1",
    ]);
}

#[test]
fn stream_continues_after_a_fork_a_poll_and_an_exec() {
    let setting = setting("events");
    for event in ["fork", "poll"] {
        setting
            .check(&[&format!("./pipes source 9000000 {event} | ./pipes filter 500 | ./pipes sink 9000000")]);
        setting
            .check(&[&format!("./pipes source 9000000 | ./pipes stdio 64 | ./pipes sink 9000000 {event}")]);
    }
    setting.check(&["./pipes source 9000000 | ./pipes sink 9000000 child"]);
    setting.check(&["./pipes source 9000000 | (ulimit -n 201; exec ./pipes sink 9000000 full)"]);
    setting.check(&["./pipes source 9000000 | ./pipes take 5000000 ./pipes tail"]);
}

#[test]
fn bytes_were_lost_if_no_descriptor_could_be_opened() {
    setting("limit").check(&["./pipes source 9000000 | ./pipes sink 9000000 limit"]);
}

#[test]
fn ends_that_do_not_block_wait_in_each_way() {
    let setting = setting_with("moving-waits", "waits");
    for way in ["poll", "select", "level", "edge"] {
        // The stream lasts until bytes of it went through the ring, however late the monitor comes to it.
        let child = start(&setting, &format!("./waits source 2000000 {way} moved | ./waits sink {way}"));
        wait::until("bytes of the ring", || (setting.ring_bytes() > 0).then_some(()));
        let moved = setting.scratch.write("moved", "");
        let output = child.wait_with_output().expect("our own child");
        let sent = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stdout)), (Some(0), sent), "{way}");
        std::fs::remove_file(moved).expect("our own file");
        setting.forget();
    }
}

#[test]
fn event_loop_slept_in_the_kernel_while_the_other_end_entered_the_ring() {
    let setting = setting_with("moving-loops", "waits");
    for way in ["poll", "select", "level", "edge"] {
        setting.check(&[&format!("./waits loops {way} 1 3000"), &format!("./waits loops {way} 10 300")]);
    }
}

#[test]
fn calls_that_wait_return_what_they_return_for_a_pipe_of_the_kernel() {
    let setting = setting_with("moving-model", "waits");
    let seeds = std::env::var("FLICK_ACCEL_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(2);
    for seed in 1..=seeds {
        setting.check(&[&format!("./waits model {seed} 1000")]);
    }
}

#[test]
fn static_program_continues_where_the_ring_ended() {
    let setting = setting("static");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/accel/pipes.c");
    compile(&source, &setting.path("static"), &["-static"]);
    setting.check(&["./pipes source 9000000 | ./pipes take 5000000 ./static tail"]);
}

#[test]
fn ends_that_die_lose_what_the_kernel_loses_and_no_more() {
    let setting = setting("deaths");
    for bytes in [4_000_003, 9_000_000] {
        let source = format!("(./pipes source {bytes} die) 2>/dev/null | ./pipes sink {bytes}");
        let sink = format!("./pipes source {bytes} | (./pipes sink {bytes} die) 2>&1");
        for script in [source, sink] {
            setting.check(&[&format!("{script}; echo ${{PIPESTATUS[@]}}")]);
        }
    }
}

#[test]
fn write_to_a_dead_reader_fails() {
    let script = "./pipes broken 0 | ./pipes filter 64 | head -c 3000000 > /dev/null; echo ${PIPESTATUS[@]}";
    setting("broken").check(&[script]);
}

#[test]
fn signals_end_and_restart_reads_beside_a_ring() {
    setting("signals").check(&["./pipes feed | ./pipes interrupted"]);
}

#[test]
fn process_whose_first_thread_has_ended_held_a_pipe_unseen() {
    let setting = setting("first-thread");
    let source = "./pipes source 900000000000";
    let script = format!("(./pipes hold & sleep 0.2; exec {source}) | ./pipes sink 900000000000");
    let mut child = start(&setting, &script);
    wait::until("the reason why the pipe is in the kernel", || {
        assert_eq!(setting.ring_bytes(), 0);
        let processes = setting.status();
        let files = processes.iter().filter_map(|process| process["files"].as_array()).flatten();
        let mut whys =
            files.filter(|file| file["kind"] == "pipe-write" && file["sent"].as_u64() > Some(1000));
        whys.any(|file| file["why_kernel"].as_str().is_some_and(|why| why.starts_with("its ends")))
            .then_some(())
    });
    for pid in pids(&setting, source) {
        signal(pid, Signal::KILL);
    }
    child.wait().expect("our own child");
}

/// Processes of a setting with this name.
pub fn pids(setting: &Setting, arguments: &str) -> BTreeSet<u32> {
    let processes = setting.status();
    let pids = processes.iter().filter_map(|process| u32::try_from(process["pid"].as_u64()?).ok());
    let is_meant = |pid: &u32| {
        let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.replace('\0', " ").trim_end() == arguments
    };
    pids.filter(is_meant).collect()
}

pub fn signal(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process's number");
    // It may have ended by itself.
    let _ = kill_process(pid, signal);
}

pub fn start(setting: &Setting, script: &str) -> Child {
    let mut command = setting.moved(script);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).stdin(Stdio::null());
    command.spawn().expect("bash starts")
}

/// Runs a program of two processes until bytes went through its rings, later from round to round, and kills one of the
/// two. Returns what it wrote to standard error.
pub fn kill_one_end(setting: &Setting, program: &str, round: usize, is_parent: bool) -> String {
    let child = start(setting, program);
    wait::until("the ring", || (setting.ring_bytes() > 1000 * round as u64).then_some(()));
    // The parent has the smaller number.
    let ends = pids(setting, program);
    let victim = if is_parent { ends.first() } else { ends.last() };
    signal(*victim.expect("two processes"), Signal::KILL);
    let output = child.wait_with_output().expect("our own child");
    setting.forget_all();
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Rounds of a test that kills or stops processes: `FLICK_ACCEL_ROUNDS`, else `few`.
pub fn rounds(few: usize) -> usize {
    std::env::var("FLICK_ACCEL_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(few)
}

pub fn state_of(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

#[test]
fn stopped_ends_hold_up_their_own_pipe_only() {
    let setting = setting("stops");
    for (source, sink) in [(" stop", ""), ("", " stop")] {
        let script = format!("./pipes source 9000000{source} | ./pipes sink 9000000{sink}");
        let child = start(&setting, &script);
        let meant = if sink.is_empty() { "./pipes source 9000000 stop" } else { "./pipes sink 9000000 stop" };
        let pid = wait::until("the stop", || {
            pids(&setting, meant).into_iter().find(|pid| state_of(*pid) == Some('T'))
        });
        signal(pid, Signal::CONT);
        let output = child.wait_with_output().expect("our own child");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "9000000\n");
    }
}

#[test]
fn killed_ends_at_any_moment_leave_a_prefix() {
    let setting = setting("kills");
    for round in 0..rounds(6) {
        let child = start(&setting, "./pipes source 900000000000 | ./pipes sink 900000000000");
        let meant = ["./pipes source 900000000000", "./pipes sink 900000000000"][round % 2];
        let pid = wait::until("the program", || pids(&setting, meant).into_iter().next());
        wait::until("the ring", || (setting.ring_bytes() > 1000 * round as u64).then_some(()));
        signal(pid, Signal::KILL);
        let output = child.wait_with_output().expect("our own child");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!stderr.contains("wrong byte"), "{stderr}");
        if round % 2 == 0 {
            assert!(output.stdout.ends_with(b"\n"), "the reader did not come to the end: {stderr}");
        }
        setting.forget();
    }
}

/// The monitor of a setting: it has the lock for as long as it runs, while a program that starts looks whether it can.
pub fn monitor(setting: &Setting) -> Option<u32> {
    let lock = std::fs::metadata(setting.path("run/flick-accel/monitor.lock")).ok()?;
    let inode = format!(":{}", lock.ino());
    let locks = std::fs::read_to_string("/proc/locks").expect("the kernel lists locks");
    // `1: FLOCK  ADVISORY  WRITE PID DEVICE:INODE 0 EOF`
    let mut pids = locks.lines().filter_map(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        fields.get(5)?.ends_with(&inode).then(|| fields[4].parse().ok())?
    });
    pids.find(|pid: &u32| {
        let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.trim_end_matches('\0').ends_with("\0monitor")
    })
}

#[test]
fn death_of_the_monitor_disturbs_no_pipe() {
    let setting = setting("monitor");
    let mut child = start(&setting, "./pipes source 900000000000 | ./pipes sink 900000000000");
    wait::until("the ring", || (setting.ring_bytes() > 0).then_some(()));
    signal(wait::until("the monitor", || monitor(&setting)), Signal::KILL);
    let before = setting.ring_bytes();
    wait::until("more bytes", || (setting.ring_bytes() > before + 1_000_000).then_some(()));
    for pid in pids(&setting, "./pipes source 900000000000") {
        signal(pid, Signal::KILL);
    }
    assert!(child.wait().expect("our own child").success());
    setting.forget();
    setting.check(&["./pipes source 9000000 | ./pipes sink 9000000"]);
}
