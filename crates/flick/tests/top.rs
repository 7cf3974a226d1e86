//! `flick top` in a terminal: a real one of the kernel, whose screen is read as a terminal would show it.

mod common;

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use common::peers::Memcached;
use common::service::Service;
use common::{client, flick, wait};
use flick_load::binary::Opcode;
use nix::pty::{Winsize, openpty};

const ROWS: u16 = 40;
const COLUMNS: u16 = 120;

/// A terminal with a program in it.
struct Terminal {
    child: Child,
    keys: File,
    /// Where the kernel has it.
    path: String,
    screen: Arc<Mutex<vt100::Parser>>,
}

impl Terminal {
    fn start(mut command: Command) -> Self {
        let size = Winsize { ws_row: ROWS, ws_col: COLUMNS, ws_xpixel: 0, ws_ypixel: 0 };
        let pair = openpty(&size, None).expect("the kernel has terminals");
        let own = std::os::fd::AsRawFd::as_raw_fd(&pair.slave);
        let path = std::fs::read_link(format!("/proc/self/fd/{own}")).expect("it has a path");
        let slave = || Stdio::from(pair.slave.try_clone().expect("a descriptor"));
        command.env("TERM", "xterm-256color").stdin(slave()).stdout(slave()).stderr(slave());
        let child = command.spawn().expect("the tool starts");
        let mut shown = File::from(pair.master);
        let keys = shown.try_clone().expect("a descriptor");
        let screen = Arc::new(Mutex::new(vt100::Parser::new(ROWS, COLUMNS, 0)));
        let drawn = Arc::clone(&screen);
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            // When nobody has the other end any more, reading fails.
            while let Ok(len) = shown.read(&mut piece) {
                drawn.lock().expect("no panic").process(&piece[..len]);
            }
        });
        Self { child, keys, path: path.display().to_string(), screen }
    }

    fn text(&self) -> String {
        self.screen.lock().expect("no panic").screen().contents()
    }

    fn is_in_its_own_screen(&self) -> bool {
        self.screen.lock().expect("no panic").screen().alternate_screen()
    }

    fn resize(&self, rows: u16, columns: u16) {
        // Empty, as what is drawn for another size says nothing; still the program's own screen.
        let mut fresh = vt100::Parser::new(rows, columns, 0);
        fresh.process(b"\x1b[?1049h");
        *self.screen.lock().expect("no panic") = fresh;
        let (rows, columns) = (rows.to_string(), columns.to_string());
        let status = Command::new("stty")
            .args(["-F", &self.path, "rows", &rows, "cols", &columns])
            .status()
            .expect("stty starts");
        assert!(status.success());
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // One that has ended already cannot be killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn top_draws_follows_its_terminal_and_leaves_it_as_it_was() {
    let memcached = Memcached::start();
    let service = Service::proxy(&[memcached.address], &["--workers", "1", "--admin", "0"]);
    let mut stream = client::connect(service.address);
    let mut top = flick();
    top.args(["top", &service.admin().to_string()]);
    let mut terminal = Terminal::start(top);
    wait::until("the first picture", || terminal.text().contains("requests/s").then_some(()));
    assert!(terminal.is_in_its_own_screen(), "what was on the screen is kept behind it");
    wait::until("the request to be seen in a picture", || {
        client::ask(&mut stream, Opcode::Get, 1, b"k", b"");
        let text = terminal.text();
        let rate = text
            .lines()
            .find_map(|line| line.split(" requests/s").next()?.split(' ').next_back()?.parse::<u64>().ok());
        (rate > Some(0)).then_some(())
    });
    // A picture comes in pieces; one look may see half of it.
    for expected in ["Memcached", "q ends", &memcached.address.to_string()] {
        wait::until(expected, || terminal.text().contains(expected).then_some(()));
    }
    terminal.resize(30, 70);
    wait::until("a picture of the new size", || {
        let text = terminal.text();
        let foot = text.lines().nth(29).is_some_and(|line| line.contains("q ends"));
        (foot && text.lines().all(|line| line.chars().count() <= 70)).then_some(())
    });
    terminal.resize(3, 10);
    wait::until("a picture where there is hardly room for one", || {
        terminal.text().starts_with("flick").then_some(())
    });
    terminal.resize(ROWS, COLUMNS);
    wait::until("the whole picture again", || {
        terminal.text().contains(&memcached.address.to_string()).then_some(())
    });
    terminal.keys.write_all(b"q").expect("it reads keys");
    let status = wait::until("the end", || terminal.child.try_wait().expect("our own child"));
    assert_eq!(status.code(), Some(0), "{}", terminal.text());
    wait::until("the terminal as it was", || (!terminal.is_in_its_own_screen()).then_some(()));
    service.drained();
}

#[test]
fn top_ends_with_control_c_and_outlives_its_service() {
    let memcached = Memcached::start();
    let service = Service::proxy(&[memcached.address], &["--workers", "1", "--admin", "0"]);
    let mut top = flick();
    top.args(["top", &service.admin().to_string()]);
    let mut terminal = Terminal::start(top);
    wait::until("the first picture", || terminal.text().contains("requests/s").then_some(()));
    service.drained();
    wait::until("it to notice", || terminal.text().contains("no answer").then_some(()));
    terminal.keys.write_all(&[3]).expect("it reads keys");
    let status = wait::until("the end", || terminal.child.try_wait().expect("our own child"));
    assert_eq!(status.code(), Some(0), "{}", terminal.text());
}
