//! A process that pairs by hand: it knows the layout of a segment and may write any word of it.

use std::io::{ErrorKind, IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use flick_shm::pair::Pair;
use flick_shm::segment::{LAYOUT_VERSION, Segment, SegmentConfig};
use rustix::event::{EventfdFlags, eventfd};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

/// The connecting side's message: magic, version (one byte suffices), status.
pub const HELLO: [u8; 16] = {
    assert!(LAYOUT_VERSION < 255, "one byte holds it");
    let mut hello = *b"flickshm\0\0\0\0\0\0\0\0";
    hello[8] = LAYOUT_VERSION as u8;
    hello
};
/// Offsets of a segment's parts; see `segment.rs`.
pub const VERSION_AT: usize = 8;
pub const SLOTS_AT: usize = 24;
pub const SLEEP_OF_OTHER_AT: usize = 256;
const SUMMARIES_OF_OTHER_AT: usize = 512 + 256;
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

/// Sends bytes with descriptors.
pub fn pass(socket: &UnixStream, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(descriptors)), "few descriptors");
    }
    // The driver may have closed its end.
    let _ = sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL);
}

/// Returns the status of the answer; `None` if the other side has closed the socket.
pub fn answer(mut socket: &UnixStream) -> Option<u8> {
    let mut answer = [0; 16];
    socket.read_exact(&mut answer).ok()?;
    Some(answer[12])
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

pub fn event(flags: EventfdFlags) -> OwnedFd {
    eventfd(0, flags | EventfdFlags::NONBLOCK).expect("eventfds exist")
}

/// A process that has offered a segment.
pub struct RawPeer {
    pub socket: UnixStream,
    pub map: Map,
    pub slots: usize,
    segment: Option<Segment>,
    own_event: OwnedFd,
    /// The driver sleeps on it.
    pub other_event: OwnedFd,
}

impl RawPeer {
    /// Offers a segment. The driver's eventfd has these flags.
    pub fn offer(name: &str, config: &SegmentConfig, flags: EventfdFlags) -> RawPeer {
        let (segment, file) = Segment::create(config).expect("memory files exist");
        let bytes = rustix::fs::fstat(&file).expect("a file").st_size as usize;
        let (own_event, other_event) = (event(EventfdFlags::empty()), event(flags));
        let socket = connect(name);
        pass(&socket, &HELLO, &[file.as_fd(), own_event.as_fd(), other_event.as_fd()]);
        let (map, slots) = (Map::new(&file, bytes), config.slots as usize);
        RawPeer { socket, map, slots, segment: Some(segment), own_event, other_event }
    }

    /// Offers a segment, and waits until the driver has accepted it.
    pub fn paired(name: &str, config: &SegmentConfig) -> RawPeer {
        let peer = RawPeer::offer(name, config, EventfdFlags::empty());
        assert_eq!(answer(&peer.socket), Some(1), "the segment is right");
        peer
    }

    /// Returns this side's view of the pair, once.
    pub fn pair(&mut self) -> Pair {
        let duplicate = |event: &OwnedFd| event.try_clone().expect("a descriptor is free");
        let segment = self.segment.take().expect("it is asked for once");
        Pair::new(segment, duplicate(&self.own_event), duplicate(&self.other_event)).expect("both attached")
    }

    /// Offset of the first control word of a slot.
    pub fn slot_at(&self, slot: usize) -> usize {
        READY_AT + (2 * self.slots / 8).next_multiple_of(4096) + slot * 512
    }

    /// Sets all ready bits of the driver.
    pub fn set_all_ready_bits(&self) {
        for word in 0..self.slots / 64 {
            self.map.wide(READY_AT + self.slots / 8 + 8 * word).store(u64::MAX, Ordering::Release);
        }
        for summary in 0..(self.slots / 64).div_ceil(64) {
            self.map.wide(SUMMARIES_OF_OTHER_AT + 8 * summary).store(u64::MAX, Ordering::Release);
        }
    }

    /// Signals the driver, whatever its sleep word says.
    pub fn signal(&self) {
        let _ = rustix::io::write(&self.other_event, &1_u64.to_ne_bytes());
    }
}
