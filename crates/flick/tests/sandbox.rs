//! The sandbox of a running service as the kernel reports it: Landlock, seccomp, user and capabilities.

mod common;

use common::client::connect;
use common::http::exchange;
use common::process::OwnedPid;
use common::service::Service;
use common::{Scratch, run, wait};

/// A cache with a dictionary that is kept, so that files are written in the sandbox.
const KEPT: &str = r#"use http

global seen: dict<int, int> max 16 entries, snapshot "seen" every 1s

proc Kept: (request/response client)
  | client => answer() => client

fun answer: (req: request) -> (response)
  seen[1] := 1
  response{status = 200, reason = "OK", headers = [], body = "kept"}
"#;

fn check_serves(service: &Service) {
    let (status, _) = exchange(&mut connect(service.address), "/").expect("a response");
    assert_eq!(status, 200);
}

/// A value in `/proc/PID/task/*/status`, for every thread. A thread of the admin endpoint may exit meanwhile.
fn of_all_threads(process: u32, line: &str) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).expect("the process is there");
    let of_task = |task: std::io::Result<std::fs::DirEntry>| {
        let text = std::fs::read_to_string(task.expect("an entry").path().join("status")).ok()?;
        let found =
            text.lines().find_map(|each| each.strip_prefix(line)?.strip_prefix(":\t").map(str::to_owned));
        Some(found.unwrap_or_else(|| panic!("no {line} in\n{text}")))
    };
    tasks.filter_map(of_task).collect()
}

/// The state at the admin endpoint.
fn state_of(service: &Service) -> String {
    let (_, body) = exchange(&mut connect(service.admin()), "/api/state").expect("a response");
    String::from_utf8(body).expect("JSON is text")
}

fn kept(scratch: &Scratch, extra: &[&str]) -> Service {
    let program = scratch.write("kept.flick", KEPT);
    let state = scratch.path().join("state");
    let (program, state) = (program.display().to_string(), state.display().to_string());
    let args = ["run", &program, "--listen", "client=127.0.0.1:0", "--state-dir", &state, "--workers", "2"];
    Service::start(&[args.as_slice(), extra].concat())
}

/// Writes settings with this program and an admin endpoint; returns their path.
fn settings_of(scratch: &Scratch, program: &str) -> String {
    let text = format!(
        "workers = 1\n[admin]\nlisten = \"127.0.0.1:0\"\n[[service]]\nprogram = \"{program}\"\n\
         listen = {{ client = \"127.0.0.1:0\" }}\n"
    );
    scratch.write("flick.toml", &text).display().to_string()
}

/// Upgrades the service; returns the new process.
fn upgrade(admin: &str) -> OwnedPid {
    let (status, stdout, error) = run(&["upgrade", admin]);
    assert_eq!(status, 0, "{error}");
    let pid = stdout.trim().strip_prefix("process ").and_then(|pid| pid.parse().ok());
    OwnedPid(pid.expect("it says which"))
}

#[test]
fn every_thread_is_sandboxed_while_the_service_works() {
    for io in ["epoll", "uring"] {
        let scratch = Scratch::new(&format!("sandbox-{io}"));
        let service = kept(&scratch, &["--io", io, "--admin", "0"]);
        check_serves(&service);
        let state = state_of(&service);
        assert!(
            state.contains("files enforced, system calls enforced"),
            "{io}: this kernel needs Landlock (CONFIG_SECURITY_LANDLOCK, `landlock` in /sys/kernel/security/lsm) and \
             seccomp filters (CONFIG_SECCOMP_FILTER): {state}"
        );
        assert!(!state.contains("\"open_files\":0"), "{io}: it still sees its own descriptors: {state}");
        for (line, expected) in [("Seccomp", "2"), ("NoNewPrivs", "1")] {
            let values = of_all_threads(service.pid(), line);
            assert!(
                values.len() >= 4 && values.iter().all(|value| value == expected),
                "{io}: {line} {values:?}"
            );
        }
        let log = service.drained();
        assert!(!log.contains("denied") && !log.contains("not implemented"), "{io}: {log}");
        let files = std::fs::read_dir(scratch.path().join("state")).expect("the directory is there").count();
        assert!(files > 0, "{io}: the dictionary is kept");
    }
}

