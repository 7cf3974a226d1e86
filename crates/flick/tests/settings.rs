//! `flick.toml`: golden files in `tests/settings/`, each a settings file with what the tool says about it.
//! `UPDATE=1 cargo test` rewrites the lines that start with `#>`.

mod common;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

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

/// A start refused what the check had accepted.
#[test]
fn check_finds_files_that_a_start_cannot_use() {
    let scratch = Scratch::new("settings-files");
    scratch.write("keeper.flick", KEEPER);
    for (setting, expected) in [
        ("access_log = \"none/a.log\"", "cannot write the access log none/a.log"),
        ("access_log = \".\"", "cannot write the access log ."),
        ("backend_state_file = \"none/state\"", "cannot write the backend state to none/state"),
        ("admin = { listen = 0, token_file = \"none\" }", "cannot read the token in none"),
    ] {
        let rest = "listen = { client = \"127.0.0.1:0\" }\nservice = { program = \"keeper.flick\" }\n";
        scratch.write("flick.toml", &format!("{setting}\n{rest}"));
        for args in [&["check", "flick.toml"][..], &["run"]] {
            let output =
                common::flick().args(args).current_dir(scratch.path()).output().expect("flick starts");
            let (status, _, stderr) = common::captured(output);
            assert!(status != 0 && stderr.contains(expected), "{args:?} with {setting}: {status} {stderr}");
        }
    }
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

/// A service of the keeper, at an address that is not used.
fn keeper(name: &str) -> String {
    format!(
        "[[service]]\nname = \"{name}\"\nprogram = \"../keeper.flick\"\nlisten = {{ client = \"127.0.0.1:0\" }}\n"
    )
}

/// Checks settings of these files; status, and what was said.
fn checked(files: &[(&str, &str)]) -> (i32, String) {
    static CHECKS: AtomicU32 = AtomicU32::new(0);
    let scratch = Scratch::new(&format!("settings-include-{}", CHECKS.fetch_add(1, Ordering::Relaxed)));
    scratch.write("keeper.flick", KEEPER);
    for directory in ["services", "more"] {
        std::fs::create_dir_all(scratch.path().join(directory)).expect("a directory for temporary files");
    }
    for (name, text) in files {
        scratch.write(name, text);
    }
    let mut check = common::flick();
    check.args(["check", "flick.toml"]).current_dir(scratch.path()).env("SERVICE_NAME", "of_environment");
    let (status, stdout, stderr) = common::captured(check.output().expect("flick starts"));
    (status, stdout + &stderr)
}

#[test]
fn services_of_included_files_are_read_in_the_order_of_their_names() {
    let (b, a, c) = (keeper("b"), keeper("a"), keeper("${SERVICE_NAME:-c}"));
    let deep = format!("include = \"../more/c.toml\"\n{a}");
    let (status, said) = checked(&[
        ("flick.toml", "include = [\"services/*.toml\"]\nstate_dir = \"state\"\n"),
        ("services/20-b.toml", &b),
        ("services/10-a.toml", &deep),
        ("services/10-a.toml~", "not TOML"),
        ("services/.hidden.toml", "not TOML"),
        ("more/c.toml", &c),
    ]);
    // All three would write to one snapshot file.
    assert!(status != 0 && said.contains("another `state_dir`"), "{said}");
    let of_own = |name: &str| keeper(name) + &format!("state_dir = \"state-{name}\"\n");
    let deep = format!("include = \"../more/c.toml\"\n{}", of_own("a"));
    let (status, said) = checked(&[
        ("flick.toml", "include = [\"services/*.toml\"]\n"),
        ("services/20-b.toml", &of_own("b")),
        ("services/10-a.toml", &deep),
        ("services/10-a.toml~", "not TOML"),
        ("services/.hidden.toml", "not TOML"),
        ("more/c.toml", &of_own("${SERVICE_NAME:-c}")),
    ]);
    assert_eq!(status, 0, "{said}");
    assert!(said.starts_with("ok: services `a`, `of_environment`, `b`\n"), "{said}");
}

#[test]
fn error_in_an_included_file_names_the_file_and_the_line() {
    let main = ("flick.toml", "workers = 1\ninclude = [\n  \"services/a.toml\",\n]\n");
    let own = keeper("a");
    for (text, pieces) in [
        (own.replace("program", "progam"), &["unknown key `progam`", "services/a.toml:3:1"][..]),
        (own.replace("client", "clint"), &["no channel `clint`", "services/a.toml:4:"]),
        (own.replace("../keeper.flick", "keeper.flick"), &["services/keeper.flick", "services/a.toml:3:1"]),
        (own.clone() + "workers = 2\n", &["unknown key `workers`", "services/a.toml:5:1"]),
        ("[limits]\n".to_owned() + &own, &["unknown key `limits`", "the keys here are `include`, `service`"]),
        (own.clone() + "name = \n", &["services/a.toml:5:"]),
        (own.replace("\"a\"", "\"${NONE}\""), &["has no variable `NONE`", "services/a.toml:2:"]),
        (
            format!("include = \"../flick.toml\"\n{own}"),
            &["is included a second time", "it includes this file", "services/a.toml:1:"],
        ),
        (format!("include = \"a.toml\"\n{own}"), &["is included a second time", "services/a.toml:1:"]),
        (
            format!("include = \"b.toml\"\n{own}"),
            &["cannot read the settings in services/b.toml", "services/a.toml:1:"],
        ),
        (format!("include = \"none/*\"\n{own}"), &["cannot include services/none/*", "services/a.toml:1:"]),
        (
            format!("include = \"*/b.toml\"\n{own}"),
            &["wildcards are allowed in the last part", "services/a.toml:1:"],
        ),
    ] {
        let (status, said) = checked(&[main, ("services/a.toml", &text)]);
        assert_ne!(status, 0, "{text}{said}");
        pieces.iter().for_each(|piece| assert!(said.contains(piece), "no {piece} in\n{said}"));
    }
    let (_, said) = checked(&[main]);
    assert!(
        said.contains("cannot read the settings in services/a.toml") && said.contains("flick.toml:3:3"),
        "{said}"
    );
}

#[test]
fn service_name_of_two_included_files_names_both() {
    let (one, other) = (keeper("same"), keeper("same") + "state_dir = \"other\"\n");
    let (status, said) = checked(&[
        ("flick.toml", "include = \"services/*\"\n"),
        ("services/a.toml", &one),
        ("services/b.toml", &other),
    ]);
    assert_eq!(status, 2, "{said}");
    for piece in
        ["two services are called `same`, in services/a.toml and services/b.toml", "services/b.toml:3:1"]
    {
        assert!(said.contains(piece), "{said}");
    }
}

#[test]
fn file_that_two_patterns_match_is_an_error() {
    let (status, said) = checked(&[
        ("flick.toml", "include = [\"services/*.toml\",\n\"services/a.*\"]\n"),
        ("services/a.toml", &keeper("a")),
    ]);
    assert_eq!(status, 2, "{said}");
    for piece in ["services/a.toml is included a second time", "flick.toml:2:1", "would run twice"] {
        assert!(said.contains(piece), "{said}");
    }
}
