//! What a running service gives up: files it has no use for, system calls it never makes, and root's rights.
//! Promises: on by default as far as the kernel has it, and said in the log and to the admin side; what is in force holds for
//! every thread and cannot be taken back; a user that does not exist, or cannot be become, starts nothing.
//! Refuses: to replace what is around it. A service whose machine code were taken over could still use its own sockets
//! and ring; a container or a unit of systemd bounds the rest.
//! Start reading here; `files.rs` is Landlock, `calls.rs` seccomp, `user.rs` who it runs as. How they fit: `docs/internals/confinement.md`.

mod calls;
mod files;
mod user;

use std::path::{Path, PathBuf};

use flick_net::Endpoint;
use tracing::{info, warn};

pub use user::{User, is_root};

use crate::commands::run::backends::Opened;
use crate::commands::run::prepare::Prepared;
use crate::failure::Failure;
use crate::holding;
use crate::settings::Settings;

/// How much is given up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Confine {
    /// Files and system calls that the service has no use for; it starts only programs that lie beside flick, for an upgrade
    #[default]
    On,
    /// The same, and it starts no program at all: there is no upgrade without a restart
    Strict,
    /// Nothing
    Off,
}

/// Whether the kernel holds a service to a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// All of it.
    Wholly,
    /// As far as this kernel can.
    Partly,
    /// As the process held us that started us to take its place.
    Inherited,
    /// The kernel does not have it, or whoever runs us forbids it.
    No,
    /// It was not asked for.
    Off,
}

impl Held {
    fn is_held(self) -> bool {
        matches!(self, Held::Wholly | Held::Partly | Held::Inherited)
    }

    fn word(self) -> &'static str {
        match self {
            Held::Wholly => "enforced",
            Held::Partly => "partly",
            Held::Inherited => "inherited",
            Held::No => "not available",
            Held::Off => "off",
        }
    }
}

/// What is in force.
#[derive(Clone, Debug)]
pub struct InForce {
    files: Held,
    calls: Held,
    is_strict: bool,
    user: String,
}

impl InForce {
    /// In one line.
    pub fn line(&self) -> String {
        format!("files {}, system calls {}, user {}", self.files.word(), self.calls.word(), self.user)
    }

    /// What went wrong, and that it did because this process is confined if that may be so: the system says no more than that it
    /// is denied.
    pub fn explain(&self, why: String) -> String {
        let denied = std::io::Error::from_raw_os_error(libc::EACCES).to_string();
        if !self.files.is_held() || !why.contains(&denied) {
            return why;
        }
        let between = if why.contains('\n') { "\n" } else { "; " };
        format!(
            "{why}{between}this process is confined: what it may read are the directories of what it read at its start; if \
             that is elsewhere, start it anew"
        )
    }

    /// Whether it can start no other process.
    pub fn starts_nothing(&self) -> bool {
        self.is_strict && (self.files.is_held() || self.calls.is_held())
    }
}

/// What a service has use for, by path.
#[derive(Debug, Default)]
pub struct Paths {
    /// Files and directories that are read.
    pub read: Vec<PathBuf>,
    /// Directories in which files are made, written and removed.
    pub write: Vec<PathBuf>,
    /// Directories of programs that may be started.
    pub start: Vec<PathBuf>,
}

/// Closes the files: for this thread and those it starts, so before the workers.
///
/// Errors: a directory that is written to cannot be given to the user.
pub fn files(prepared: &Prepared) -> Result<Held, Failure> {
    let settings = &prepared.settings;
    for directory in prepared.services.iter().filter_map(holding::kept_in) {
        give_directory(directory, settings.user.as_ref())?;
    }
    if settings.confine == Confine::Off {
        return Ok(Held::Off);
    }
    if inherits() {
        return Ok(Held::Inherited);
    }
    Ok(files::restrict(&paths(prepared)))
}

