//! The pool's promises, through its public interface; last, random operations against a plain model.

use flick_buffers::limits::{RELEASE_AGE_PASSES, RELEASE_STEP_BYTES};
use flick_buffers::{
    Buf, BufClass, HUGE_BYTES, LARGE_BYTES, Pool, PoolConfig, SMALL_BYTES, Slice, pinned_bytes,
};
use proptest::prelude::*;

fn pool(small_count: u32, large_count: u32) -> Pool {
    Pool::new(PoolConfig { small_count, large_count, huge_count: 1 })
}

fn small(pool: &Pool) -> Buf {
    pool.alloc(BufClass::Small).expect("the test's pool has a small buffer left")
}

#[test]
fn exhaustion_is_none_and_ends_with_the_first_release() {
    let pool = pool(2, 1);
    let held = [small(&pool), small(&pool)];
    assert!(pool.alloc(BufClass::Small).is_none());
    assert_eq!(pool.free_count(BufClass::Small), 0);
    assert_eq!(pool.free_count(BufClass::Large), 1, "each class has its own buffers");
    drop(held);
    assert_eq!((pool.free_count(BufClass::Small), pool.live_count(BufClass::Small)), (2, 0));
    assert!(pool.alloc(BufClass::Small).is_some());
}

#[test]
fn an_empty_class_is_exhausted_from_the_start() {
    assert!(pool(0, 0).alloc(BufClass::Large).is_none());
}

#[test]
fn the_last_handle_or_slice_returns_the_buffer() {
    let pool = pool(1, 0);
    let buf = small(&pool);
    buf.append(b"abcdef");
    let slice = buf.slice(1..4);
    let part = slice.sub(1..2);
    drop((buf, slice));
    assert_eq!((part.bytes(), pool.live_count(BufClass::Small)), (&b"c"[..], 1));
    drop(part);
    assert_eq!(pool.live_count(BufClass::Small), 0);
}

#[test]
fn buffers_outlive_the_pool_handle() {
    let pool = pool(1, 0);
    let buf = small(&pool);
    drop(pool);
    assert_eq!(buf.append(b"still here"), 10);
    assert_eq!(buf.bytes(), b"still here");
}

#[test]
fn appending_stops_at_the_capacity_and_freezes() {
    let pool = pool(1, 1);
    for (class, bytes) in
        [(BufClass::Small, SMALL_BYTES), (BufClass::Large, LARGE_BYTES), (BufClass::Huge, HUGE_BYTES)]
    {
        let buf = pool.alloc(class).expect("one of each class");
        let first = buf.slice(0..0);
        assert_eq!(buf.append(&vec![7; bytes as usize - 1]), bytes - 1);
        let frozen = buf.bytes();
        assert_eq!(buf.append(b"xy"), 1);
        assert_eq!(buf.append(b"y"), 0);
        assert!(frozen.iter().all(|&byte| byte == 7), "a view taken before an append does not change");
        assert_eq!((buf.spare(), first.len()), (0, 0));
    }
}

#[test]
fn reset_needs_the_only_handle() {
    let pool = pool(1, 0);
    let mut buf = small(&pool);
    buf.append(b"abc");
    let slice = buf.slice(0..3);
    assert!(!buf.reset());
    assert_eq!(slice.bytes(), b"abc");
    drop(slice);
    assert!(buf.is_unique() && buf.reset() && buf.is_empty());
}

#[test]
fn slices_merge_only_when_contiguous_in_one_buffer() {
    let pool = pool(2, 0);
    let (one, two) = (small(&pool), small(&pool));
    one.append(b"abcdef");
    two.append(b"abcdef");
    let mut head = one.slice(0..2);
    assert!(!head.try_extend(&one.slice(3..4)), "a gap");
    assert!(!head.try_extend(&two.slice(2..4)), "another buffer");
    assert!(head.try_extend(&one.slice(2..5)));
    head.advance(1);
    assert_eq!((head.bytes(), head.start(), head.end()), (&b"bcde"[..], 1, 5));
}

