//! Deaths and stops of programs and of the monitor, in rounds: a stream of known bytes loses and doubles none, and the
//! other end of a dead process learns of it in time. `FLICK_ACCEL_ROUNDS` is the number of rounds; the median, the
//! 99th percentile and the slowest are printed.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::moving::{monitor, pids, rounds, setting_with, signal, start, state_of};
use super::{Setting, run};
use crate::common::wait;

/// Longest time from the death of an end to the error at the other one, on a machine with much other work.
const NOTICE_MAX: Duration = Duration::from_secs(2);
/// Rounds with one pair of processes.
const ROUNDS_OF_PAIR: usize = 100;
/// Time of a stop after which everything has returned to the kernel.
const LONG_STOP: Duration = Duration::from_millis(25);

fn setting(name: &str) -> Setting {
    setting_with(&format!("signals-{name}"), "sockets")
}

/// Waits until a process is stopped.
fn await_stop(pid: u32) {
    wait::until("the stop", || (state_of(pid) == Some('T')).then_some(()));
}

/// Prints the distribution of times, and returns the longest.
fn slowest(what: &str, mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100];
    println!("{what}: {} times, median {:?}, 99 % {:?}, slowest {:?}", times.len(), at(50), at(99), at(100));
    at(100)
}

/// Bytes that both ends have sent, by rings and by the kernel.
fn sent_bytes(setting: &Setting) -> u64 {
    let processes = setting.status();
    let files = processes.iter().filter_map(|process| process["files"].as_array()).flatten();
    files.filter_map(|file| file["sent"].as_u64()).sum()
}

#[test]
fn end_learned_late_of_the_other_ends_death() {
    let setting = setting("deaths");
    let mut times = Vec::new();
    for round in 0..rounds(4) {
        let (family, mode) = (["tcp", "unix"][round % 2], ["echo", "upload"][round / 2 % 2]);
        let program = format!("./sockets {family} {mode} 900000000000");
        let child = start(&setting, &program);
        wait::until("the ring", || (setting.ring_bytes() > 0).then_some(()));
        let ends = pids(&setting, &program);
        let is_parent = round / 4 % 2 == 0;
        let victim = if is_parent { ends.first() } else { ends.last() };
        let began = Instant::now();
        signal(*victim.expect("two processes"), Signal::KILL);
        // Both ends have the pipes of the test: they end with the second process.
        let output = child.wait_with_output().expect("our own child");
        times.push(began.elapsed());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!stderr.contains("wrong byte"), "{stderr}");
        setting.forget_all();
    }
    let slowest = slowest("ends after a death", times);
    assert!(slowest < NOTICE_MAX, "{slowest:?}");
}

#[test]
fn stopped_and_continued_end_lost_or_doubled_bytes() {
    let setting = setting("stops");
    let mut times = Vec::new();
    let all = rounds(12);
    for pair in 0.. {
        if times.len() == all {
            break;
        }
        let (family, mode) = (["tcp", "unix", "pair"][pair % 3], ["echo", "upload"][pair % 2]);
        let program = format!("./sockets {family} {mode} 900000000000");
        let child = start(&setting, &program);
        wait::until("the ring", || (setting.ring_bytes() > 0).then_some(()));
        let ends: Vec<_> = pids(&setting, &program).into_iter().collect();
        for round in 0..ROUNDS_OF_PAIR.min(all - times.len()).min(all.div_ceil(3)) {
            let victim = ends[round % ends.len()];
            signal(victim, Signal::STOP);
            await_stop(victim);
            if round % 3 == 0 {
                std::thread::sleep(LONG_STOP);
            }
            let (before, began) = (sent_bytes(&setting), Instant::now());
            signal(victim, Signal::CONT);
            wait::until("bytes after the stop", || (sent_bytes(&setting) > before).then_some(()));
            times.push(began.elapsed());
        }
        // An end that still runs when the other one is killed would print that its connection has ended.
        ends.iter().for_each(|pid| signal(*pid, Signal::STOP));
        ends.iter().for_each(|pid| await_stop(*pid));
        ends.iter().for_each(|pid| signal(*pid, Signal::KILL));
        let stderr = child.wait_with_output().expect("our own child").stderr;
        let stderr = String::from_utf8_lossy(&stderr);
        assert!(
            !["wrong byte", "answer", "send", "receive"].iter().any(|word| stderr.contains(word)),
            "{stderr}"
        );
        setting.forget_all();
    }
    slowest("continuations after a stop", times);
}

