//! Filters: services between descriptors of their process, with real pipes and files.
//! Promises: bytes come out as they went in, in order, and the exit status says whether all did.

mod common;

use std::fs::File;
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use common::{Scratch, captured, flick, run, wait};

/// The service of all tests: it forwards every message.
const COUNTER: &str = "examples/packet_counter/packet_counter.flick";

/// The exit status of a process that SIGPIPE ends, as a shell reports it.
const BROKEN_PIPE: i32 = 128 + 13;

/// The exit status of a process that SIGINT ends.
const INTERRUPTED: i32 = 128 + 2;

/// A capture with this many records of 64 bytes.
fn capture(records: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 262_144, 1] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend((0..records).flat_map(record));
    bytes
}

fn record(number: u32) -> Vec<u8> {
    let words = [number, 0, 64, 64].map(u32::to_le_bytes).concat();
    [words, vec![number as u8; 64]].concat()
}

/// The tool as a filter of standard input to standard output.
fn filter() -> Command {
    filter_of("stdin:", "stdout:")
}

fn filter_of(from: &str, to: &str) -> Command {
    let mut command = flick();
    command.args([
        "run",
        COUNTER,
        "--listen",
        &format!("capture={from}"),
        "--connect",
        &format!("next={to}"),
    ]);
    command.stderr(Stdio::piped());
    command
}

/// Filters `input` through pipes; the status, the output and the log.
fn filtered(mut command: Command, input: &[u8]) -> (Option<i32>, Vec<u8>, String) {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the tool starts");
    let mut stdin = child.stdin.take().expect("it was asked for");
    thread::scope(|scope| {
        // A filter that refuses its input does not read it all.
        scope.spawn(move || stdin.write_all(input));
        let output = child.wait_with_output().expect("it is our own");
        (output.status.code(), output.stdout, String::from_utf8_lossy(&output.stderr).into_owned())
    })
}

fn status(mut child: Child) -> Option<i32> {
    wait::until("a filter to end", || child.try_wait().expect("it is our own")).code()
}

/// The rest of a filter's log, once it has ended.
fn log_of(child: &mut Child) -> String {
    let mut log = String::new();
    child.stderr.take().expect("it was asked for").read_to_string(&mut log).expect("the log is text");
    log
}

/// Two filters with a pipe between them; the first one reads `stdin`, and the parent keeps the ends that it returns.
fn chained(stdin: Stdio, stdout: Stdio) -> (Child, Child) {
    let (reader, writer) = pipe().expect("descriptors are left");
    let second = filter().stdin(reader).stdout(stdout).spawn().expect("the tool starts");
    let first = filter().stdin(stdin).stdout(writer).spawn().expect("the tool starts");
    (first, second)
}

fn pipes() -> ((PipeReader, PipeWriter), (PipeReader, PipeWriter)) {
    (pipe().expect("descriptors are left"), pipe().expect("descriptors are left"))
}

#[test]
fn filter_copies_pipes_with_both_drivers_and_engines() {
    let input = capture(20_000);
    for extra in [["--io", "epoll"], ["--io", "auto"], ["--engine", "interpreter"]] {
        let mut command = filter();
        command.args(extra);
        let (code, output, log) = filtered(command, &input);
        assert_eq!(code, Some(0), "{extra:?}: {log}");
        assert!(output == input, "{extra:?}: {} of {} bytes", output.len(), input.len());
        assert!(log.contains("packets 20000"), "{log}");
        assert!(!log.contains("--user"), "a filter refuses this option: {log}");
        assert!(!log.contains("shm_"), "copies within the process are no use of shared memory: {log}");
    }
}

#[test]
fn filter_copies_files_that_epoll_refuses() {
    let scratch = Scratch::new("files");
    let input = capture(1000);
    let (from, to) = (scratch.path().join("in.pcap"), scratch.path().join("out.pcap"));
    std::fs::write(&from, &input).expect("the directory can be written");
    let mut command = filter();
    command.stdin(File::open(&from).expect("it is there")).stdout(File::create(&to).expect("it can be"));
    let (code, _, log) = captured(command.output().expect("the tool starts"));
    assert_eq!(code, 0, "{log}");
    assert!(std::fs::read(&to).expect("it is there") == input);
    let path = |path: &Path| format!("pipe:{}", path.display());
    let (code, _, log) = captured(filter_of(&path(&from), &path(&to)).output().expect("the tool starts"));
    assert_eq!(code, 0, "{log}");
    assert!(std::fs::read(&to).expect("it is there") == input);
}

