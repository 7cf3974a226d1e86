//! Snapshots: what was written comes back, and what was damaged does not.

#![cfg(not(loom))]

use std::path::PathBuf;

use flick_dict::snapshot::{load, save};
use flick_dict::{DictConfig, Dictionary, Evict, LoadError, Loaded, Seed};

/// A directory of its own, removed at the end.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("flick-dict-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).expect("the temporary directory can be written");
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("state")
    }
}

impl Drop for Place {
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
fn what_was_written_comes_back() {
    let place = Place::new("back");
    assert_eq!(save(&filled(None), &place.file(), 5, 2_000).expect("it is written"), 100);
    let back = dictionary(100, None);
    let loaded = load(&back, &place.file(), 5, 3_000).expect("it is read");
    assert_eq!(loaded, Loaded { entries: 100, expired: 0, refused: 0 });
    let mut out = [0; 400];
    for number in 0_u64..100 {
        let len = back.get(&number.to_le_bytes(), 3_000, &mut out);
        assert_eq!(len.map(|len| &out[..len]), Some(&vec![number as u8; number as usize * 4][..]));
    }
    let left: Vec<_> = std::fs::read_dir(&place.0).expect("it is there").collect();
    assert_eq!(left.len(), 1, "the file beside it is gone");
}

#[test]
fn lifetimes_go_on_while_nothing_runs() {
    let place = Place::new("lifetimes");
    // Written at 1,000 + number, so alive until 2,000 + number.
    save(&filled(Some(1_000)), &place.file(), 5, 1_500).expect("it is written");
    let back = dictionary(100, Some(1_000));
    let loaded = load(&back, &place.file(), 5, 2_049).expect("it is read");
    assert_eq!(loaded, Loaded { entries: 50, expired: 50, refused: 0 });
    assert!(back.has(&60_u64.to_le_bytes(), 2_059));
    assert!(!back.has(&60_u64.to_le_bytes(), 2_060));
    // A clock that was set back, or a shorter lifetime in the new program: never longer than from now.
    let shorter = dictionary(100, Some(10));
    load(&shorter, &place.file(), 5, 100).expect("it is read");
    assert!(shorter.has(&60_u64.to_le_bytes(), 109) && !shorter.has(&60_u64.to_le_bytes(), 110));
}

#[test]
fn a_smaller_dictionary_takes_what_fits() {
    let place = Place::new("smaller");
    save(&filled(None), &place.file(), 5, 2_000).expect("it is written");
    let back = dictionary(30, None);
    let loaded = load(&back, &place.file(), 5, 3_000).expect("it is read");
    assert_eq!(loaded, Loaded { entries: 30, expired: 0, refused: 70 });
}

/// Saves, damages the file, and expects an error that says `expected` and a dictionary that is still empty.
fn check_damaged(name: &str, damage: impl FnOnce(&mut Vec<u8>), layout: u64, expected: &str) {
    let place = Place::new(name);
    save(&filled(None), &place.file(), 5, 2_000).expect("it is written");
    let mut bytes = std::fs::read(place.file()).expect("it is there");
    damage(&mut bytes);
    std::fs::write(place.file(), bytes).expect("it can be written");
    let back = dictionary(100, None);
    let error = load(&back, &place.file(), layout, 3_000).expect_err("it is refused").to_string();
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
fn longer_entries_than_the_program_has_are_refused() {
    let place = Place::new("longer-entries");
    save(&filled(None), &place.file(), 5, 2_000).expect("it is written");
    let config = DictConfig { value_bytes_max: 100, ..dictionary(100, None).config().clone() };
    let back = Dictionary::new(config).expect("it fits");
    let error = load(&back, &place.file(), 5, 3_000).expect_err("it is refused").to_string();
    assert!(error.contains("longer than the program allows"), "{error}");
    assert!(back.is_empty());
}

#[test]
fn there_is_none_at_the_first_start() {
    let place = Place::new("none");
    let error = load(&dictionary(1, None), &place.file(), 5, 1).expect_err("there is no file");
    assert!(matches!(error, LoadError::Missing), "{error}");
}

#[test]
fn a_file_that_cannot_be_written_leaves_the_old_one() {
    let place = Place::new("old-one");
    save(&filled(None), &place.file(), 5, 2_000).expect("it is written");
    let old = std::fs::read(place.file()).expect("it is there");
    // The name of the file beside it is taken by a directory.
    std::fs::create_dir(place.0.join("state.new")).expect("it can be made");
    save(&dictionary(1, None), &place.file(), 5, 2_000).expect_err("the file beside it cannot be written");
    assert_eq!(std::fs::read(place.file()).expect("it is still there"), old);
}
