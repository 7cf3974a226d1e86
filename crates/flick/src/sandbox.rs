//! The sandbox: a running service restricts the files and system calls it can use, and drops root's privileges.
//! Promises: on by default as far as the kernel supports it, and reported in the log and at the admin endpoint; it
//! applies to every thread and cannot be undone; flick does not start if it cannot switch to the user.
//! Not here: what surrounds the process. Attackers who control the machine code of a service could still use its
//! sockets and io_uring; a container or a systemd unit restricts the rest.
//! Start reading here; `files.rs` is Landlock, `syscalls.rs` seccomp, `user.rs` the user. See
//! `docs/internals/sandbox.md`.

mod files;
mod syscalls;
mod user;

use std::path::{Path, PathBuf};

use flick_net::Endpoint;
use tracing::{info, warn};

pub use user::{User, is_root};

use crate::commands::run::backends::DiscoveredChannel;
use crate::commands::run::prepare::Prepared;
use crate::failure::Failure;
use crate::settings::Settings;
use crate::state_dir_lock;

/// Sandbox mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SandboxMode {
    /// Restrict files and system calls; a process outside of the sandbox starts the new process of an upgrade
    #[default]
    On,
    /// The same, without that process: upgrades need a restart
    Strict,
    /// No restrictions
    Off,
}

/// Degree to which the kernel enforces one restriction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enforcement {
    /// Completely.
    Full,
    /// As far as this kernel supports it.
    Partial,
    /// Not at all: the kernel lacks it, or the container forbids it.
    Unavailable,
    /// Not at all: it is turned off.
    Off,
}

impl Enforcement {
    fn is_active(self) -> bool {
        matches!(self, Self::Full | Self::Partial)
    }

    fn word(self) -> &'static str {
        match self {
            Self::Full => "enforced",
            Self::Partial => "partly enforced",
            Self::Unavailable => "not available",
            Self::Off => "off",
        }
    }
}

/// The restrictions that are active in this process.
#[derive(Clone, Debug)]
pub struct ActiveSandbox {
    files: Enforcement,
    syscalls: Enforcement,
    user: String,
}

impl ActiveSandbox {
    /// Describes the restrictions in one line.
    pub fn summary(&self) -> String {
        format!("files {}, system calls {}, user {}", self.files.word(), self.syscalls.word(), self.user)
    }

    /// Adds to an error that permission was denied that the sandbox may be the cause: the system does not say so.
    pub fn explain(&self, error: String) -> String {
        let denied = std::io::Error::from_raw_os_error(libc::EACCES).to_string();
        if !self.files.is_active() || !error.contains(&denied) {
            return error;
        }
        let separator = if error.contains('\n') { "\n" } else { "; " };
        format!(
            "{error}{separator}the sandbox lets this process read only the directories of the files it read at its start; \
             restart flick to read others"
        )
    }
}

/// Paths that a service may use.
#[derive(Debug, Default)]
pub struct AllowedPaths {
    /// Files and directories to read.
    pub read: Vec<PathBuf>,
    /// Directories in which to create, write and remove files.
    pub write: Vec<PathBuf>,
}

/// Restricts the files of this thread and of those it starts, so call it before the workers start.
///
/// Errors: the state directory cannot be given to the user.
pub fn restrict_files(prepared: &Prepared) -> Result<Enforcement, Failure> {
    let settings = &prepared.settings;
    for directory in prepared.services.iter().filter_map(state_dir_lock::snapshot_dir) {
        give_directory(directory, settings.user.as_ref())?;
    }
    if settings.sandbox == SandboxMode::Off {
        return Ok(Enforcement::Off);
    }
    Ok(files::restrict(&allowed_paths(prepared)))
}

/// Gives the state directory to the user to switch to, while this process is still root.
fn give_directory(directory: &Path, user: Option<&User>) -> Result<(), Failure> {
    let refused = |error| {
        Failure::failed(format!("cannot change the owner of the directory {}: {error}", directory.display()))
    };
    if let Some((user, group)) = user.map(User::ids).filter(|_| user::is_root()) {
        std::os::unix::fs::chown(directory, Some(user), Some(group)).map_err(refused)?;
    }
    Ok(())
}