#[test]
fn filter_of_an_empty_input_ends_with_success() {
    let (reader, writer) = pipe().expect("descriptors are left");
    drop(writer);
    for stdin in [Stdio::null(), Stdio::from(reader)] {
        let output = filter().stdin(stdin).output().expect("the tool starts");
        assert_eq!(captured(output.clone()).0, 0, "{}", String::from_utf8_lossy(&output.stderr));
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn message_that_the_input_cuts_off_is_an_error() {
    let input = capture(10);
    let (code, output, log) = filtered(filter(), &input[..input.len() - 1]);
    assert_eq!(code, Some(1), "{log}");
    assert!(output == capture(9), "whole messages are written: {} bytes", output.len());
    assert!(log.contains("the input of `Count` ends inside a message"), "{log}");
}

/// Only a message above 16 KiB is passed on before all of it is there.
#[test]
fn message_above_the_buffer_is_cut_in_the_output_too() {
    /// The longest record that fits, behind its header.
    const WHOLE_BYTES: u32 = 16 * 1024 - 16;
    for (bytes, is_streamed) in [(WHOLE_BYTES, false), (WHOLE_BYTES + 1, true)] {
        let header = [10, 0, bytes, bytes].map(u32::to_le_bytes).concat();
        let input = [capture(10), header, vec![10; bytes as usize - 1]].concat();
        let (code, output, log) = filtered(filter(), &input);
        assert_eq!(code, Some(1), "{bytes}: {log}");
        let expected = if is_streamed { &input } else { &capture(10) };
        assert!(output == *expected, "{bytes}: {} bytes, not {}", output.len(), expected.len());
        assert!(log.contains("the input of `Count` ends inside a message"), "{bytes}: {log}");
    }
}

#[test]
fn malformed_message_ends_the_filter_with_an_error() {
    for (records, taken) in [(0, "1 good message"), (1000, "1001 good messages")] {
        let input = [capture(records), vec![0xff; 1 << 20]].concat();
        let (code, _, log) = filtered(filter(), &input);
        assert_eq!(code, Some(1), "{log}");
        let expected =
            format!("the input of `Count` is malformed: a message violates its grammar; it follows {taken}");
        assert!(log.contains(&expected), "{log}");
        assert!(!log.contains("it begins like"), "it is of the format that the filter reads: {log}");
    }
}

#[test]
fn capture_of_another_format_was_only_malformed() {
    let mut big_endian = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0002_0004, 0, 0, 262_144, 1] {
        big_endian.extend(word.to_be_bytes());
    }
    // The header of a section, whose byte order is behind its length.
    let next_generation = [0x0a0d_0d0a_u32, 28, 0x1a2b_3c4d, 1, !0, !0, 28].map(u32::to_le_bytes).concat();
    for (input, expected) in [
        (next_generation, "it begins like pcapng; convert it with `editcap -F pcap IN OUT`"),
        (big_endian, "a big-endian packet capture; the library `pcap_big` reads those"),
    ] {
        let (code, output, log) = filtered(filter(), &input);
        assert_eq!((code, output.len()), (Some(1), 0), "{log}");
        assert!(log.contains("the input of `Count` is malformed") && log.contains(expected), "{log}");
    }
}

#[test]
fn state_named_a_descriptor_by_its_shared_memory() {
    let ((stdin, mut input), (mut output, stdout)) = pipes();
    let child = filter().args(["--admin", "0"]).stdin(stdin).stdout(stdout).spawn();
    let mut child = child.expect("the tool starts");
    input.write_all(&capture(1)).expect("the pipe has space");
    output.read_exact(&mut vec![0; capture(1).len()]).expect("the record arrives");
    let line = until_logged(&mut child, "admin endpoint");
    let admin = common::service::address_in(&line, "admin endpoint").expect("the line has it");
    let state = common::service::seen(admin, "/api/state").1;
    assert!(state.contains("\"stdin:\"") && state.contains("\"stdout:\""), "{state}");
    assert!(!state.contains("flick-descriptor"), "{state}");
    drop(input);
    assert_eq!(status(child), Some(0));
}

#[test]
fn filter_asked_for_the_memory_of_a_server() {
    let (code, _, log) = run(&[
        "run",
        "--check",
        COUNTER,
        "--listen",
        "capture=stdin:",
        "--connect",
        "next=stdout:",
        "--max-memory",
        "24MiB",
    ]);
    assert_eq!(code, 0, "{log}");
}

#[test]
fn reader_that_is_gone_ends_the_filter_as_a_signal_would() {
    let ((stdin, mut input), (output, stdout)) = pipes();
    let child = filter().stdin(stdin).stdout(stdout).spawn().expect("the tool starts");
    drop(output);
    // The filter may end before the whole capture is written.
    let _ = input.write_all(&capture(20_000));
    assert_eq!(status(child), Some(BROKEN_PIPE));
}

#[test]
fn full_disk_is_an_error() {
    let (code, _, log) = {
        let mut command = filter();
        command.stdout(File::options().write(true).open("/dev/full").expect("Linux has it"));
        let scratch = Scratch::new("full");
        let from = scratch.path().join("in.pcap");
        std::fs::write(&from, capture(10)).expect("the directory can be written");
        captured(command.stdin(File::open(from).expect("it is there")).output().expect("the tool starts"))
    };
    assert_eq!(code, 1, "{log}");
    assert!(log.contains("cannot write to `stdout:`"), "{log}");
}

#[test]
fn filters_in_a_pipeline_use_shared_memory() {
    let input = capture(50_000);
    let ((stdin, mut to), (mut from, stdout)) = pipes();
    let (mut first, mut second) = chained(stdin.into(), stdout.into());
    let output = thread::scope(|scope| {
        scope.spawn(|| {
            to.write_all(&input).expect("the filters read it");
            drop(to);
        });
        let mut output = Vec::new();
        from.read_to_end(&mut output).expect("a pipe");
        output
    });
    let logs = (log_of(&mut first), log_of(&mut second));
    assert!(output == input, "{} of {} bytes; {logs:?}", output.len(), input.len());
    assert!(logs.0.contains("is a flick process: using shared memory"), "{logs:?}");
    assert!(logs.0.contains("shm_bytes_sent") && logs.1.contains("shm_bytes_received"), "{logs:?}");
    assert_eq!((status(first), status(second)), (Some(0), Some(0)), "{logs:?}");
}

#[test]
fn filter_that_reads_and_writes_one_file_emptied_it() {
    let scratch = Scratch::new("one-file");
    let [file, second_name] = ["file", "name"].map(|name| scratch.path().join(name));
    std::fs::write(&file, capture(10)).expect("the directory can be written");
    std::fs::hard_link(&file, &second_name).expect("the directory can be written");
    let [from, to] = [&file, &second_name].map(|path| format!("pipe:{}", path.display()));
    let mut refused = filter_of(&from, &to).spawn().expect("the tool starts");
    let log = log_of(&mut refused);
    assert_eq!(status(refused), Some(2), "{log}");
    assert!(log.contains("is the file that"), "{log}");
    assert!(std::fs::read(&file).expect("it is there") == capture(10));
}

#[test]
fn filter_without_shared_memory_uses_the_pipe() {
    let (reader, writer) = pipe().expect("descriptors are left");
    let scratch = Scratch::new("no-rings");
    let [from, to] = ["in", "out"].map(|name| scratch.path().join(name));
    std::fs::write(&from, capture(1000)).expect("the directory can be written");
    let out = File::create(&to).expect("the directory can be written");
    let last = filter().stdin(reader).stdout(out).spawn().expect("the tool starts");
    let input = File::open(&from).expect("it is there");
    let first = filter().args(["--shm", "off"]).stdin(input).stdout(writer).spawn();
    let mut first = first.expect("the tool starts");
    let log = log_of(&mut first);
    assert_eq!((status(first), status(last)), (Some(0), Some(0)), "{log}");
    assert!(!log.contains("using shared memory"), "{log}");
    assert!(std::fs::read(&to).expect("it is there") == capture(1000));
}

#[test]
fn pipe_goes_on_after_the_rings_of_a_writer() {
    let (reader, mut writer) = pipe().expect("descriptors are left");
    let scratch = Scratch::new("three");
    let [from, to] = ["in", "out"].map(|name| scratch.path().join(name));
    std::fs::write(&from, &capture(1000)[24..]).expect("the directory can be written");
    let open = || Stdio::from(File::open(&from).expect("it is there"));
    let out = File::create(&to).expect("the directory can be written");
    let last = filter().stdin(reader).stdout(out).spawn().expect("the tool starts");
    writer.write_all(&capture(0)).expect("the pipe has space");
    for _ in 0..2 {
        let writer = writer.try_clone().expect("descriptors are left");
        let mut child = filter().stdin(open()).stdout(writer).spawn().expect("the tool starts");
        let log = log_of(&mut child);
        assert_eq!(status(child), Some(0), "{log}");
        assert!(log.contains("using shared memory"), "{log}");
    }
    writer.write_all(&record(7)).expect("the pipe has space");
    drop(writer);
    assert_eq!(status(last), Some(0));
    let records = [&capture(1000)[..], &capture(1000)[24..], &record(7)].concat();
    assert!(std::fs::read(&to).expect("it is there") == records);
}

#[test]
fn death_of_the_reader_of_rings_ends_the_writer() {
    let ((stdin, mut input), (_output, stdout)) = pipes();
    let (mut first, mut second) = chained(stdin.into(), stdout.into());
    input.write_all(&capture(1)).expect("the pipe has space");
    until_logged(&mut first, "using shared memory");
    second.kill().expect("it is our own");
    assert_eq!(status(second), None);
    assert_eq!(status(first), Some(BROKEN_PIPE));
}

#[test]
fn death_of_the_writer_of_rings_is_the_end_of_input() {
    let ((stdin, mut input), (mut output, stdout)) = pipes();
    let (mut first, second) = chained(stdin.into(), stdout.into());
    let records = capture(3);
    input.write_all(&records).expect("the pipe has space");
    let mut received = vec![0; records.len()];
    output.read_exact(&mut received).expect("the records arrive before the death");
    first.kill().expect("it is our own");
    assert_eq!(status(first), None);
    assert_eq!(status(second), Some(0));
    assert!(received == records);
}

#[test]
fn signal_ends_a_filter_that_reads_the_rings_of_another() {
    let ((stdin, input), (mut output, stdout)) = pipes();
    let (first, second) = chained(stdin.into(), stdout.into());
    let writer = endless(input);
    let mut begin = vec![0; capture(10_000).len()];
    output.read_exact(&mut begin).expect("records arrive");
    common::peers::signal(second.id(), "INT");
    let mut rest = Vec::new();
    output.read_to_end(&mut rest).expect("a pipe");
    let code = status(second);
    assert!(matches!(code, Some(0 | INTERRUPTED)), "{code:?}");
    assert_eq!(rest.len() % record(0).len(), 0, "whole messages are written");
    assert_eq!(status(first), Some(BROKEN_PIPE));
    assert!(writer.join().expect("no panic").is_err());
}

#[test]
fn signal_ends_a_filter_that_waits_for_input() {
    let ((stdin, mut input), (mut output, stdout)) = pipes();
    let child = filter().stdin(stdin).stdout(stdout).spawn().expect("the tool starts");
    input.write_all(&capture(1)).expect("the pipe has space");
    output.read_exact(&mut vec![0; capture(1).len()]).expect("the record arrives");
    common::peers::signal(child.id(), "TERM");
    assert_eq!(status(child), Some(0));
}

#[test]
fn filter_that_was_stopped_inside_a_message_ended_with_success() {
    let ((stdin, mut input), (output, stdout)) = pipes();
    let child = filter().args(["--shutdown-timeout", "100ms"]).stdin(stdin).stdout(stdout).spawn();
    let mut child = child.expect("the tool starts");
    // The reader of its output reads nothing, and then the writer of its input waits.
    let writer = thread::spawn(move || input.write_all(&capture(1_000_000)));
    until_blocked(&output);
    common::peers::signal(child.id(), "TERM");
    let log = log_of(&mut child);
    assert_eq!(status(child), Some(1), "{log}");
    assert!(log.contains("its output may end inside a message"), "{log}");
    drop(output);
    assert!(writer.join().expect("no panic").is_err());
}

#[test]
fn filter_read_on_for_the_shutdown_timeout_after_a_signal() {
    let ((stdin, input), (mut output, stdout)) = pipes();
    let child = filter().args(["--shutdown-timeout", "1h"]).stdin(stdin).stdout(stdout).spawn();
    let mut child = child.expect("the tool starts");
    let writer = endless(input);
    let mut begin = vec![0; capture(1000).len()];
    output.read_exact(&mut begin).expect("records arrive");
    common::peers::signal(child.id(), "INT");
    let mut rest = Vec::new();
    output.read_to_end(&mut rest).expect("a pipe");
    let log = log_of(&mut child);
    let is_cut = log.contains("was stopped inside a message of its input");
    assert_eq!(status(child), Some(if is_cut { INTERRUPTED } else { 0 }), "{log}");
    assert_eq!(rest.len() % record(0).len(), 0, "whole messages are written");
    assert!(writer.join().expect("no panic").is_err());
}

#[test]
fn signal_inside_a_message_is_the_status_of_a_filter() {
    let ((stdin, mut input), (mut output, stdout)) = pipes();
    let mut child = filter().stdin(stdin).stdout(stdout).spawn().expect("the tool starts");
    let whole = capture(1);
    input.write_all(&[&whole[..], &record(1)[..20]].concat()).expect("the pipe has space");
    output.read_exact(&mut vec![0; whole.len()]).expect("the record arrives");
    common::peers::signal(child.id(), "INT");
    let log = log_of(&mut child);
    assert_eq!(status(child), Some(INTERRUPTED), "{log}");
    assert!(log.contains("`Count` was stopped inside a message of its input"), "{log}");
}

#[test]
fn broken_output_was_reported_as_a_broken_input() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let free = common::peers::free_address();
    let check = |to: &str, reason: &str, is_down: bool| {
        let (reader, mut writer) = pipe().expect("descriptors are left");
        let mut child = filter_of("stdin:", to).stdin(reader).spawn().expect("the tool starts");
        writer.write_all(&capture(1)).expect("the pipe has space");
        if !is_down {
            let mut peer = listener.accept().expect("the filter connects").0;
            peer.read_exact(&mut [0; 24]).expect("the capture begins");
            // It is dropped with bytes that it has not read, so it resets the connection.
        }
        let log = log_of(&mut child);
        assert_eq!(status(child), Some(1), "{log}");
        assert!(log.contains(&format!("error: `Count` lost its output {to}: {reason}")), "{log}");
        assert_eq!(log.contains("backend is down"), is_down, "{log}");
        drop(writer);
    };
    check(&free.to_string(), "connection refused", true);
    check("shm:flick-test-without-a-listener", "connection refused", true);
    check(&address.to_string(), "connection reset", false);
}