/// Whether the process whose place we take has confined us already: each upgrade would add a layer, of which the kernel
/// bears few.
fn inherits() -> bool {
    let is_held =
        || std::fs::read_to_string("/proc/self/status").is_ok_and(|text| text.contains("Seccomp:\t2"));
    std::env::var_os(crate::takeover::VARIABLE).is_some() && is_held()
}

/// Makes the directory of kept dictionaries the user's own while that can still be done, if we are to become one.
fn give_directory(directory: &Path, user: Option<&User>) -> Result<(), Failure> {
    let refused =
        |error| Failure::failed(format!("cannot give the directory {} away: {error}", directory.display()));
    if let Some((user, group)) = user.map(User::ids).filter(|_| user::is_root()) {
        std::os::unix::fs::chown(directory, Some(user), Some(group)).map_err(refused)?;
    }
    Ok(())
}

/// Gives up the rights of root and the system calls: for every thread, so after the sockets are open and all threads run.
///
/// Errors: the user cannot be become.
pub fn rights(settings: &Settings, files: Held) -> Result<InForce, Failure> {
    if let Some(user) = &settings.user {
        user.become_it()?;
    } else if user::is_root() {
        warn!("runs as root; `--user NAME` gives up what it does not need once its sockets are open");
    }
    let calls = match settings.confine {
        Confine::Off => Held::Off,
        _ if inherits() => Held::Inherited,
        Confine::On => calls::restrict(true),
        Confine::Strict => calls::restrict(false),
    };
    let is_strict = settings.confine == Confine::Strict;
    let in_force = InForce { files, calls, is_strict, user: user::name() };
    info!(files = files.word(), calls = calls.word(), user = in_force.user, "confined");
    Ok(in_force)
}

/// What these services need, beside what every one does.
fn paths(prepared: &Prepared) -> Paths {
    let settings = &prepared.settings;
    let mut paths = Paths { read: files::always_read(), ..Paths::default() };
    let lists = prepared.opened.iter().flatten().filter_map(Opened::file).map(Path::to_path_buf);
    let lists: Vec<PathBuf> = lists.collect();
    for file in prepared.files.iter().chain(&settings.admin_token_file).chain(&lists) {
        // What a link leads to, too.
        paths.read.extend(
            [Some(file.clone()), file.canonicalize().ok()].iter().flatten().map(|file| directory_of(file)),
        );
    }
    for service in &prepared.services {
        let config = &service.config;
        // One without a dictionary to keep has no use for its directory; it is not made for it.
        paths.write.extend(config.state_dir.clone().filter(|directory| directory.exists()));
        for binding in config.listen.iter().chain(&config.connect) {
            paths.write.extend(binding.endpoints.iter().filter_map(socket_directory));
        }
    }
    let log = settings.access_log.as_ref().and_then(|wanted| wanted.file());
    paths.write.extend(log.map(directory_of));
    if let Some(flick_admin::Address::Unix(path)) = &settings.admin {
        paths.write.push(directory_of(path));
    }
    if settings.confine == Confine::On
        && let Ok(own) = std::env::current_exe()
    {
        paths.start.push(directory_of(&own));
    }
    paths
}

fn socket_directory(at: &Endpoint) -> Option<PathBuf> {
    match at {
        Endpoint::Unix(path) => Some(directory_of(path)),
        Endpoint::Tcp(_) => None,
    }
}

