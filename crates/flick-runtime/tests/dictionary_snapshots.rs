//! Dictionaries with `snapshot`: what a service knew when it ended, the next one knows.

use std::path::PathBuf;
use std::sync::Arc;

use flick_abi::{Bounds, Dict, Evict, Host, Program, Snapshot};
use flick_net::monotonic_ns;
use flick_runtime::load_balancer::LoadBalancer;
use flick_runtime::state::Origin;
use flick_runtime::state::snapshots::Keeper;
use flick_runtime::{State, WorkerHost};

/// A directory of its own, removed at the end.
struct TempDir(PathBuf);

impl TempDir {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("flick-kept-{}-{name}", std::process::id())))
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn program(file: &str, layout: u64) -> Program {
    let dict = |name: &str, snapshot| Dict {
        name: name.into(),
        entries_max: 100,
        bytes_max: None,
        key_bytes_max: 8,
        value_bytes_max: 8,
        expire_ns: None,
        evict: Evict::Lru,
        snapshot,
        layout,
    };
    let snapshot = |file: &str| Some(Snapshot { file: file.into(), every_ns: 3_600_000_000_000 });
    Program {
        name: "p".into(),
        channels: Vec::new(),
        rules: Vec::new(),
        protocols: Vec::new(),
        merges: Vec::new(),
        handlers: Vec::new(),
        timers: Vec::new(),
        dicts: vec![dict("kept", snapshot(file)), dict("lost", None), dict("behind", snapshot("behind"))],
        counters: Vec::new(),
        state_words: 0,
        init_state: None,
        bounds: Bounds::default(),
    }
}

fn state(file: &str, layout: u64) -> Arc<State> {
    let state = State::new(&program(file, layout), 1, Origin::System(monotonic_ns()));
    Arc::new(state.expect("small dictionaries fit"))
}

/// One life of a service: reads back, lets `work` use it, writes.
fn live(dir: &TempDir, layout: u64, work: impl FnOnce(&mut dyn Host)) {
    let state = state("hits", layout);
    let keeper = Keeper::start(&state, &dir.0).expect("the directory can be made").expect("one is kept");
    work(&mut WorkerHost::new(state, Arc::new(LoadBalancer::default()), 0).view(&()));
    keeper.finish();
}

#[test]
fn the_next_life_knows_what_the_last_one_knew() {
    let dir = TempDir::new("next");
    live(&dir, 1, |host| {
        host.dict_put(0, b"a", b"1");
        host.dict_put(1, b"b", b"2");
    });
    live(&dir, 1, |host| {
        assert!(host.dict_has(0, b"a"), "it was kept");
        assert!(!host.dict_has(1, b"b"), "this one is not kept");
        host.dict_remove(0, b"a");
        host.dict_put(0, b"c", b"3");
    });
    live(&dir, 1, |host| assert_eq!((host.dict_has(0, b"a"), host.dict_has(0, b"c")), (false, true)));
    live(&dir, 2, |host| assert_eq!(host.dict_len(0), 0, "other types than those of the file"));
}

#[test]
fn a_snapshot_that_could_not_be_read_was_overwritten_by_an_empty_one() {
    let dir = TempDir::new("unread");
    live(&dir, 1, |host| {
        host.dict_put(0, b"a", b"1");
    });
    let before = std::fs::read(dir.0.join("hits")).expect("it is kept");
    live(&dir, 2, |host| assert_eq!(host.dict_len(0), 0, "other types than those of the file"));
    let names: Vec<_> = std::fs::read_dir(&dir.0)
        .expect("the directory is there")
        .map(|entry| entry.expect("it can be read").file_name().into_string().expect("plain names"))
        .collect();
    let aside = names.iter().find(|name| name.starts_with("hits.unread-")).expect("it is put aside");
    // What a wrong program was started over is there for the right one.
    std::fs::rename(dir.0.join(aside), dir.0.join("hits")).expect("both are there");
    assert_eq!(std::fs::read(dir.0.join("hits")).expect("it is back"), before);
    live(&dir, 1, |host| assert!(host.dict_has(0, b"a")));
}

#[test]
fn a_snapshot_may_not_leave_its_directory() {
    let dir = TempDir::new("leave");
    let error = Keeper::start(&state("../hits", 1), &dir.0).expect_err("the name leads out").to_string();
    assert!(error.contains("is not a name"), "{error}");
}

#[test]
fn a_directory_that_cannot_be_written_was_noticed_by_the_first_save() {
    let dir = TempDir::new("unwritable");
    std::fs::create_dir_all(&dir.0).expect("the temporary directory can be written");
    // A file cannot be created in what is no directory.
    std::fs::write(dir.0.join("state"), "a file").expect("it is writable");
    let state = state("hits", 1);
    let error = Keeper::start(&state, &dir.0.join("state")).expect_err("it is a file").to_string();
    assert!(error.contains("File exists"), "{error}");
    // For root, only what is no file at all cannot be read.
    std::fs::create_dir(dir.0.join("hits.probe")).expect("it is writable");
    let error = Keeper::start(&state, &dir.0).expect_err("nothing can be written").to_string();
    assert!(error.contains("cannot read and write the snapshot"), "{error}");
}

