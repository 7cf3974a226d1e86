//! A dictionary on disk: written to a temporary file and renamed, read whole or not at all.
//! Promises: a crash while saving leaves the old file; a damaged file, or one of another layout, changes nothing; each
//! entry is consistent, though not all are of the same moment.
//! Not here: when to save, and on which thread (`save` waits for the disk).
//!
//! Format, little-endian: `FLKDICT\n`, version u32, 0 u32, layout u64; then for each entry key length u32, value length
//! u32, time u64 (when it expires, or was written), key, value; then `ffff_ffff` u32, 0 u32, number of entries u64;
//! then the XXH3-64 of everything before it. Times are of the wall clock, whatever clock the dictionary has.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::Xxh3Default;

use crate::dictionary::Dictionary;
use crate::limits::READ_TRIES_MAX;
use crate::sync::{Ordering, back_off};

const MAGIC: &[u8; 8] = b"FLKDICT\n";
const VERSION: u32 = 1;
const HEAD_BYTES: u64 = 24;
const RECORD_BYTES: u64 = 16;
const CHECKSUM_BYTES: u64 = 8;
/// Key length of the record after the last one.
const END: u32 = u32::MAX;

/// The time, by the clock of a dictionary and by that of the wall. They differ where the latter was set since the
/// start, or the machine has slept.
#[derive(Clone, Copy, Debug)]
pub struct SnapshotTime {
    /// By the dictionary's clock, in nanoseconds.
    pub now_ns: u64,
    /// By the wall clock, in nanoseconds since 1970.
    pub wall_ns: u64,
}

impl SnapshotTime {
    /// The time by one clock for both.
    pub fn same(now_ns: u64) -> Self {
        Self { now_ns, wall_ns: now_ns }
    }

    fn to_wall(self, stamp_ns: u64) -> u64 {
        shifted(stamp_ns, self.now_ns, self.wall_ns)
    }

    fn of_wall(self, stamp_ns: u64) -> u64 {
        shifted(stamp_ns, self.wall_ns, self.now_ns)
    }
}

/// The time by another clock.
fn shifted(stamp_ns: u64, from_ns: u64, to_ns: u64) -> u64 {
    let shifted = i128::from(stamp_ns) - i128::from(from_ns) + i128::from(to_ns);
    shifted.clamp(0, i128::from(u64::MAX)) as u64
}

/// The result of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadSummary {
    /// Entries written to the dictionary.
    pub entries: u64,
    /// Entries that had expired.
    pub expired: u64,
    /// Entries refused because the dictionary is full: it has become smaller.
    pub refused: u64,
}

/// Reason for which a snapshot was not loaded.
#[derive(Debug)]
pub enum LoadError {
    /// There is no file, as at the first start.
    Missing,
    /// It cannot be read.
    Io(io::Error),
    /// It is no snapshot, or not whole; the text says what is wrong.
    Damaged(&'static str),
    /// It has another version of the format.
    OtherVersion(u32),
    /// The types of keys or values have changed since.
    OtherLayout,
}

impl std::fmt::Display for LoadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Missing => f.write_str("there is no snapshot yet"),
            Self::Io(error) => write!(f, "the snapshot cannot be read: {error}"),
            Self::Damaged(what) => write!(f, "the snapshot is damaged: {what}"),
            Self::OtherVersion(version) => {
                write!(f, "the snapshot has format {version}; this flick reads format {VERSION}")
            }
            Self::OtherLayout => f.write_str(
                "the snapshot was written with other types of keys or values than the program has now",
            ),
        }
    }
}

impl std::error::Error for LoadError {}

impl From<io::Error> for LoadError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::Missing,
            io::ErrorKind::UnexpectedEof => Self::Damaged("it ends too early"),
            _ => Self::Io(error),
        }
    }
}

/// Writes bytes and hashes them.
struct HashingWriter<T> {
    inner: T,
    hash: Xxh3Default,
}

impl<T: Write> HashingWriter<T> {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hash.update(bytes);
        self.inner.write_all(bytes)
    }
}

/// Checks that `save` could write to `path`.
///
/// Errors: those of creating a file in its directory.
pub fn check_writable(path: &Path) -> io::Result<()> {
    // Not the file that `save` writes: another process may be writing it until it hands over to this one.
    let probe = beside(path, ".probe");
    create(&probe)?;
    std::fs::remove_file(&probe)
}

/// Returns the process that writes the file `name`, or has left it behind, if it is one of [`write()`] for `path`.
pub fn writer_of(name: &OsStr, path: &Path) -> Option<u32> {
    let (name, of) = (name.to_str()?, path.file_name()?.to_str()?);
    name.strip_prefix(of)?.strip_prefix('.')?.strip_suffix(".new")?.parse().ok()
}

/// The path of a file with a longer name.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Creates a file that only its user can read: keys and values may be secret.
fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}