#[test]
fn filter_with_little_buffer_memory_passed_nothing() {
    let (reader, mut writer) = pipe().expect("descriptors are left");
    writer.write_all(&capture(3)).expect("the pipe has space");
    drop(writer);
    let mut command = filter();
    command.args(["--buffer-memory", "1MiB"]).stdin(reader);
    let output = command.output().expect("the tool starts");
    let (code, _, log) = captured(output);
    assert_eq!(code, 0, "{log}");
    assert!(log.contains("packets 3"), "{log}");
}

#[test]
fn limit_of_file_sizes_killed_a_filter() {
    let (reader, mut writer) = pipe().expect("descriptors are left");
    writer.write_all(&capture(1)).expect("the pipe has space");
    drop(writer);
    for extra in [&[][..], &["--check"]] {
        let tool = filter();
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -f 8; exec \"$@\"", "sh"]).arg(tool.get_program()).args(tool.get_args());
        command.args(extra).current_dir(common::root());
        command.stdin(reader.try_clone().expect("descriptors are left"));
        let (code, _, log) = captured(command.output().expect("a shell starts"));
        assert_eq!(code, 1, "{log}");
        assert!(
            log.contains("cannot pass `stdin:` to the service") && log.contains("(`ulimit -f`)"),
            "{log}"
        );
    }
}

