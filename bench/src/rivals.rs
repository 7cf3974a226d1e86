//! Rivals that are started with a configuration of ours.

use std::io;
use std::process::Command;

use crate::process::ScratchDir;

/// HAProxy in the foreground.
pub(crate) fn haproxy(config: &str, scratch: &ScratchDir) -> io::Result<Command> {
    let path = scratch.0.join("haproxy.cfg");
    std::fs::write(&path, config)?;
    let mut command = Command::new("haproxy");
    command.arg("-db").arg("-f").arg(path);
    Ok(command)
}

/// nginx, its files in the scratch directory, which the configuration may name `{scratch}`.
pub(crate) fn nginx(config: &str, name: &str, scratch: &ScratchDir) -> io::Result<Command> {
    let path = scratch.0.join(name);
    std::fs::write(&path, config.replace("{scratch}", &scratch.0.to_string_lossy()))?;
    let mut command = Command::new("nginx");
    command.arg("-e").arg("/dev/null").arg("-p").arg(&scratch.0).arg("-c").arg(path);
    Ok(command)
}