/// A snapshot that is written to the disk, and not in its place yet. Dropped before that, its file is removed: a half
/// one would keep the disk full. Then it counts as an error.
#[derive(Debug)]
pub struct NewSnapshot<'a> {
    dictionary: &'a Dictionary,
    path: &'a Path,
    temporary: PathBuf,
    entries: u64,
    is_renamed: bool,
}

impl NewSnapshot<'_> {
    /// Replaces the file at its path, and returns the number of its entries.
    ///
    /// Errors: those of rename and sync; after one of rename the old file stays.
    pub fn replace_old(mut self) -> io::Result<u64> {
        std::fs::rename(&self.temporary, self.path)?;
        // The rename survives a power failure only if the directory is synced.
        let parent = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(parent.unwrap_or(Path::new(".")))?.sync_all()?;
        self.is_renamed = true;
        Ok(self.entries)
    }
}

impl Drop for NewSnapshot<'_> {
    fn drop(&mut self) {
        if !self.is_renamed {
            self.dictionary.counters.snapshot_errors.fetch_add(1, Ordering::Relaxed);
            // If it cannot be removed, the next one overwrites it.
            let _ = std::fs::remove_file(&self.temporary);
        }
    }
}

/// Writes all entries to the file `PATH.PID.new`, which then can be put in the place of `path`. `layout` identifies the
/// types of keys and values. Only the user of the process can read the file.
///
/// Errors: those of create, write and sync. They are counted.
pub fn write<'a>(
    dictionary: &'a Dictionary,
    path: &'a Path,
    layout: u64,
    time: SnapshotTime,
) -> io::Result<NewSnapshot<'a>> {
    // In an upgrade the old process may still be writing.
    let temporary = beside(path, &format!(".{}.new", std::process::id()));
    let mut new = NewSnapshot { dictionary, path, temporary, entries: 0, is_renamed: false };
    let out = BufWriter::new(create(&new.temporary)?);
    let (file, entries) = write_to(dictionary, out, layout, time)?;
    file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
    new.entries = entries;
    Ok(new)
}

/// Writes all entries to `path`, through the file `PATH.PID.new`, and returns how many.
///
/// Errors: those of [`write()`] and [`NewSnapshot::replace_old`]; the old file stays.
pub fn save(dictionary: &Dictionary, path: &Path, layout: u64, time: SnapshotTime) -> io::Result<u64> {
    write(dictionary, path, layout, time)?.replace_old()
}

fn write_to<T: Write>(
    dictionary: &Dictionary,
    out: T,
    layout: u64,
    time: SnapshotTime,
) -> io::Result<(T, u64)> {
    let mut out = HashingWriter { inner: out, hash: Xxh3Default::new() };
    out.put(MAGIC)?;
    out.put(&VERSION.to_le_bytes())?;
    out.put(&[0; 4])?;
    out.put(&layout.to_le_bytes())?;
    let mut entries = 0;
    let mut collected = Collected::new(dictionary);
    for head in 0..dictionary.heads {
        collected.collect(dictionary, head, time);
        out.put(&collected.bytes)?;
        entries += collected.entries;
    }
    out.put(&END.to_le_bytes())?;
    out.put(&[0; 4])?;
    out.put(&entries.to_le_bytes())?;
    let sum = out.hash.digest();
    out.inner.write_all(&sum.to_le_bytes())?;
    Ok((out.inner, entries))
}