/// Switches to the user and restricts the system calls of all threads, so call it once the sockets are open and all
/// threads run.
///
/// Errors: flick cannot switch to the user.
pub fn drop_privileges(
    settings: &Settings,
    files: Enforcement,
    is_filter: bool,
) -> Result<ActiveSandbox, Failure> {
    if let Some(user) = &settings.user {
        user.switch()?;
    } else if user::is_root() && !is_filter {
        // A filter refuses `--user`.
        warn!("flick runs as root; `--user NAME` drops root's privileges once the sockets are open");
    }
    let syscalls = match settings.sandbox {
        SandboxMode::Off => Enforcement::Off,
        SandboxMode::On | SandboxMode::Strict => syscalls::restrict(),
    };
    let active = ActiveSandbox { files, syscalls, user: user::name() };
    info!(files = files.word(), syscalls = syscalls.word(), user = active.user, "sandboxed");
    Ok(active)
}

/// The paths that these services may use.
fn allowed_paths(prepared: &Prepared) -> AllowedPaths {
    let settings = &prepared.settings;
    let mut paths = AllowedPaths { read: files::always_read(), ..AllowedPaths::default() };
    let lists = prepared.opened.iter().flatten().filter_map(DiscoveredChannel::file).map(Path::to_path_buf);
    let lists: Vec<PathBuf> = lists.collect();
    let tokens = settings.admin_token_file.iter().chain(&settings.admin_read_token_file);
    for file in prepared.files.iter().chain(tokens.map(|token| &token.path)).chain(&lists) {
        // The target of a symbolic link as well.
        paths.read.extend(
            [Some(file.clone()), file.canonicalize().ok()].iter().flatten().map(|file| directory_of(file)),
        );
    }
    // A reload looks for files to include there.
    paths.read.extend(
        settings
            .file
            .iter()
            .flat_map(|file| file.directories())
            .map(|directory| if directory == Path::new("") { PathBuf::from(".") } else { directory.clone() }),
    );
    for service in &prepared.services {
        let config = &service.config;
        // The directory is created only for services with a snapshot.
        paths.write.extend(config.state_dir.clone().filter(|directory| directory.exists()));
        for binding in config.listen.iter().chain(&config.connect) {
            paths.write.extend(binding.endpoints.iter().filter_map(socket_directory));
        }
    }
    paths.write.extend(settings.backend_state_file.as_deref().map(directory_of));
    let log = settings.access_log.as_ref().and_then(|wanted| wanted.file());
    paths.write.extend(log.map(directory_of));
    if let Some(flick_admin::Address::Unix(path)) = &settings.admin {
        paths.write.push(directory_of(path));
    }
    paths
}

fn socket_directory(at: &Endpoint) -> Option<PathBuf> {
    match at {
        Endpoint::Unix(path) => Some(directory_of(path)),
        Endpoint::Tcp(_) | Endpoint::Shm(_) | Endpoint::Descriptor(_) => None,
    }
}