#[test]
fn slices_pin_their_whole_buffers_once_for_neighbours() {
    let pool = pool(2, 1);
    let (small, large) = (small(&pool), pool.alloc(BufClass::Large).expect("it is free"));
    small.append(b"abcdef");
    large.append(b"g");
    let slices = [small.slice(0..1), small.slice(3..4), large.slice(0..1), small.slice(5..6)];
    let pinned = |count: usize| pinned_bytes(slices[..count].iter());
    let (small, large) = (u64::from(SMALL_BYTES), u64::from(LARGE_BYTES));
    assert_eq!([0, 1, 2, 3, 4].map(pinned), [0, small, small, small + large, 2 * small + large]);
}

#[test]
fn the_buffer_freed_last_is_allocated_first() {
    let pool = pool(8, 0);
    let mut bufs: Vec<Buf> = (0..8).map(|_| small(&pool)).collect();
    let last = bufs.swap_remove(3);
    let address = last.bytes().as_ptr();
    drop(bufs);
    drop(last);
    assert_eq!(small(&pool).bytes().as_ptr(), address);
}

#[test]
fn a_write_by_the_kernel_is_committed() {
    let pool = pool(1, 0);
    let buf = small(&pool);
    buf.append(b"head ");
    let provided = buf.clone().into_provided();
    assert_eq!((buf.spare(), buf.append(b"not now")), (0, 0), "nothing is appended to a provided buffer");
    let wrote = b"tail";
    // SAFETY: `spare_ptr` has `spare() >= 4` bytes behind it and nothing is appended to a provided buffer.
    unsafe { provided.spare_ptr().copy_from_nonoverlapping(wrote.as_ptr(), wrote.len()) };
    // SAFETY: the four bytes were written on the line above and are not written again.
    unsafe { provided.commit(4) };
    drop(provided);
    assert_eq!(buf.append(b"!"), 1);
    assert_eq!(buf.bytes(), b"head tail!");
}

/// Makes passes over the buffers until a step has something to do, and returns the number of steps of that pass.
fn release_passes(pool: &Pool, passes: u16, keep_bytes: u32) -> u32 {
    (0..passes).fold(0, |_, _| {
        pool.begin_release();
        1 + (0..).take_while(|_| pool.release_some(keep_bytes)).count() as u32
    })
}

#[test]
fn memory_is_given_back_when_its_buffers_were_free_for_two_passes() {
    for (class, count) in [(BufClass::Small, 600_u32), (BufClass::Large, 200), (BufClass::Huge, 1)] {
        let pool = pool(600, 200);
        assert!(!pool.is_above(0), "nothing was touched");
        let held: Vec<Buf> = (0..count).map(|_| pool.alloc(class).expect("one is free")).collect();
        held.iter().for_each(|buf| assert_eq!(buf.append(&vec![7; 2000]), 2000));
        assert!(pool.is_above(0));
        release_passes(&pool, 5, 0);
        assert!(held.iter().all(|buf| buf.bytes() == [7; 2000]), "buffers in use keep their bytes");
        drop(held);
        release_passes(&pool, RELEASE_AGE_PASSES - 1, 0);
        assert!(pool.is_above(0), "{class:?}: they were free for too short a time");
        let steps = release_passes(&pool, 1, 0);
        assert!(!pool.is_above(0), "{class:?}: all of it was given back");
        let bytes = count * class.bytes();
        let step_bytes = RELEASE_STEP_BYTES.max(class.bytes());
        assert_eq!(steps, bytes.div_ceil(step_bytes), "{class:?}: a step is bounded");
        let held: Vec<Buf> = (0..count).map(|_| pool.alloc(class).expect("all are free")).collect();
        assert!(held.iter().all(|buf| buf.append(b"again") == 5 && buf.bytes() == b"again"));
    }
}

#[test]
fn buffers_that_load_reuses_keep_their_memory() {
    let pool = pool(0, 100);
    let large = |_: u32| pool.alloc(BufClass::Large).expect("one is free");
    drop((0..100).map(large).collect::<Vec<Buf>>());
    for _ in 0..4 {
        // Load on four buffers between two passes.
        drop((0..4).map(large).collect::<Vec<Buf>>());
        release_passes(&pool, 1, 0);
    }
    assert!(pool.is_above(3 * LARGE_BYTES), "the four in use keep theirs");
    assert!(!pool.is_above(4 * LARGE_BYTES), "all others have given theirs back");
}

