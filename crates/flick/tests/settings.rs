//! `flick.toml`: golden files in `tests/settings/`, each a settings file with what the tool says about it.
//! `UPDATE=1 cargo test` rewrites the lines that start with `#>`.

mod common;

use std::path::{Path, PathBuf};

use common::Scratch;
use flick_testkit::golden::Golden;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/settings")
}

/// A program that keeps something.
const KEEPER: &str = r#"use http

global seen: dict<int, int> max 16 entries, snapshot "seen" every 1h

proc Keeper: (request/response client)
  | client => answer() => client

fun answer: (req: request) -> (response)
  seen[1] := len(req.path)
  response{status = 200, reason = "OK", headers = [], body = raw("")}
"#;

/// Settings are right: nothing is started, and the services are named. A wrong one is shown as at a start.
#[test]
fn check_of_a_settings_file_starts_nothing() {
    let scratch = Scratch::new("settings-check");
    scratch.write("keeper.flick", KEEPER);
    let held = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = held.local_addr().expect("a bound socket has an address");
    let text = format!("[listen]\nclient = \"{address}\"\n[[service]]\nprogram = \"keeper.flick\"\n");
    for (right, text) in [(true, text.clone()), (false, text.replace("client", "clint"))] {
        scratch.write("flick.toml", &text);
        for args in
            [&["check", "flick.toml"][..], &["run", "--check"], &["run", "--check", "--config", "flick.toml"]]
        {
            let output =
                common::flick().args(args).current_dir(scratch.path()).output().expect("flick starts");
            let (status, stdout, stderr) = common::captured(output);
            match right {
                true => assert_eq!(
                    (status, stdout.as_str()),
                    (0, "ok: services `Keeper`\n"),
                    "{args:?}: {stderr}"
                ),
                false => {
                    assert_ne!(status, 0, "{args:?}");
                    assert!(stderr.contains("clint"), "{args:?}: {stderr}");
                }
            }
        }
    }
    assert!(!scratch.path().join("flick-state").exists(), "no state directory was made");
}

/// Returns the output of `flick run` for a settings file, with its status in the first line.
fn say(input: &str) -> String {
    let scratch = Scratch::new("settings");
    scratch.write("flick.toml", input);
    let program = std::fs::read_to_string(common::root().join(common::PROXY)).expect("the example is there");
    scratch.write("memcached_proxy.flick", &program);
    scratch.write("keeper.flick", KEEPER);
    let output = common::flick().arg("run").current_dir(scratch.path()).output().expect("the tool starts");
    let (status, stdout, stderr) = common::captured(output);
    assert_eq!(stdout, "", "a refused run says nothing on stdout");
    format!("status {status}\n{stderr}")
}

#[test]
fn errors_in_settings_are_shown_at_their_line() {
    let update = std::env::var_os("UPDATE").is_some_and(|value| value == "1");
    let mut paths: Vec<PathBuf> = std::fs::read_dir(directory())
        .expect("the golden files are there")
        .map(|entry| entry.expect("the directory can be read").path())
        .collect();
    paths.sort();
    assert!(paths.len() >= 8, "only {} golden files", paths.len());
    for path in paths {
        let text = std::fs::read_to_string(&path).expect("a golden file is text");
        let golden = Golden::parse(&path.display().to_string(), &text);
        let actual: Vec<String> =
            say(&golden.input).trim_end().lines().map(|line| line.trim_end().to_owned()).collect();
        if update {
            let lines = actual.iter().map(|line| format!("#> {line}").trim_end().to_owned() + "\n");
            std::fs::write(&path, golden.input.clone() + &lines.collect::<String>())
                .expect("it can be written");
            continue;
        }
        let expected: Vec<&str> = golden.expected.trim_end().lines().collect();
        assert_eq!(actual, expected, "{}; UPDATE=1 rewrites it", path.display());
    }
}
