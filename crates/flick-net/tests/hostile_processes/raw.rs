//! A process that pairs by hand: it knows the layout of a segment and may write any word of it.

use std::io::{ErrorKind, IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use flick_shm::limits::HANDSHAKE_BYTES;
use flick_shm::pair::Pair;
use flick_shm::segment::{LAYOUT_VERSION, Segment, SegmentConfig};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, send, sendmsg,
};

/// Returns the connecting side's message: magic, version (one byte suffices), status, sizes.
pub fn hello(config: &SegmentConfig) -> [u8; HANDSHAKE_BYTES] {
    let mut hello = [0; HANDSHAKE_BYTES];
    hello[..8].copy_from_slice(b"flickshm");
    hello[8..12].copy_from_slice(&LAYOUT_VERSION.to_le_bytes());
    hello[12] = 1;
    hello[16..20].copy_from_slice(&config.slots.to_le_bytes());
    hello[24..].copy_from_slice(&config.arena_bytes.to_le_bytes());
    hello
}

/// Offsets of a segment's parts; see `segment.rs`.
pub const SLEEP_OF_OTHER_AT: usize = 128;
pub const OWN_SLEEP_AT: usize = 256;
const SUMMARIES_OF_OTHER_AT: usize = 512;
const READY_AT: usize = 4096;
/// Descriptors that one message may have here.
const DESCRIPTORS_MAX: usize = 8;

/// A mapping of a segment in which every word may be written.
#[derive(Debug)]
pub struct Map {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the memory belongs to the process, and all accesses are atomic.
unsafe impl Send for Map {}

impl Map {
    pub fn new(file: impl AsFd, bytes: usize) -> Map {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the address, so no memory of this process is replaced.
        let start = unsafe { mmap(null_mut(), bytes, access, MapFlags::SHARED, file, 0) };
        let start = NonNull::new(start.expect("memory files map").cast()).expect("no mapping is at 0");
        Map { start, bytes }
    }

    fn at(&self, at: usize, bytes: usize) -> NonNull<u8> {
        assert!(at.is_multiple_of(bytes), "words are aligned");
        assert!(at + bytes <= self.bytes, "words are inside of the mapping");
        // SAFETY: `at < self.bytes` by the check above.
        unsafe { self.start.add(at) }
    }

    pub fn wide(&self, at: usize) -> &AtomicU64 {
        // SAFETY: `at` checked alignment and bounds; the mapping lives as long as `self`; every access is atomic.
        unsafe { self.at(at, 8).cast().as_ref() }
    }

    pub fn narrow(&self, at: usize) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { self.at(at, 4).cast().as_ref() }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the range is that of `mmap` in `new`, and references into it borrow `self`.
        unsafe { munmap(self.start.as_ptr().cast(), self.bytes) }.expect("it is mapped");
    }
}

/// Connects to the socket at which processes pair.
pub fn connect(name: &str) -> UnixStream {
    let address = SocketAddr::from_abstract_name(format!("flick-shm/{name}")).expect("a short name");
    let socket = UnixStream::connect_addr(&address).expect("the driver listens");
    socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a positive timeout");
    socket
}

/// Sends bytes with descriptors. The driver may have closed its end.
pub fn pass(socket: &UnixStream, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(descriptors)), "few descriptors");
    }
    sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)
}

/// Returns the segment that the other side answers with; `None` if it refuses, or has closed the socket.
pub fn answer(socket: &UnixStream) -> Option<OwnedFd> {
    let mut answer = [0; HANDSHAKE_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut receive = || {
        let mut out = [IoSliceMut::new(&mut answer)];
        recvmsg(socket, &mut out, &mut ancillary, RecvFlags::CMSG_CLOEXEC)
    };
    let received = rustix::io::retry_on_intr(&mut receive).ok()?;
    let files = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    let file = files.flatten().next();
    let is_paired = received.bytes == HANDSHAKE_BYTES && answer[12] == 1;
    assert_eq!(is_paired, file.is_some(), "a segment comes with the answer that says so");
    file
}

/// Waits until the other side has closed the socket.
pub fn wait_closed(mut socket: &UnixStream) {
    let mut rest = [0; 64];
    loop {
        match socket.read(&mut rest) {
            Ok(0) => return,
            Ok(_) => {}
            // It had unread bytes.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => panic!("the driver keeps the socket of a peer that it refuses: {error}"),
        }
    }
}

/// A process that has paired.
pub struct RawPeer {
    pub socket: UnixStream,
    pub map: Map,
    /// Slots of the pair: as many as were asked for, or fewer.
    pub slots: usize,
    segment: Option<Segment>,
}

impl Drop for RawPeer {
    fn drop(&mut self) {
        // As the death of a process does, also while connections have the socket.
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

impl RawPeer {
    /// Asks for a segment.
    pub fn ask(name: &str, config: &SegmentConfig) -> UnixStream {
        let socket = connect(name);
        let _ = pass(&socket, &hello(config), &[]);
        socket
    }

    /// Takes the segment that the driver answers with.
    pub fn answered(socket: UnixStream) -> RawPeer {
        let file = answer(&socket).expect("the sizes are right");
        RawPeer::with(socket, &file)
    }

    /// Uses the segment of an answer.
    pub fn with(socket: UnixStream, file: &OwnedFd) -> RawPeer {
        let bytes = rustix::fs::fstat(file).expect("a file").st_size as usize;
        let segment = Segment::open(file).expect("the segment is right");
        let (map, slots) = (Map::new(file, bytes), segment.slots() as usize);
        RawPeer { socket, map, slots, segment: Some(segment) }
    }

    /// Asks for a segment, and waits until the driver has answered.
    pub fn paired(name: &str, config: &SegmentConfig) -> RawPeer {
        RawPeer::answered(RawPeer::ask(name, config))
    }

    /// Returns this side's view of the pair, once.
    pub fn pair(&mut self) -> Pair {
        let segment = self.segment.take().expect("it is asked for once");
        let socket = self.socket.try_clone().expect("a descriptor is free");
        Pair::new(segment, Arc::new(socket.into())).expect("both attached")
    }

    /// Offset of the first control word of a slot.
    pub fn slot_at(&self, slot: usize) -> usize {
        READY_AT + (2 * self.slots / 8).next_multiple_of(4096) + slot * 512
    }

    /// Sets all ready bits of the driver.
    pub fn set_all_ready_bits(&self) {
        for word in 0..self.slots / 64 {
            self.map.wide(READY_AT + 8 * word).store(u64::MAX, Ordering::Release);
        }
        for summary in 0..(self.slots / 64).div_ceil(64) {
            self.map.wide(SUMMARIES_OF_OTHER_AT + 8 * summary).store(u64::MAX, Ordering::Release);
        }
    }

    /// Signals the driver, whatever its sleep word says.
    pub fn signal(&self) {
        let _ = send(&self.socket, &[1], SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }
}