#[test]
fn path_of_a_pipe_was_relative_to_the_working_directory() {
    let scratch = Scratch::new("relative");
    std::fs::write(scratch.path().join("in.pcap"), capture(10)).expect("the directory can be written");
    let program = common::root().join(COUNTER);
    let settings = format!(
        "[service]\nprogram = \"{}\"\nlisten = {{ capture = \"pipe:in.pcap\" }}\n\
         connect = {{ next = \"pipe:out.pcap\" }}\n",
        program.display()
    );
    let settings = scratch.write("flick.toml", &settings).display().to_string();
    let (code, stdout, log) = run(&["check", &settings]);
    assert_eq!((code, stdout.as_str()), (0, "ok: services `Count`\n"), "{log}");
    assert!(!scratch.path().join("out.pcap").exists(), "a check creates nothing");
    let (code, _, log) = run(&["run", "--config", &settings]);
    assert_eq!(code, 0, "{log}");
    assert!(std::fs::read(scratch.path().join("out.pcap")).expect("it is there") == capture(10));
}

#[test]
fn start_that_failed_had_emptied_an_output() {
    let scratch = Scratch::new("kept");
    let [from, to] = ["in", "out"].map(|name| scratch.path().join(name));
    std::fs::write(&from, capture(10)).expect("the directory can be written");
    std::fs::write(&to, "precious").expect("the directory can be written");
    let busy = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let listen = format!("client={}", busy.local_addr().expect("it is bound"));
    let [from, to_text] = [&from, &to].map(|path| format!("pipe:{}", path.display()));
    let mut command = filter_of(&from, &to_text);
    command.args([common::PROXY, "--listen", &listen, "--connect", "backends=127.0.0.1:1"]);
    let (code, _, log) = captured(command.output().expect("the tool starts"));
    assert_eq!(code, 1, "{log}");
    assert!(log.contains("in use"), "{log}");
    assert_eq!(std::fs::read_to_string(&to).expect("it is there"), "precious");
}

