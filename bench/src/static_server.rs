//! A static web server beside nginx: one short page on persistent connections, no server behind it.
//!
//! Promises: both sides have one worker on a core of its own; the load has the other core.

use std::io;

use crate::cli::SweepArgs;
use crate::process::{ScratchDir, Server, free_addr, workspace};
use crate::rivals::nginx;
use crate::sweep::{self, Figure};
use crate::wrk;

/// The rival's configuration, with placeholders for addresses and directories.
const NGINX: &str = include_str!("../rivals/nginx-backend.conf");

/// Sweeps both sides.
pub(crate) fn run(args: &SweepArgs) -> io::Result<()> {
    let scratch = ScratchDir::new("static")?;
    let figure = Figure {
        name: "static-server".to_owned(),
        title: "Static web server: flick and nginx by number of connections",
        load: "One short GET at a time on each persistent connection; the page is in the program (`examples/http_static`) or in\n\
               the configuration (nginx: `return 200`); load from wrk, a closed loop."
            .to_owned(),
        sides: &["flick", "nginx"],
    };
    sweep::run(&figure, args, |side, connections| {
        let server = start(args, side, &scratch)?;
        wrk::round(&server, connections, args.warmup_seconds, args.seconds)
    })
}

fn start(args: &SweepArgs, side: &str, scratch: &ScratchDir) -> io::Result<Server> {
    let addr = free_addr()?;
    let command = if side == "nginx" {
        let config = NGINX.replace("{listen}", &format!("{addr} reuseport")).replace("{number}", "static");
        nginx(&config, "static.conf", scratch)?
    } else {
        let mut command = args.run.flick.run(&workspace().join("examples/http_static/http_static.flick"));
        command.arg("--listen").arg(format!("client={addr}"));
        command
    };
    Server::start(command, args.run.cores.server_core, args.run.cores.load_core, addr)
}
