//! Checks licences, sources and known vulnerabilities of dependencies with cargo-deny, as `deny.toml` says.
//! Promises: a cargo-deny that is missing is built once, into `target/tools`; licences, bans and sources always count;
//! if the advisory database (a git repository) cannot be fetched, the task does not fail, and the summary of CI says
//! so.

use crate::run::{self, Outcome};

/// The version that is built when none is installed.
const VERSION: &str = "0.20.2";

/// Runs the check.
pub fn run() -> Outcome {
    let tool = tool()?;
    run::run(run::command(&tool, &["--workspace", "check", "licenses", "bans", "sources"]))?;
    let fetch = run::command(&tool, &["--workspace", "fetch", "db"]);
    if !run::succeeds(fetch) {
        run::note("advisories NOT CHECKED: the advisory database cannot be fetched from here");
        return Ok(());
    }
    run::run(run::command(&tool, &["--workspace", "check", "--disable-fetch", "advisories"]))
}

/// The path of cargo-deny, which is built if it is missing.
fn tool() -> Result<String, String> {
    if run::succeeds(run::command("cargo-deny", &["--version"])) {
        return Ok("cargo-deny".to_owned());
    }
    let tools = run::root().join("target/tools");
    let built = tools.join("bin/cargo-deny");
    let directory = tools.to_str().ok_or("the workspace's path is not UTF-8")?;
    if !built.is_file() {
        let version = format!("cargo-deny@{VERSION}");
        // It reads a few hundred manifests: compiling it with optimisations takes longer than it saves.
        let args = [
            "install",
            "--debug",
            "--locked",
            "--quiet",
            "--no-default-features",
            "--root",
            directory,
            &version,
        ];
        let mut cargo = run::cargo(&args);
        cargo.env("CARGO_PROFILE_DEV_DEBUG", "none");
        run::run(cargo).map_err(|failure| {
            format!("{failure}\ncargo-deny is needed: `cargo install --locked cargo-deny`, or a crates.io that answers")
        })?;
    }
    Ok(built.to_string_lossy().into_owned())
}