/// Starts a writer that never pauses and never ends, but with its reader.
fn endless(mut input: PipeWriter) -> thread::JoinHandle<std::io::Result<()>> {
    thread::spawn(move || {
        let begun = input.write_all(&capture(0));
        let records = (0..1000).flat_map(record).collect::<Vec<u8>>();
        begun.and_then(|()| std::iter::repeat(()).try_for_each(|()| input.write_all(&records)))
    })
}

/// Waits until a pipe has no space.
fn until_blocked(reader: &PipeReader) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let path = format!("/proc/self/fd/{}", reader.as_raw_fd());
    wait::until("a full pipe", || {
        // Closed at once, so that the pipe ends with its other writer.
        let writer = File::options().write(true).open(&path).expect("our own pipe");
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let ready = poll(&mut [PollFd::new(&writer, PollFlags::OUT)], Some(&now)).expect("a poll");
        (ready == 0).then_some(())
    });
}

#[test]
fn filter_refuses_a_reload_and_goes_on() {
    let ((stdin, mut input), (mut output, stdout)) = pipes();
    let mut child = filter().stdin(stdin).stdout(stdout).spawn().expect("the tool starts");
    input.write_all(&capture(1)).expect("the pipe has space");
    output.read_exact(&mut vec![0; capture(1).len()]).expect("the record arrives");
    common::peers::signal(child.id(), "HUP");
    until_logged(&mut child, "cannot be reloaded or upgraded");
    input.write_all(&record(1)).expect("the pipe has space");
    output.read_exact(&mut vec![0; record(1).len()]).expect("the record arrives");
    drop(input);
    assert_eq!(status(child), Some(0));
}