#[test]
fn a_snapshot_was_newer_than_the_one_behind_it() {
    let dir = TempDir::new("order");
    live(&dir, 1, |host| {
        host.dict_put(0, b"a", b"1");
    });
    let before = std::fs::read(dir.0.join("hits")).expect("it is kept");
    let state = state("hits", 1);
    let keeper = Keeper::start(&state, &dir.0).expect("the directory is there").expect("two are kept");
    // A file does not replace a directory.
    std::fs::remove_file(dir.0.join("behind")).expect("it is kept");
    std::fs::create_dir(dir.0.join("behind")).expect("it is writable");
    WorkerHost::new(state, Arc::new(LoadBalancer::default()), 0).view(&()).dict_put(0, b"b", b"2");
    assert_eq!(keeper.finish(), 2);
    assert!(
        std::fs::read(dir.0.join("hits")).expect("the old one") == before,
        "it waits for the one behind it"
    );
    let left = format!("hits.{}.new", std::process::id());
    assert!(!dir.0.join(left).exists(), "nothing is left behind");
}

/// A process that is killed while it writes leaves a part of a snapshot behind, in a file of its own.
#[test]
fn half_snapshots_of_killed_processes_stayed_for_ever() {
    let dir = TempDir::new("leftovers");
    let mut ended = std::process::Command::new("true").spawn().expect("coreutils are there");
    ended.wait().expect("it ends");
    let state = state("hits", 1);
    let keeper = Keeper::start(&state, &dir.0).expect("the directory can be made").expect("two are kept");
    let files = [
        (format!("hits.{}.new", ended.id()), false),
        (format!("behind.{}.new", ended.id()), false),
        ("hits.1.new".to_owned(), true),
        (format!("other.{}.new", ended.id()), true),
        ("hits.new".to_owned(), true),
    ];
    files.iter().for_each(|(name, _)| std::fs::write(dir.0.join(name), "a part").expect("it is writable"));
    keeper.begin(Vec::new());
    assert_eq!(keeper.finish(), 0);
    for (name, stays) in files {
        assert_eq!(dir.0.join(&name).exists(), stays, "{name}");
    }
}

/// An upgrade writes them while the thread that does so at intervals may write them, too.
#[test]
fn snapshots_that_two_threads_wrote_at_the_same_time_were_damaged() {
    let dir = TempDir::new("both");
    let state = state("hits", 1);
    let keeper = Keeper::start(&state, &dir.0).expect("the directory can be made").expect("two are kept");
    let save = || (0..100).map(|_| state.save_snapshots(&dir.0)).sum::<usize>();
    let failed = std::thread::scope(|scope| {
        let threads = [(); 2].map(|()| scope.spawn(save));
        threads.map(|thread| thread.join().expect("no assertion failed"))
    });
    assert_eq!((failed, keeper.finish()), ([0; 2], 0));
}

#[test]
fn entries_were_lost_where_the_wall_clock_was_set_ahead_or_back_since_the_start() {
    const HOUR_NS: u64 = 3_600_000_000_000;
    let mut program = program("hits", 1);
    program.dicts[0].expire_ns = Some(HOUR_NS / 6);
    // States whose clocks are an hour behind, an hour ahead, and right: entries of each are read back by each.
    let state = |clock: usize| {
        let driver_now_ns =
            [monotonic_ns() + HOUR_NS, monotonic_ns().wrapping_sub(HOUR_NS), monotonic_ns()][clock];
        Arc::new(State::new(&program, 1, Origin::System(driver_now_ns)).expect("small dictionaries fit"))
    };
    for (writes, reads) in [(0, 2), (1, 2), (2, 0), (2, 1), (0, 1), (1, 0)] {
        let dir = TempDir::new("clock");
        for (clock, is_first) in [(writes, true), (reads, false)] {
            let state = state(clock);
            let keeper = Keeper::start(&state, &dir.0).expect("the directory can be made");
            let mut host = WorkerHost::new(state, Arc::new(LoadBalancer::default()), 0);
            host.set_now(monotonic_ns());
            if is_first {
                host.view(&()).dict_put(0, b"a", b"1");
            } else {
                assert!(host.view(&()).dict_has(0, b"a"), "clock {reads} reads what clock {writes} wrote");
                host.set_now(monotonic_ns() + HOUR_NS / 6);
                assert!(!host.view(&()).dict_has(0, b"a"), "clock {reads}: it expires after its time");
            }
            keeper.expect("two are kept").finish();
        }
    }
}