#[test]
fn a_part_of_the_free_memory_is_kept() {
    let pool = pool(0, 100);
    drop((0..100).map(|_| pool.alloc(BufClass::Large).expect("one is free")).collect::<Vec<Buf>>());
    release_passes(&pool, 9, 10 * LARGE_BYTES);
    assert!(pool.is_above(9 * LARGE_BYTES) && !pool.is_above(10 * LARGE_BYTES));
}

#[derive(Clone, Debug)]
enum Step {
    Alloc,
    Append(usize, Vec<u8>),
    Slice(usize, u32, u32),
    CloneBuf(usize),
    DropBuf(usize),
    DropSlice(usize),
    Reset(usize),
    Release(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let at = 0..8usize;
    let step = prop_oneof![
        Just(Step::Alloc),
        (at.clone(), prop::collection::vec(any::<u8>(), 0..900)).prop_map(|(i, b)| Step::Append(i, b)),
        (at.clone(), any::<u32>(), any::<u32>()).prop_map(|(i, a, b)| Step::Slice(i, a, b)),
        at.clone().prop_map(Step::CloneBuf),
        at.clone().prop_map(Step::DropBuf),
        at.clone().prop_map(Step::DropSlice),
        at.prop_map(Step::Reset),
        (0..4_u8).prop_map(Step::Release),
    ];
    prop::collection::vec(step, 0..200)
}

/// The model has the bytes of each buffer; handles are indices into it.
fn run(steps: Vec<Step>) {
    let pool = pool(5, 0);
    let mut model: Vec<Vec<u8>> = Vec::new();
    let mut bufs: Vec<(Buf, usize)> = Vec::new();
    let mut slices: Vec<(Slice, usize, Vec<u8>)> = Vec::new();
    for step in steps {
        match step {
            Step::Alloc => match pool.alloc(BufClass::Small) {
                Some(buf) => {
                    assert!(buf.is_empty());
                    model.push(Vec::new());
                    bufs.push((buf, model.len() - 1));
                }
                None => assert_eq!(pool.free_count(BufClass::Small), 0),
            },
            Step::Append(i, bytes) => {
                let Some((buf, id)) = bufs.get(i) else { continue };
                let spare = SMALL_BYTES as usize - model[*id].len();
                let taken = buf.append(&bytes) as usize;
                assert_eq!(taken, bytes.len().min(spare));
                model[*id].extend_from_slice(&bytes[..taken]);
            }
            Step::Slice(i, a, b) => {
                let Some((buf, id)) = bufs.get(i) else { continue };
                let (a, b) = (a % (buf.len() + 1), b % (buf.len() + 1));
                let range = a.min(b)..a.max(b);
                let bytes = model[*id][range.start as usize..range.end as usize].to_vec();
                slices.push((buf.slice(range), *id, bytes));
            }
            Step::CloneBuf(i) => {
                if let Some((buf, id)) = bufs.get(i) {
                    bufs.push((buf.clone(), *id));
                }
            }
            Step::DropBuf(i) => drop((i < bufs.len()).then(|| bufs.swap_remove(i))),
            Step::DropSlice(i) => drop((i < slices.len()).then(|| slices.swap_remove(i))),
            Step::Reset(i) => {
                let Some(&(_, id)) = bufs.get(i) else { continue };
                let handles = bufs.iter().filter(|buf| buf.1 == id).count()
                    + slices.iter().filter(|slice| slice.1 == id).count();
                assert_eq!(bufs[i].0.reset(), handles == 1);
                if handles == 1 {
                    model[id].clear();
                }
            }
            Step::Release(passes) => (0..passes).for_each(|_| {
                pool.begin_release();
                assert!(!pool.release_some(0), "one step checks so few buffers");
            }),
        }
        let mut live: Vec<usize> = bufs.iter().map(|b| b.1).chain(slices.iter().map(|s| s.1)).collect();
        live.sort_unstable();
        live.dedup();
        assert_eq!(pool.live_count(BufClass::Small) as usize, live.len());
        assert!(bufs.iter().all(|(buf, id)| buf.bytes() == model[*id]));
        assert!(slices.iter().all(|(slice, _, bytes)| slice.bytes() == bytes));
    }
}

proptest! {
    #[test]
    fn any_sequence_of_calls_behaves_like_plain_vectors(steps in steps()) {
        run(steps);
    }
}
