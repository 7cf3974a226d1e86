//! Round trips between two programs that read and write: one asks, one echoes.

use std::io::{self, BufRead, BufReader, pipe};
use std::os::unix::net::UnixListener;
use std::process::Stdio;

use super::setting::{Mode, Setting};
use crate::process::{Children, free_addr};

/// The way between the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Medium {
    Pipes,
    Unix,
    Tcp,
}

impl Medium {
    pub(super) const ALL: [Medium; 3] = [Medium::Pipes, Medium::Unix, Medium::Tcp];

    pub(super) fn name(self) -> &'static str {
        match self {
            Medium::Pipes => "pipes",
            Medium::Unix => "Unix sockets",
            Medium::Tcp => "TCP",
        }
    }
}

/// Round trips per second between the two.
pub(super) fn measure(setting: &Setting<'_>, side: Mode, medium: Medium) -> io::Result<f64> {
    let control_path = setting.scratch.0.join("control");
    let socket_path = setting.scratch.0.join("socket");
    for path in [&control_path, &socket_path] {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    let control = UnixListener::bind(&control_path)?;
    control.set_nonblocking(true)?;
    let at = match medium {
        Medium::Pipes => "pipes".to_owned(),
        Medium::Unix => format!("unix:{}", socket_path.display()),
        Medium::Tcp => format!("tcp:{}", free_addr()?.port()),
    };
    let [mut echo, mut ask] = [(); 2].map(|()| setting.command(side, setting.programs()));
    echo.args(["echo", &at]);
    let rounds = setting.args.round_trips.to_string();
    ask.args(["ask", &at, &rounds, &format!("unix:{}", control_path.display())]);
    if medium == Medium::Pipes {
        let ((echo_in, ask_out), (ask_in, echo_out)) = (pipe()?, pipe()?);
        echo.stdin(echo_in).stdout(echo_out);
        ask.stdin(ask_in).stdout(ask_out);
    } else {
        [&mut echo, &mut ask].into_iter().for_each(|command| {
            command.stdin(Stdio::null());
        });
    }
    let mut programs = Children::default();
    programs.start(&mut echo)?;
    programs.start(&mut ask)?;
    // Pipes have no other holders, or their end is not seen.
    drop((echo, ask));
    let stream = programs.until(|| match control.accept() {
        Ok((stream, _)) => Ok(Some(stream)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    })?;
    stream.set_nonblocking(false)?;
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line)?;
    let elapsed_ns: f64 = line.trim().parse().map_err(io::Error::other)?;
    setting.note_rings()?;
    drop(stream);
    programs.finish()?;
    Ok(setting.args.round_trips as f64 / elapsed_ns * 1e9)
}
