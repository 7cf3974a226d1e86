//! The descriptor table, and files of a patched text with other bytes than expected.

use std::sync::atomic::Ordering::Relaxed;

use flick_preload::image::{self, BUILD_ID_BYTES, Image, Mismatch, PageRun, Site, table_bytes};
use flick_preload::limits::CHUNK_FDS;
use flick_preload::state::{Kind, NewFile, ProcessTable, Seen, flag};

/// A table with memory for its first chunks.
fn table() -> Box<ProcessTable> {
    // SAFETY: all zero is the empty table.
    let state = unsafe { Box::<ProcessTable>::new_zeroed().assume_init() };
    [0, CHUNK_FDS].iter().for_each(|fd| state.mark_populated(*fd));
    state
}

fn socket() -> NewFile {
    NewFile { kind: Kind::Tcp, flags: flag::CONNECTED, id: (7, 0), counts: (0, 0) }
}

#[test]
fn duplicates_count_for_one_file_until_the_last_is_closed() {
    let state = table();
    let file = state.enter(5, &socket()).expect("a slot is free");
    state.duplicate(5, 300);
    state.forget(5);
    assert_eq!((state.look(5), state.look(300)), (Seen::Unknown, Seen::File(file)));
    state.file(file).expect("it is open").sent.fetch_add(9, Relaxed);
    assert_eq!(state.files().map(|file| file.sent.load(Relaxed)).collect::<Vec<_>>(), [9]);
    state.forget(300);
    assert!(state.file(file).is_none() && state.files().next().is_none());
}

#[test]
fn late_call_does_not_count_for_the_next_file_of_its_descriptor() {
    let state = table();
    let old = state.enter(5, &socket()).expect("a slot is free");
    state.forget(5);
    let new = state.enter(5, &socket()).expect("the slot is free again");
    assert!(state.file(old).is_none() && state.file(new).is_some());
}

#[test]
fn descriptor_that_is_reused_unseen_releases_its_file() {
    let state = table();
    let old = state.enter(5, &socket()).expect("a slot is free");
    let new = state.enter(5, &socket()).expect("another slot is free");
    assert!(state.file(old).is_none());
    assert_eq!(state.look(5), Seen::File(new));
}

#[test]
fn files_of_a_forked_process_are_shared_and_begin_at_zero() {
    let (parent, child) = (table(), table());
    let file = parent.enter(5, &socket()).expect("a slot is free");
    parent.file(file).expect("it is open").sent.fetch_add(9, Relaxed);
    parent.fork_epoch.fetch_add(1, Relaxed);
    child.inherit(&parent);
    for state in [&parent, &child] {
        let file = state.file(file).expect("it is open");
        assert!(state.is_shared(file));
    }
    assert_eq!(child.file(file).expect("it is open").sent.load(Relaxed), 0);
    let own = child.enter(6, &socket()).expect("a slot is free");
    assert!(!child.is_shared(child.file(own).expect("it is open")));
}

#[test]
fn full_chunk_and_missing_chunk_enter_nothing() {
    let state = table();
    for fd in 0..CHUNK_FDS {
        state.enter(fd, &socket()).expect("a slot for each");
        state.duplicate(fd, CHUNK_FDS);
    }
    state.forget(3);
    assert!(state.enter(3, &socket()).is_some());
    state.duplicate(4, 2 * CHUNK_FDS);
    assert!(state.enter(2 * CHUNK_FDS, &socket()).is_none());
    assert_eq!(state.look(2 * CHUNK_FDS), Seen::Unknown);
}

#[test]
fn end_of_the_descriptors_is_that_of_the_last_chunk() {
    let state = table();
    assert_eq!(state.fds_end(), 2 * CHUNK_FDS);
    state.mark_populated(70 * CHUNK_FDS + 1);
    assert_eq!(state.fds_end(), 71 * CHUNK_FDS);
}

const BELOW: u32 = 1 << 20;

/// A file with one page, of zeros but for a site, and the original of the page.
fn file() -> (Vec<u8>, Vec<u8>) {
    let site = Site { address: 4096 + 100, stub: 16, original: [1, 2, 3, 4, 5] };
    let run = PageRun { address: 4096, bytes: 4096, offset: 8192 };
    let mut bytes = Vec::new();
    let id = [9; BUILD_ID_BYTES];
    image::write_tables(&mut |part| bytes.extend_from_slice(part), &id, (BELOW, 4096, 4096), &[run], &[site]);
    assert_eq!(bytes.len(), table_bytes(1, 1));
    bytes.resize(3 * 4096, 0);
    bytes[8192 + 100..8192 + 105].copy_from_slice(&image::jump(&site, BELOW));
    let mut live = vec![0; 4096];
    live[100..105].copy_from_slice(&site.original);
    (bytes, live)
}

#[test]
fn page_is_accepted_only_with_the_original_bytes() {
    let (bytes, live) = file();
    let image = Image::parse(&bytes).expect("it is well-formed");
    let run = image.runs().next().expect("one");
    assert_eq!(image.verify(&run, &live), Ok(()));
    for at in 0..live.len() {
        let mut other = live.clone();
        other[at] ^= 1;
        assert_eq!(image.verify(&run, &other), Err(Mismatch::Bytes), "byte {at}");
    }
}

#[test]
fn no_damaged_file_is_used_or_read_out_of_bounds() {
    let (bytes, live) = file();
    for at in 0..table_bytes(1, 1) {
        for value in [0, 1, 0x7f, 0xff] {
            let mut other = bytes.clone();
            other[at] = value;
            if let Ok(image) = Image::parse(&other) {
                for run in image.runs() {
                    let _ = image.verify(&run, &live);
                }
            }
        }
    }
    for len in 0..bytes.len() {
        assert_eq!(Image::parse(&bytes[..len]).err(), Some(Mismatch::Format), "{len} bytes");
    }
}