/// The directory of a file.
fn directory_of(file: &Path) -> PathBuf {
    match file.parent() {
        Some(parent) if parent != Path::new("") => parent.to_path_buf(),
        _ => PathBuf::from("."),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{AllowedPaths, Enforcement, directory_of, files, syscalls};

    /// The dynamic loaders.
    const LOADERS: &[&str] = &["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"];

    /// Set in the child process that is restricted: the restrictions cannot be undone.
    const CHILD: &str = "FLICK_SANDBOXED_CHILD";

    /// Runs `work` in a child process that runs only the test `name`.
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
        let mut child =
            std::process::Command::new(std::env::current_exe().expect("the test binary has a path"));
        let child = child.args([name, "--exact", "--nocapture"]).env(CHILD, &directory);
        let output = child.output().expect("the test binary starts");
        std::fs::remove_dir_all(&directory).expect("it is ours");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    #[test]
    fn sandbox_denies_other_files() {
        in_a_child("sandbox::tests::sandbox_denies_other_files", |directory| {
            let paths =
                AllowedPaths { read: vec![directory.join("read")], write: vec![directory.join("write")] };
            assert!(std::fs::read("/etc/hostname").is_ok() || !Path::new("/etc/hostname").exists());
            let enforced = files::restrict(&paths);
            assert!(
                matches!(enforced, Enforcement::Full | Enforcement::Partial),
                "this kernel enforces no Landlock rules ({enforced:?}): build it with CONFIG_SECURITY_LANDLOCK, and have \
                 landlock in /sys/kernel/security/lsm"
            );
            let denied = |result: std::io::Result<()>| {
                let error = result.expect_err("it is not allowed");
                assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied, "{error}");
            };
            // Threads that start later are restricted, too.
            let threads = std::thread::scope(|scope| {
                scope.spawn(|| std::fs::read(directory.join("other/file")).map(drop)).join()
            });
            denied(threads.expect("no panic"));
            denied(std::fs::read("/etc/shadow").map(drop));
            denied(std::fs::write(directory.join("read/new"), "text"));
            denied(std::process::Command::new("/bin/true").spawn().map(drop));
            assert_eq!(std::fs::read(directory.join("read/file")).expect("it may be read"), b"text");
            std::fs::write(directory.join("write/new"), "text").expect("it may be written");
            std::fs::rename(directory.join("write/new"), directory.join("write/file")).expect("and replaced");
        });
    }

    #[test]
    fn sandbox_denies_programs_and_other_socket_families() {
        in_a_child("sandbox::tests::sandbox_denies_programs_and_other_socket_families", |_| {
            restrict_syscalls();
            let error =
                std::process::Command::new("/bin/true").spawn().map(drop).expect_err("no program starts");
            assert_eq!(error.raw_os_error(), Some(libc::ENOSYS), "{error}");
            let family = rustix::net::AddressFamily::NETLINK;
            let error = rustix::net::socket(family, rustix::net::SocketType::RAW, None)
                .expect_err("not an allowed family");
            assert_eq!(error, rustix::io::Errno::NOSYS);
            // Threads, sockets, files and clocks still work.
            let worked = std::thread::spawn(|| {
                let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
                let client = std::net::TcpStream::connect(listener.local_addr()?)?;
                client.set_nodelay(true)?;
                std::fs::read("/proc/self/stat").map(drop)
            });
            worked.join().expect("no panic").expect("all of that is allowed");
            assert!(std::time::Instant::now().elapsed().as_secs() < 60);
        });
    }

    /// Restricts the system calls; a kernel that cannot do it fails the test.
    fn restrict_syscalls() {
        let enforced = syscalls::restrict();
        assert!(
            enforced == Enforcement::Full,
            "this kernel has no seccomp filters ({enforced:?}): build it with CONFIG_SECCOMP_FILTER, and let the \
             container call seccomp(2)"
        );
    }

    #[test]
    fn sandbox_kept_processes_from_pairing() {
        in_a_child("sandbox::tests::sandbox_kept_processes_from_pairing", |_| {
            use flick_shm::pairing::{PairListener, PairPolicy, connect_pair};
            restrict_syscalls();
            let name = format!("flick-sandbox-{}", std::process::id());
            let listener = PairListener::bind(&name, PairPolicy::SameUser).expect("the name is free");
            let config =
                flick_shm::segment::SegmentConfig { slots: 128, arena_bytes: 1 << 20, huge_pages: false };
            let connecting = std::thread::spawn(move || {
                connect_pair(&name, &config, PairPolicy::SameUser).and_then(|(_, pair)| pair).map(drop)
            });
            listener.accept().and_then(|(_, pair)| pair).expect("this side pairs");
            connecting.join().expect("no panic").expect("the other side pairs");
        });
    }

    #[test]
    fn sandbox_let_the_loader_start_a_written_file() {
        in_a_child("sandbox::tests::sandbox_let_the_loader_start_a_written_file", |directory| {
            // What the dynamic loader does with a program that it is given as an argument.
            let load = |file: &Path| {
                let loader = LOADERS.iter().find(|loader| Path::new(loader).exists());
                std::process::Command::new(loader.expect("a loader")).arg(file).status()
            };
            let copy = directory.join("write/true");
            std::fs::copy("/bin/true", &copy).expect("it can be copied");
            assert!(load(&copy).expect("the loader starts").success(), "without a sandbox it does");
            // The sandbox's filter, but for the calls that start the loader.
            let execute = [libc::SYS_execve, libc::SYS_execveat, libc::SYS_vfork];
            let filter = syscalls::filter(&execute).expect("a filter");
            seccompiler::apply_filter_all_threads(&filter).expect(
                "this kernel has no seccomp filters: build it with CONFIG_SECCOMP_FILTER, and let the container call \
                 seccomp(2)",
            );
            let status = load(&copy).expect("the loader itself starts");
            assert!(!status.success(), "the file ran: {status}");
            // Memory of no file may become code: compiled programs run that way.
            let text = "type m = unit { \"a\"; };\nproc P: (m/m client)\n  | client => client\n";
            let module = flick_compiler::module(&flick_compiler::Input::text("echo.flick", text));
            let module = module.expect("it compiles");
            let code = flick_compiler::generate(&module, &flick_codegen::Options::default());
            assert!(code.is_ok(), "compiled programs can be loaded");
        });
    }

    #[test]
    fn directory_of_a_file() {
        for (file, directory) in [("a.flick", "."), ("x/a.flick", "x"), ("/a.flick", "/"), ("../a", "..")] {
            assert_eq!(directory_of(Path::new(file)), Path::new(directory), "{file}");
        }
    }
}
