//! A process whose addresses are limited: what does not fit is refused, and nothing that runs dies of it.

use std::process::Command;

use super::common::service::Service;
use super::common::{self, client};
use super::load::{self, get};

const STATIC: &str = "examples/http_static/http_static.flick";
const RELAY: &str = "examples/tcp_relay/tcp_relay.flick";

/// Reloads after which a service that could not have them all must have refused one.
const RELOADS_MAX: usize = 5;

/// flick with N KiB of address space.
fn limited(kib: u64, args: &[&str]) -> Command {
    let tool = common::flick();
    let mut command = Command::new("sh");
    command
        .args(["-c", "ulimit -v $0 && exec \"$@\""])
        .arg(kib.to_string())
        .arg(tool.get_program())
        .args(args);
    command.current_dir(common::root()).env_remove("FLICK_LOG").env("NO_COLOR", "1");
    command
}

#[test]
fn start_fails_with_too_little_address_space() {
    let listen = ["--listen", "client=127.0.0.1:0", "--workers", "2", "--max-memory", "1000GiB"];
    let args = [&["run", STATIC, "--max-connections", "1000000"][..], &listen].concat();
    let (status, _, error) = common::captured(limited(8_000_000, &args).output().expect("the tool starts"));
    assert_eq!(status, 1, "{error}");
    assert!(error.contains("ulimit -v") && error.contains("lower `--max-connections`"), "{error}");
}

#[test]
fn reload_fails_with_too_little_address_space() {
    let connect = format!("server={}", load::origin());
    let bound = ["--listen", "client=127.0.0.1:0", "--connect", &connect];
    let args = [&["run", RELAY, "--workers", "1", "--admin", "0"][..], &bound].concat();
    let service = Service::start_as(limited(5_000_000, &args));
    let admin = service.admin_address().to_string();
    let mut stay = Vec::new();
    let refused = (0..RELOADS_MAX).find_map(|_| {
        let mut stream = client::connect(service.address);
        assert_eq!(get(&mut stream, "/page"), Ok(load::PAGE.to_owned()));
        stay.push(stream);
        let (status, _, error) = common::run(&["reload", &admin]);
        (status != 0).then_some((status, error))
    });
    let (status, error) = refused.expect("each generation takes more than a gigabyte");
    assert!(status == 1 && error.contains("ulimit -v"), "{error}");
    assert!(stay.len() > 1, "one more fits: {error}");
    stay.push(client::connect(service.address));
    for stream in &mut stay {
        assert_eq!(get(stream, "/page"), Ok(load::PAGE.to_owned()));
    }
    // When those who stayed have gone there is room again.
    drop(stay);
    common::wait::until("a reload", || (common::run(&["reload", &admin]).0 == 0).then_some(()));
    service.drained();
}
