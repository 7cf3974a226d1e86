//! `flick top` in a terminal: a real one of the kernel, whose screen is read as a terminal would show it.
#![cfg(feature = "tui")]

mod common;

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::peers::{Memcached, free_address};
use common::process::OwnedChild;
use common::service::Service;
use common::{PROXY, Scratch, client, flick, http, root, wait};
use flick_load::binary::Opcode;
use nix::pty::{Winsize, openpty};

const ROWS: u16 = 40;
const COLUMNS: u16 = 120;

/// A terminal with a program in it.
struct Terminal {
    child: OwnedChild,
    keys: File,
    /// Path of its device.
    path: String,
    screen: Arc<Mutex<vt100::Parser>>,
}

impl Terminal {
    fn start(command: Command) -> Self {
        Self::start_with(command, ROWS, COLUMNS)
    }

    fn start_with(mut command: Command, rows: u16, columns: u16) -> Self {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let pair = openpty(&size, None).expect("the kernel has terminals");
        let own = std::os::fd::AsRawFd::as_raw_fd(&pair.slave);
        let path = std::fs::read_link(format!("/proc/self/fd/{own}")).expect("it has a path");
        let slave = || Stdio::from(pair.slave.try_clone().expect("a descriptor"));
        command.env("TERM", "xterm-256color").stdin(slave()).stdout(slave()).stderr(slave());
        let child = OwnedChild(command.spawn().expect("the tool starts"));
        let mut shown = File::from(pair.master);
        let keys = shown.try_clone().expect("a descriptor");
        let screen = Arc::new(Mutex::new(vt100::Parser::new(rows, columns, 0)));
        let drawn = Arc::clone(&screen);
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            // Reading fails once the other end is closed.
            while let Ok(len) = shown.read(&mut piece) {
                drawn.lock().expect("no panic").process(&piece[..len]);
            }
        });
        Self { child, keys, path: path.display().to_string(), screen }
    }

    fn text(&self) -> String {
        self.screen.lock().expect("no panic").screen().contents()
    }

    /// Presses keys until the picture has what is expected of it.
    fn press_until(&mut self, keys: &str, what: &str, is_there: impl Fn(&str) -> bool) {
        self.keys.write_all(keys.as_bytes()).expect("it reads keys");
        wait::until(what, || is_there(&self.text()).then_some(()));
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

#[test]
fn top_follows_the_terminal_size_and_restores_the_terminal() {
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
    for expected in ["Memcached", "q quits", &memcached.address.to_string()] {
        wait::until(expected, || terminal.text().contains(expected).then_some(()));
    }
    terminal.resize(30, 70);
    wait::until("a picture of the new size", || {
        let text = terminal.text();
        let foot = text.lines().nth(29).is_some_and(|line| line.contains("q quits"));
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
    wait::until("the restored terminal", || (!terminal.is_in_its_own_screen()).then_some(()));
    service.drained();
}

/// Cursor movements were written to a terminal that has none.
#[test]
fn terminal_without_a_screen_gets_lines() {
    let memcached = Memcached::start();
    let service = Service::proxy(&[memcached.address], &["--workers", "1", "--admin", "0"]);
    let mut top = Command::new("env");
    top.arg("TERM=dumb").arg(flick().get_program()).args(["top", &service.admin().to_string()]);
    let mut terminal = Terminal::start(top);
    let status = wait::until("the end", || terminal.child.try_wait().expect("our own child"));
    assert_eq!(status.code(), Some(0), "{}", terminal.text());
    wait::until("the tables", || terminal.text().contains("Backends").then_some(()));
    assert!(!terminal.is_in_its_own_screen());
    service.drained();
}

#[test]
fn top_exits_on_ctrl_c_and_survives_its_service() {
    let memcached = Memcached::start();
    let service = Service::proxy(&[memcached.address], &["--workers", "1", "--admin", "0"]);
    let mut top = flick();
    top.args(["top", &service.admin().to_string()]);
    let mut terminal = Terminal::start(top);
    wait::until("the first picture", || terminal.text().contains("requests/s").then_some(()));
    service.drained();
    wait::until("it to notice", || terminal.text().contains("no response").then_some(()));
    terminal.keys.write_all(&[3]).expect("it reads keys");
    let status = wait::until("the end", || terminal.child.try_wait().expect("our own child"));
    assert_eq!(status.code(), Some(0), "{}", terminal.text());
}

/// Passes connections on to an admin endpoint; once it is silent, it keeps them open and says nothing.
struct Relay {
    address: SocketAddr,
    is_silent: Arc<AtomicBool>,
    kept: Arc<Mutex<Vec<TcpStream>>>,
}

impl Relay {
    fn start(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let (is_silent, kept) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Vec<TcpStream>>>::default());
        let (says_nothing, keeps) = (Arc::clone(&is_silent), Arc::clone(&kept));
        std::thread::spawn(move || {
            for from in listener.incoming().flatten() {
                if says_nothing.load(Ordering::SeqCst) {
                    keeps.lock().expect("no panic").push(from);
                    continue;
                }
                let to = client::connect(to);
                let clone = |stream: &TcpStream| stream.try_clone().expect("a descriptor");
                for (mut from, mut to) in [(clone(&from), clone(&to)), (to, from)] {
                    std::thread::spawn(move || {
                        let _ = std::io::copy(&mut from, &mut to);
                        let _ = to.shutdown(Shutdown::Write);
                    });
                }
            }
        });
        Self { address, is_silent, kept }
    }
}

/// Keys had no effect for the 5 s in which it waits for a response.
#[test]
fn top_did_not_quit_while_its_service_was_silent() {
    let memcached = Memcached::start();
    let service = Service::proxy(&[memcached.address], &["--workers", "1", "--admin", "0"]);
    let relay = Relay::start(service.admin());
    let mut top = flick();
    top.args(["top", &relay.address.to_string()]);
    let mut terminal = Terminal::start(top);
    wait::until("the first picture", || terminal.text().contains("requests/s").then_some(()));
    relay.is_silent.store(true, Ordering::SeqCst);
    wait::until("it to ask", || (!relay.kept.lock().expect("no panic").is_empty()).then_some(()));
    terminal.keys.write_all(b"q").expect("it reads keys");
    let ended = wait::within(Duration::from_secs(4), || terminal.child.try_wait().expect("our own child"));
    assert_eq!(ended.and_then(|status| status.code()), Some(0), "{}", terminal.text());
    service.drained();
}

/// Four pages and a proxy with four backends, whose tasks have all run.
fn five_services(scratch: &Scratch, backends: &[TcpListener]) -> Service {
    let pages = [(); 4].map(|()| free_address());
    let page = root().join("examples/http_static/http_static.flick");
    let each = pages.iter().enumerate().map(|(number, at)| {
        format!(
            "[[service]]\nname = \"page-{number}\"\nprogram = {page:?}\nlisten = {{ client = \"{at}\" }}\n"
        )
    });
    let backends =
        backends.iter().map(|backend| format!("\"{}\"", backend.local_addr().expect("it is bound")));
    let settings = format!(
        "workers = 1\n{}[[service]]\nname = \"proxy\"\nprogram = {:?}\nlisten = {{ client = \"127.0.0.1:0\" }}\n\
         connect = {{ backends = [{}] }}\n",
        each.collect::<String>(),
        root().join(PROXY),
        backends.collect::<Vec<_>>().join(", ")
    );
    let path = scratch.write("flick.toml", &settings);
    let path = path.to_str().expect("the path is UTF-8");
    let service = Service::start(&["run", "--config", path, "--admin", "0"]);
    for at in pages {
        let (status, _) = http::exchange(&mut client::connect(at), "/").expect("the page answers");
        assert_eq!(status, 200);
    }
    service
}

#[test]
fn small_screens_show_the_backends_of_five_services() {
    let scratch = Scratch::new("top-five");
    let backends = [(); 4].map(|()| TcpListener::bind("127.0.0.1:0").expect("a free port"));
    let service = five_services(&scratch, &backends);
    let mut top = flick();
    top.args(["top", &service.admin().to_string()]);
    let mut terminal = Terminal::start_with(top, 24, 80);
    let of = |name: &str, text: &str| text.lines().filter(|line| line.starts_with(name)).count();
    // How many rows are said to stand before and behind those of a table.
    let said = |table: &str, what: &str, text: &str| {
        let head = text.lines().find(|line| line.contains(table)).unwrap_or_default();
        let count = head.split(what).next().and_then(|before| before.split(' ').next_back()?.parse().ok());
        count.unwrap_or(0)
    };
    wait::until("some rows of each table, and how many are left out", || {
        let text = terminal.text();
        let (pages, proxies) = (of("page-", &text) - of("page-0, ", &text), of("proxy ", &text));
        let tasks = (1..4).map(|page| of(&format!("page-{page}, "), &text)).sum::<usize>();
        let services = pages - tasks + proxies + said(" Services ", " more", &text);
        let backends = of("proxy.backends[", &text) + said(" Backends ", " more", &text);
        let has_all = [of("page-0 ", &text), of("page-0, ", &text), of("proxy.backends[0]", &text)];
        ((services, backends) == (5, 4) && !has_all.contains(&0)).then_some(())
    });
    wait::until("the keys", || terminal.text().contains("Page Down").then_some(()));
    terminal.resize(16, 80);
    terminal.press_until("", "fewer of them", |text| said(" Services ", " more", text) > 1);
    terminal.press_until("\x1b[B", "a row further", |text| said(" Services ", " before", text) == 1);
    terminal.press_until("j", "another one", |text| said(" Services ", " before", text) == 2);
    terminal.press_until("\x1b[A", "a row back", |text| said(" Services ", " before", text) == 1);
    terminal
        .press_until("\x1b[F", "the last rows", |text| of("proxy ", text) == 1 && of("page-0 ", text) == 0);
    terminal.press_until("\x1b[H", "the first ones", |text| of("page-0 ", text) == 1);
    terminal.press_until("\x1b[6~", "a page further", |text| said(" Services ", " before", text) > 0);
    terminal.press_until("\x1b[5~", "a page back", |text| of("page-0 ", text) == 1);
    terminal.keys.write_all(b"q").expect("it reads keys");
    let status = wait::until("the end", || terminal.child.try_wait().expect("our own child"));
    assert_eq!(status.code(), Some(0), "{}", terminal.text());
    service.drained();
}