/// Waits for a line of the log. The rest of the log is dropped, so that the filter never waits for its reader.
fn until_logged(child: &mut Child, text: &str) -> String {
    let mut log = std::io::BufReader::new(child.stderr.take().expect("it was asked for"));
    let mut line = String::new();
    while !line.contains(text) {
        line.clear();
        let count = std::io::BufRead::read_line(&mut log, &mut line).expect("the log is text");
        assert!(count > 0, "the log ends without `{text}`");
    }
    thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
    line
}

#[test]
fn wrong_descriptors_are_errors_of_the_command_line() {
    let check = |from: &str, to: &str, extra: &[&str], expected: &str| {
        // A check refuses what a start refuses.
        for check in [&[][..], &["--check"]] {
            let mut command = filter_of(from, to);
            let (code, stdout, log) =
                captured(command.args(extra).args(check).output().expect("the tool starts"));
            assert_eq!((code, stdout.as_str()), (2, ""), "{from} {to}: {log}");
            assert!(log.contains(expected), "{from} {to}: {log}");
        }
    };
    check("fd:77", "stdout:", &[], "cannot open `fd:77` for reading: Bad file descriptor");
    check("pipe:/", "stdout:", &[], "cannot open `pipe:/` for reading: it is a directory");
    check("pipe:/nowhere/x", "stdout:", &[], "cannot open `pipe:/nowhere/x` for reading: No such file");
    check("stdin:", "pipe:/", &[], "cannot open `pipe:/` for writing: it is a directory");
    check("stdin:", "pipe:/nowhere/x", &[], "cannot open `pipe:/nowhere/x` for writing: No such file");
    check("stdin:,fd:0", "stdout:", &[], "`stdin:` is named twice; a descriptor can have one channel");
    check("stdin:x2", "stdout:", &[], "`stdin:` is named twice; a descriptor can have one channel");
    check("stdout:", "stdin:", &[], "`stdout:` is written to, so it belongs to `--connect`");
    check("stdin:", "stdin:", &[], "`stdin:` is read, so it belongs to `--listen`");
    check("stdin:", "fd:0", &[], "`stdin:` is named twice; a descriptor can have one channel");
    check("stdin:", "stdout:", &["--access-log", "-"], "cannot carry the access log");
    check("stdin:", "stdout:", &["--user", "nobody"], "`--user` does not go with `stdin:`");
    check("stdin:", "stdout:", &["--watch"], "`--watch` does not go with `stdin:`");
    check("stdin:", "stdout:", &["--workers", "2"], "`--workers 2` does not go with `stdin:`");
    check("stdin:", "fd:2", &[], "standard error carries the log");
    check(&format!("pipe:{COUNTER}"), &format!("pipe:./{COUNTER}"), &[], "is the file that");
    for check in [&[][..], &["--check"]] {
        let null =
            |reads: bool| File::options().read(reads).write(!reads).open("/dev/null").expect("a device");
        let refused = |mut command: Command| captured(command.args(check).output().expect("the tool starts"));
        let (mut reader, mut writer) = (filter(), filter());
        reader.stdin(null(false)).stdout(null(false));
        writer.stdin(null(true)).stdout(null(true));
        let text = "cannot open `stdin:` for reading: it is open for writing only";
        assert!(matches!(refused(reader), (2, _, log) if log.contains(text)), "{check:?}");
        let text = "cannot open `stdout:` for writing: it is open for reading only";
        assert!(matches!(refused(writer), (2, _, log) if log.contains(text)), "{check:?}");
    }
    let proxy = ["run", common::PROXY, "--listen", "client=stdin:", "--connect", "backends=127.0.0.1:1"];
    let (code, _, log) = run(&proxy);
    assert_eq!(code, 2, "{log}");
    assert!(log.contains("channel `client` also sends `cmd`, but `stdin:` is only read there"), "{log}");
}