/// The entries of one bucket, as records.
struct Collected {
    bytes: Vec<u8>,
    entries: u64,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Collected {
    fn new(dictionary: &Dictionary) -> Self {
        Self {
            bytes: Vec::new(),
            entries: 0,
            key: vec![0; dictionary.config.key_bytes_max as usize],
            value: vec![0; dictionary.config.value_bytes_max as usize],
        }
    }

    fn collect(&mut self, dictionary: &Dictionary, head: usize, time: SnapshotTime) {
        let bucket = &dictionary.buckets[head];
        for attempt in 0..READ_TRIES_MAX {
            if let Some(seen) = bucket.begin_read()
                && self.try_collect(dictionary, head, time)
                && bucket.unchanged(seen)
            {
                return;
            }
            back_off(attempt as u32);
        }
        let _held = dictionary.lock(head);
        assert!(self.try_collect(dictionary, head, time), "unchanged entries are whole");
    }

    fn try_collect(&mut self, dictionary: &Dictionary, head: usize, time: SnapshotTime) -> bool {
        self.bytes.clear();
        self.entries = 0;
        for slot in dictionary.slots_of(head) {
            if dictionary.is_expired(slot, time.now_ns) {
                continue;
            }
            let header = dictionary.store.header(slot);
            let Some(key_len) = dictionary.store.copy_key(slot, header, &mut self.key) else { return false };
            let Some(value_len) = dictionary.store.copy_value(slot, header, &mut self.value) else {
                return false;
            };
            self.bytes.extend_from_slice(&(key_len as u32).to_le_bytes());
            self.bytes.extend_from_slice(&(value_len as u32).to_le_bytes());
            let stamp = time.to_wall(dictionary.store.stamp(slot));
            self.bytes.extend_from_slice(&stamp.to_le_bytes());
            self.bytes.extend_from_slice(&self.key[..key_len]);
            self.bytes.extend_from_slice(&self.value[..value_len]);
            self.entries += 1;
        }
        true
    }
}

/// Reads a snapshot into a dictionary, usually an empty one. No entry lives longer than if it were written now.
///
/// Errors: every [`LoadError`]; the dictionary is unchanged then.
pub fn load(
    dictionary: &Dictionary,
    path: &Path,
    layout: u64,
    time: SnapshotTime,
) -> Result<LoadSummary, LoadError> {
    // To open a pipe would wait for its writer.
    if !std::fs::metadata(path)?.is_file() {
        return Err(LoadError::Damaged("it is not a regular file"));
    }
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    check_head(&mut file, layout)?;
    check_sum(&mut file, length)?;
    file.seek(SeekFrom::Start(HEAD_BYTES))?;
    let body_bytes = length - HEAD_BYTES - CHECKSUM_BYTES;
    // The first pass checks every record, the second one loads them.
    let entries = records(dictionary, BufReader::new((&mut file).take(body_bytes)), |_, _, _| {})?;
    file.seek(SeekFrom::Start(HEAD_BYTES))?;
    let mut loaded = LoadSummary::default();
    let now_ns = time.now_ns;
    records(dictionary, BufReader::new(file.take(body_bytes)), |key, value, stamp| {
        let stamp = time.of_wall(stamp);
        let expires = dictionary.config.expire_ns.map(|life| stamp.min(now_ns.saturating_add(life)));
        if expires.is_some_and(|expires| expires <= now_ns) {
            loaded.expired += 1;
        } else if dictionary.put_until(key, value, now_ns, expires.unwrap_or(stamp)) {
            loaded.entries += 1;
        } else {
            loaded.refused += 1;
        }
    })?;
    assert_eq!(
        entries,
        loaded.entries + loaded.expired + loaded.refused,
        "a file that is open does not change"
    );
    Ok(loaded)
}

fn check_head(file: &mut File, layout: u64) -> Result<(), LoadError> {
    let mut head = [0; HEAD_BYTES as usize];
    file.read_exact(&mut head)?;
    let [magic, rest, written] = [&head[..8], &head[8..16], &head[16..]];
    if magic != MAGIC {
        return Err(LoadError::Damaged("it does not begin as a snapshot does"));
    }
    let version = u32_at(rest, 0);
    if version != VERSION {
        return Err(LoadError::OtherVersion(version));
    }
    if u64_at(written, 0) != layout {
        return Err(LoadError::OtherLayout);
    }
    Ok(())
}

fn check_sum(file: &mut File, length: u64) -> Result<(), LoadError> {
    let Some(body) = length.checked_sub(CHECKSUM_BYTES).filter(|body| *body >= HEAD_BYTES + RECORD_BYTES)
    else {
        return Err(LoadError::Damaged("it ends too early"));
    };
    file.seek(SeekFrom::Start(0))?;
    let mut hash = Xxh3Default::new();
    let mut buffer = vec![0; 64 * 1024];
    let mut left = body;
    while left > 0 {
        let part = left.min(buffer.len() as u64) as usize;
        file.read_exact(&mut buffer[..part])?;
        hash.update(&buffer[..part]);
        left -= part as u64;
    }
    let mut sum = [0; CHECKSUM_BYTES as usize];
    file.read_exact(&mut sum)?;
    if u64::from_le_bytes(sum) != hash.digest() {
        return Err(LoadError::Damaged("its checksum does not fit"));
    }
    Ok(())
}

/// Calls `take` with the key, value and time of every record; returns how many there are.
fn records(
    dictionary: &Dictionary,
    mut from: impl Read,
    mut take: impl FnMut(&[u8], &[u8], u64),
) -> Result<u64, LoadError> {
    let mut key = vec![0; dictionary.config.key_bytes_max as usize];
    let mut value = vec![0; dictionary.config.value_bytes_max as usize];
    let mut head = [0; RECORD_BYTES as usize];
    let mut entries = 0;
    // Ends with the file.
    loop {
        from.read_exact(&mut head)?;
        let (key_len, value_len, stamp) = (u32_at(&head, 0), u32_at(&head, 4), u64_at(&head, 8));
        if key_len == END {
            let whole = stamp == entries && from.read(&mut [0])? == 0;
            return whole.then_some(entries).ok_or(LoadError::Damaged("it has another number of entries"));
        }
        let (Some(key), Some(value)) = (key.get_mut(..key_len as usize), value.get_mut(..value_len as usize))
        else {
            return Err(LoadError::Damaged("an entry is longer than the program allows"));
        };
        from.read_exact(key)?;
        from.read_exact(value)?;
        take(key, value, stamp);
        entries += 1;
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().rev().fold(0, |word, byte| (word << 8) | u32::from(*byte))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].iter().rev().fold(0, |word, byte| (word << 8) | u64::from(*byte))
}