#[test]
fn sandbox_off_restricts_nothing() {
    let scratch = Scratch::new("unconfined");
    let service = kept(&scratch, &["--sandbox", "off"]);
    check_serves(&service);
    let values = of_all_threads(service.pid(), "Seccomp");
    // As many filters as around the test itself.
    let own = std::fs::read_to_string("/proc/self/status").expect("it is there");
    assert!(values.iter().all(|value| own.contains(&format!("Seccomp:\t{value}\n"))), "{values:?}");
    service.drained();
}

#[test]
fn every_thread_switches_to_the_user() {
    if !rustix::process::geteuid().is_root() {
        let args = ["run", common::PROXY, "--listen", "client=127.0.0.1:0"];
        let rest = ["--connect", "backends=127.0.0.1:1", "--user", "65534:65534"];
        let (status, _, error) = run(&[args.as_slice(), &rest].concat());
        assert_eq!(status, 1, "{error}");
        assert!(error.contains("only root can"), "{error}");
        return;
    }
    // Where everybody may pass, unlike the target directory perhaps.
    let scratch = Scratch::new("user");
    let service = kept(&scratch, &["--user", "65534:65533"]);
    check_serves(&service);
    for (line, expected) in
        [("Uid", "65534"), ("Gid", "65533"), ("Groups", "65533"), ("CapEff", "0000000000000000")]
    {
        let values = of_all_threads(service.pid(), line);
        let is_right = |value: &String| value.split_whitespace().all(|number| number == expected);
        assert!(values.len() >= 4 && values.iter().all(is_right), "{line} {values:?}");
    }
    service.drained();
    let state = scratch.path().join("state");
    assert!(std::fs::read_dir(&state).expect("the directory is there").count() > 0);
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(&state).expect("it is there")), 65534);
}

#[test]
fn unknown_user_is_an_error() {
    let (status, _, error) = run(&["run", common::PROXY, "--user", "no-such-user"]);
    assert_eq!(status, 2, "{error}");
    assert!(error.contains("there is no user `no-such-user`"), "{error}");
}

#[test]
fn reload_of_settings_with_a_user_was_denied_its_number() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    for sandbox in ["on", "strict"] {
        let scratch = Scratch::new(&format!("sandbox-user-{sandbox}"));
        let program = scratch.write("kept.flick", KEPT).display().to_string();
        let settings = settings_of(&scratch, &program);
        let text = std::fs::read_to_string(&settings).expect("it was written");
        std::fs::write(&settings, format!("user = \"daemon:daemon\"\n{text}")).expect("it is writable");
        let state = scratch.path().join("state").display().to_string();
        let args = ["run", "--config", &settings, "--state-dir", &state, "--sandbox", sandbox];
        let service = Service::start(&args);
        scratch.write("kept.flick", &KEPT.replace("\"kept\"", "\"kept again\""));
        let (status, _, error) = run(&["reload", &service.admin_address().to_string()]);
        assert_eq!(status, 0, "{sandbox}: {error}");
        let (_, body) = exchange(&mut connect(service.address), "/").expect("a response");
        assert_eq!(String::from_utf8_lossy(&body), "kept again", "{sandbox}");
        service.drained();
    }
}