#[test]
fn death_or_stop_of_the_monitor_changed_a_stream() {
    let setting = setting("monitors");
    let (mut times, mut moved) = (Vec::new(), 0);
    for round in 0..rounds(6) {
        let began = Instant::now();
        let program = format!("./sockets {} echo 200000", ["tcp", "unix", "pair"][round % 3]);
        let child = start(&setting, &program);
        let monitor = wait::until("the monitor", || monitor(&setting));
        if round % 3 == 1 {
            wait::within(Duration::from_millis(50), || (setting.ring_bytes() > 0).then_some(()));
        }
        signal(monitor, if round % 2 == 0 { Signal::KILL } else { Signal::STOP });
        let output = child.wait_with_output().expect("our own child");
        signal(monitor, Signal::CONT);
        times.push(began.elapsed());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "200000\nchild 0\n", "round {round}: {stderr}");
        moved += usize::from(setting.ring_bytes() > 0);
        setting.forget_all();
    }
    slowest("programs whose monitor died or stopped", times);
    println!("{moved} of these programs had rings");
    // A monitor that was stopped goes on, and one that has died has a successor.
    wait::until("a ring of the last monitor", || {
        let (status, stdout, stderr) = run(setting.moved("./sockets tcp echo 200000"));
        assert_eq!((status, stdout.as_str()), (0, "200000\nchild 0\n"), "{stderr}");
        let has_moved = setting.ring_bytes() > 0;
        setting.forget();
        has_moved.then_some(())
    });
}

/// The last of a connection: one end sends, and closes or exits, while the other one is stopped in the return of the
/// ring's bytes to the kernel, as the state says. Without the library it is only stopped.
const STOPPED: &str = r#"
import os, signal, socket, struct, sys, time
def state_of(pid): return open(f'/proc/{pid}/stat').read().rsplit(')', 1)[1].split()[0]
def exchange(connection):
    for _ in range(500):
        connection.sendall(b'question')
        assert connection.recv(8) == b'question'
def sending(memory):
    for mapped in open('/proc/self/maps'):
        address = int(mapped.split('-')[0], 16)
        if 'flick-pipe' in mapped and struct.unpack('<I', os.pread(memory, 4, address + 24))[0] == os.getpid():
            if os.pread(memory, 1, address + 64)[0] == 2: return address
def end(connection, peer):
    memory, until, found = os.open('/proc/self/mem', os.O_RDWR), time.monotonic() + 60, None
    while not found:
        assert time.monotonic() < until
        exchange(connection)
        if 'LD_PRELOAD' in os.environ and not sending(memory): continue
        os.kill(peer, signal.SIGSTOP)
        while state_of(peer) != 'T': time.sleep(0.001)
        found = 'LD_PRELOAD' not in os.environ or sending(memory)
        if not found: os.kill(peer, signal.SIGCONT)
    connection.sendall(b'the last')
    # The receiver has frozen the ring.
    if found is not True: os.pwrite(memory, bytes([4]), found + 64)
    if sys.argv[1] == 'close': connection.close()
ours, theirs = socket.socketpair()
peer = os.fork()
if peer == 0:
    ours.close()
    last = b''
    while data := theirs.recv(8):
        if data == b'question': theirs.sendall(data)
        else: last += data
    open('last', 'wb').write(last)
    os._exit(0)
theirs.close()
ending = os.fork()
if ending == 0:
    end(ours, peer)
    os._exit(0)
ours.close()
until = time.monotonic() + 10
while (ended := os.waitpid(ending, os.WNOHANG)) == (0, 0) and time.monotonic() < until: time.sleep(0.01)
if ended == (0, 0):
    for pid in ending, peer: os.kill(pid, signal.SIGKILL)
    sys.exit('it waits')
os.kill(peer, signal.SIGCONT)
print(ended[1], os.waitpid(peer, 0)[1], open('last').read())
"#;

#[test]
fn close_or_exit_waited_for_a_stopped_end_that_returned_bytes() {
    let setting = setting("frozen");
    setting.scratch.write("stopped.py", STOPPED);
    for event in ["close", "exit"] {
        setting.check(&[&format!("/usr/bin/python3 stopped.py {event}")]);
    }
}