/// The directory that a file is in.
fn directory_of(file: &Path) -> PathBuf {
    match file.parent() {
        Some(parent) if parent != Path::new("") => parent.to_path_buf(),
        _ => PathBuf::from("."),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Held, Paths, calls, directory_of, files};

    /// Set for the process in which the restrictions hold: they cannot be taken back.
    const CHILD: &str = "FLICK_CONFINED_CHILD";

    /// Runs `work` in a process of its own, this test of which is `name`.
    fn in_a_child(name: &str, work: impl FnOnce(&Path)) {
        if let Some(directory) = std::env::var_os(CHILD) {
            work(Path::new(&directory));
            return;
        }
        let directory =
            std::env::temp_dir().join(format!("flick-{}-{}", name.replace(':', "-"), std::process::id()));
        for part in ["read", "write", "other"] {
            std::fs::create_dir_all(directory.join(part)).expect("a directory for temporary files");
            std::fs::write(directory.join(part).join("file"), "text").expect("it can be written");
        }
        let mut child = std::process::Command::new(std::env::current_exe().expect("we are a file"));
        let child = child.args([name, "--exact", "--nocapture"]).env(CHILD, &directory);
        let output = child.output().expect("the test runs itself");
        std::fs::remove_dir_all(&directory).expect("it is ours");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    #[test]
    fn a_confined_thread_touches_no_file_but_those_it_has_a_use_for() {
        in_a_child(
            "confine::tests::a_confined_thread_touches_no_file_but_those_it_has_a_use_for",
            |directory| {
                let paths = Paths {
                    read: vec![directory.join("read")],
                    write: vec![directory.join("write")],
                    start: Vec::new(),
                };
                assert!(std::fs::read("/etc/hostname").is_ok() || !Path::new("/etc/hostname").exists());
                match files::restrict(&paths) {
                    Held::Wholly | Held::Partly => {}
                    held => return println!("this kernel does not confine files: {held:?}"),
                }
                let denied = |result: std::io::Result<()>| {
                    let error = result.expect_err("it is not allowed");
                    assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied, "{error}");
                };
                // Of threads that are started later too.
                let threads = std::thread::scope(|scope| {
                    scope.spawn(|| std::fs::read(directory.join("other/file")).map(drop)).join()
                });
                denied(threads.expect("no panic"));
                denied(std::fs::read("/etc/shadow").map(drop));
                denied(std::fs::write(directory.join("read/new"), "text"));
                denied(std::process::Command::new("/bin/true").spawn().map(drop));
                assert_eq!(std::fs::read(directory.join("read/file")).expect("it may be read"), b"text");
                std::fs::write(directory.join("write/new"), "text").expect("it may be written");
                std::fs::rename(directory.join("write/new"), directory.join("write/file"))
                    .expect("and replaced");
            },
        );
    }

    #[test]
    fn a_confined_process_starts_no_program_and_opens_no_strange_socket() {
        in_a_child(
            "confine::tests::a_confined_process_starts_no_program_and_opens_no_strange_socket",
            |_| {
                if calls::restrict(false) != Held::Wholly {
                    return println!("this kernel does not confine system calls");
                }
                let error =
                    std::process::Command::new("/bin/true").spawn().map(drop).expect_err("no program starts");
                assert_eq!(error.raw_os_error(), Some(libc::ENOSYS), "{error}");
                let family = rustix::net::AddressFamily::NETLINK;
                let error =
                    rustix::net::socket(family, rustix::net::SocketType::RAW, None).expect_err("not of ours");
                assert_eq!(error, rustix::io::Errno::NOSYS);
                // What services do goes on: threads, sockets, memory that holds code, files, time.
                let worked = std::thread::spawn(|| {
                    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
                    let client = std::net::TcpStream::connect(listener.local_addr()?)?;
                    client.set_nodelay(true)?;
                    std::fs::read("/proc/self/stat").map(drop)
                });
                worked.join().expect("no panic").expect("all of that is allowed");
                assert!(std::time::Instant::now().elapsed().as_secs() < 60);
            },
        );
    }

    #[test]
    fn who_may_start_programs_can() {
        in_a_child("confine::tests::who_may_start_programs_can", |_| {
            calls::restrict(true);
            let status = std::process::Command::new("/bin/true").status().expect("it starts");
            assert!(status.success());
        });
    }

    #[test]
    fn every_file_is_in_a_directory() {
        for (file, directory) in [("a.flick", "."), ("x/a.flick", "x"), ("/a.flick", "/"), ("../a", "..")] {
            assert_eq!(directory_of(Path::new(file)), Path::new(directory), "{file}");
        }
    }
}
