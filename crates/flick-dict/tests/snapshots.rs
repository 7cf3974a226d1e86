//! Snapshots: a saved one is loaded, a damaged one is refused.

#![cfg(not(loom))]

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use flick_dict::snapshot::{load, save, write};
use flick_dict::{DictConfig, Dictionary, Evict, LoadError, LoadSummary, Seed, SnapshotTime};

/// A temporary directory, removed at the end.
struct TempDir(PathBuf);

impl TempDir {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("flick-dict-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).expect("the temporary directory can be written");
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("state")
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn dictionary(entries_max: u64, expire_ns: Option<u64>) -> Dictionary {
    let config = DictConfig {
        entries_max,
        bytes_max: None,
        key_bytes_max: 20,
        value_bytes_max: 400,
        expire_ns,
        evict: Evict::Nothing,
        seed: Seed::Random,
    };
    Dictionary::new(config).expect("a small dictionary fits")
}

fn filled(expire_ns: Option<u64>) -> Dictionary {
    let dictionary = dictionary(100, expire_ns);
    for number in 0_u64..100 {
        assert!(dictionary.put(
            &number.to_le_bytes(),
            &vec![number as u8; number as usize * 4],
            1_000 + number
        ));
    }
    dictionary
}

#[test]
fn a_snapshot_round_trips() {
    let dir = TempDir::new("back");
    assert_eq!(save(&filled(None), &dir.file(), 5, SnapshotTime::same(2_000)).expect("it is written"), 100);
    let back = dictionary(100, None);
    let loaded = load(&back, &dir.file(), 5, SnapshotTime::same(3_000)).expect("it is read");
    assert_eq!(loaded, LoadSummary { entries: 100, expired: 0, refused: 0 });
    let mut out = [0; 400];
    for number in 0_u64..100 {
        let len = back.get(&number.to_le_bytes(), 3_000, &mut out);
        assert_eq!(len.map(|len| &out[..len]), Some(&vec![number as u8; number as usize * 4][..]));
    }
    let left: Vec<_> = std::fs::read_dir(&dir.0).expect("it is there").collect();
    assert_eq!(left.len(), 1, "the temporary file is gone");
}

#[test]
fn entries_expire_while_the_service_is_down() {
    let dir = TempDir::new("lifetimes");
    // Written at 1,000 + number, so alive until 2,000 + number.
    save(&filled(Some(1_000)), &dir.file(), 5, SnapshotTime::same(1_500)).expect("it is written");
    let back = dictionary(100, Some(1_000));
    let loaded = load(&back, &dir.file(), 5, SnapshotTime::same(2_049)).expect("it is read");
    assert_eq!(loaded, LoadSummary { entries: 50, expired: 50, refused: 0 });
    assert!(back.has(&60_u64.to_le_bytes(), 2_059));
    assert!(!back.has(&60_u64.to_le_bytes(), 2_060));
    // The clock was set back, or the new program has a shorter expiry: never longer than that from now.
    let shorter = dictionary(100, Some(10));
    load(&shorter, &dir.file(), 5, SnapshotTime::same(100)).expect("it is read");
    assert!(shorter.has(&60_u64.to_le_bytes(), 109) && !shorter.has(&60_u64.to_le_bytes(), 110));
}

#[test]
fn a_smaller_dictionary_takes_what_fits() {
    let dir = TempDir::new("smaller");
    save(&filled(None), &dir.file(), 5, SnapshotTime::same(2_000)).expect("it is written");
    let back = dictionary(30, None);
    let loaded = load(&back, &dir.file(), 5, SnapshotTime::same(3_000)).expect("it is read");
    assert_eq!(loaded, LoadSummary { entries: 30, expired: 0, refused: 70 });
}

/// Saves, damages the file, and expects an error that contains `expected` and an empty dictionary.
fn check_damaged(name: &str, damage: impl FnOnce(&mut Vec<u8>), layout: u64, expected: &str) {
    let dir = TempDir::new(name);
    save(&filled(None), &dir.file(), 5, SnapshotTime::same(2_000)).expect("it is written");
    let mut bytes = std::fs::read(dir.file()).expect("it is there");
    damage(&mut bytes);
    std::fs::write(dir.file(), bytes).expect("it can be written");
    let back = dictionary(100, None);
    let error =
        load(&back, &dir.file(), layout, SnapshotTime::same(3_000)).expect_err("it is refused").to_string();
    assert!(error.contains(expected), "{name}: {error}");
    assert!(back.is_empty(), "{name}: a refused snapshot changes nothing");
}

#[test]
fn a_damaged_snapshot_is_refused_whole() {
    check_damaged("magic", |bytes| bytes[0] ^= 1, 5, "does not begin as a snapshot");
    check_damaged("version", |bytes| bytes[8] = 2, 5, "has format 2; this flick reads format 1");
    check_damaged("layout", |_| {}, 6, "other types of keys or values");
    check_damaged("bit", |bytes| bytes[3_000] ^= 4, 5, "checksum does not fit");
    check_damaged(
        "count",
        |bytes| *bytes.last_mut().expect("it is not empty") ^= 4,
        5,
        "checksum does not fit",
    );
    check_damaged("longer", |bytes| bytes.push(0), 5, "checksum does not fit");
    check_damaged("empty", Vec::clear, 5, "ends too early");
    for keep in [1, 23, 24, 31, 40, 47, 1_000] {
        check_damaged("short", |bytes| bytes.truncate(keep), 5, "the snapshot is damaged");
    }
}

#[test]
fn entries_longer_than_the_program_allows_are_refused() {
    let dir = TempDir::new("longer-entries");
    save(&filled(None), &dir.file(), 5, SnapshotTime::same(2_000)).expect("it is written");
    let config = DictConfig { value_bytes_max: 100, ..dictionary(100, None).config().clone() };
    let back = Dictionary::new(config).expect("it fits");
    let error =
        load(&back, &dir.file(), 5, SnapshotTime::same(3_000)).expect_err("it is refused").to_string();
    assert!(error.contains("longer than the program allows"), "{error}");
    assert!(back.is_empty());
}

#[test]
fn a_missing_file_is_reported_as_missing() {
    let dir = TempDir::new("none");
    let error =
        load(&dictionary(1, None), &dir.file(), 5, SnapshotTime::same(1)).expect_err("there is no file");
    assert!(matches!(error, LoadError::Missing), "{error}");
}

#[test]
fn a_failed_save_leaves_the_old_file() {
    let dir = TempDir::new("old-one");
    save(&filled(None), &dir.file(), 5, SnapshotTime::same(2_000)).expect("it is written");
    let old = std::fs::read(dir.file()).expect("it is there");
    // A directory has the temporary file's name.
    let temporary = format!("state.{}.new", std::process::id());
    std::fs::create_dir(dir.0.join(temporary)).expect("it can be created");
    save(&dictionary(1, None), &dir.file(), 5, SnapshotTime::same(2_000))
        .expect_err("the temporary file cannot be written");
    assert_eq!(std::fs::read(dir.file()).expect("it is still there"), old);
}

/// In an upgrade the old process may still be writing when the new one begins.
#[test]
fn two_processes_wrote_to_one_file() {
    let dir = TempDir::new("processes");
    let (own, others) = (dir.0.join(format!("state.{}.new", std::process::id())), dir.0.join("state.1.new"));
    std::fs::write(&others, "a part").expect("it is writable");
    let (dictionary, path) = (filled(None), dir.file());
    let new = write(&dictionary, &path, 5, SnapshotTime::same(2_000)).expect("it is written");
    assert!(own.exists(), "it has a name of its own");
    assert_eq!(new.replace_old().expect("nothing is in the way"), 100);
    assert_eq!(std::fs::read(others).expect("it is there"), b"a part");
}

#[test]
fn a_failed_save_left_a_half_file_that_kept_the_disk_full() {
    let dir = TempDir::new("half");
    // A file cannot replace a directory.
    std::fs::create_dir(dir.file()).expect("it is writable");
    save(&filled(None), &dir.file(), 5, SnapshotTime::same(2_000)).expect_err("the rename fails");
    let names: Vec<_> = std::fs::read_dir(&dir.0)
        .expect("it is there")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    assert_eq!(names, ["state"]);
}

#[test]
fn snapshots_were_readable_by_every_user() {
    let dir = TempDir::new("mode");
    save(&filled(None), &dir.file(), 5, SnapshotTime::same(2_000)).expect("it is written");
    let mode = std::fs::metadata(dir.file()).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_load_waited_for_the_writer_of_a_pipe() {
    let dir = TempDir::new("pipe");
    let made = std::process::Command::new("mkfifo").arg(dir.file()).status().expect("mkfifo is there");
    assert!(made.success());
    let loaded = load(&dictionary(100, None), &dir.file(), 5, SnapshotTime::same(2_000));
    assert!(matches!(loaded, Err(LoadError::Damaged("it is not a regular file"))), "{loaded:?}");
}