#[test]
fn sandboxed_reload_says_why_a_program_cannot_be_read() {
    let (scratch, other) = (Scratch::new("sandbox-reload"), Scratch::new("sandbox-reload-elsewhere"));
    let elsewhere = other.write("kept.flick", KEPT).display().to_string();
    let program = scratch.write("kept.flick", KEPT).display().to_string();
    let (settings, state) =
        (settings_of(&scratch, &program), scratch.path().join("state").display().to_string());
    let service =
        Service::start(&["run", "--config", &settings, "--state-dir", &state, "--sandbox", "strict"]);
    let admin = service.admin_address().to_string();
    settings_of(&scratch, &elsewhere);
    let (status, _, error) = run(&["reload", &admin]);
    assert!(status == 1 && error.contains("Permission denied"), "{error}");
    assert!(
        error.contains("the sandbox lets this process read only") && error.contains("restart flick"),
        "{error}"
    );
    let (status, _, error) = run(&["upgrade", &admin]);
    assert!(status == 1 && error.contains("does not allow starting a process"), "{error}");
    check_serves(&service);
    service.drained();
}

#[test]
fn upgraded_process_kept_the_sandbox_of_its_predecessor() {
    let (scratch, other) = (Scratch::new("sandbox-upgrade"), Scratch::new("sandbox-upgrade-elsewhere"));
    let program = scratch.write("kept.flick", KEPT).display().to_string();
    let elsewhere = other.write("kept.flick", KEPT).display().to_string();
    let (settings, state) =
        (settings_of(&scratch, &program), scratch.path().join("state").display().to_string());
    let mut service = Service::start(&["run", "--config", &settings, "--state-dir", &state]);
    let admin = service.admin_address().to_string();
    settings_of(&scratch, &elsewhere);
    let (status, _, error) = run(&["reload", &admin]);
    assert!(status == 1 && error.contains("Permission denied"), "the old process may not read it: {error}");
    let second = upgrade(&admin);
    assert_eq!(service.gone().code(), Some(0));
    check_serves(&service);
    let values = of_all_threads(second.0, "Seccomp");
    assert!(values.len() >= 3 && values.iter().all(|value| value == "2"), "{values:?}");
    // It has a launcher of its own.
    let third = upgrade(&admin);
    wait::until("the second process to end", || (!second.is_there()).then_some(()));
    check_serves(&service);
    common::peers::signal(third.0, "TERM");
    wait::until("the third process to end", || (!third.is_there()).then_some(()));
}

/// The name of a process.
fn name_of(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default()
}

/// The launcher of a service.
fn launcher_of(service: &Service) -> u32 {
    wait::until("the launcher to have its name", || {
        let processes = std::fs::read_dir("/proc").expect("procfs is there").flatten();
        let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let parent = format!(" {} ", service.pid());
        pids.find(|pid| {
            let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            name_of(*pid).starts_with("flick-launcher")
                && status.split_once(") ").is_some_and(|(_, rest)| rest[1..].starts_with(&parent))
        })
    })
}

#[test]
fn signal_to_the_control_group_was_logged_as_a_dead_launcher() {
    let scratch = Scratch::new("control-group");
    let service = kept(&scratch, &[]);
    let launcher = launcher_of(&service);
    common::peers::signal(launcher, "TERM");
    let status = wait::until("the signal to be delivered", || {
        let status = std::fs::read_to_string(format!("/proc/{launcher}/status")).ok()?;
        let pending = |name: &str| status.lines().find(|line| line.starts_with(name)).map(str::to_owned);
        let is_empty = |line: Option<String>| line.is_some_and(|line| line.ends_with("\t0000000000000000"));
        (is_empty(pending("ShdPnd:")) && is_empty(pending("SigPnd:"))).then_some(status)
    });
    assert!(!status.contains("Z (zombie)"), "{status}");
    let log = service.drained();
    assert!(!log.contains("(flick-launcher) has ended"), "{log}");
    wait::until("the launcher to exit with the service", || name_of(launcher).is_empty().then_some(()));
}

#[test]
fn launcher_that_died_was_not_logged() {
    let scratch = Scratch::new("launcher");
    let service = kept(&scratch, &[]);
    let launcher = launcher_of(&service);
    common::peers::signal(launcher, "KILL");
    // The service reaps it.
    wait::until("the launcher to be gone", || name_of(launcher).is_empty().then_some(()));
    let log = service.drained();
    assert_eq!(log.matches("(flick-launcher) has ended").count(), 1, "{log}");
}
