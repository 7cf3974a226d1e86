//! The threads that copy between a descriptor and the connection of a service.
//! Promises: one buffer per thread; a read or a write blocks that thread only; a descriptor that another program has
//! made non-blocking is waited for.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use flick_net::{Continuation, DescriptorAddr};
use flick_shm::conn::RingRead;
use flick_shm::pairing::{PairError, PairListener};
use flick_shm::segment::SegmentError;
use flick_shm::stream::{ShmStream, StreamConfig, StreamError, StreamInterest, StreamTransport};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::rings::RingOffer;
use super::{DescriptorEvent, Input, InputFront};

/// Bytes of a copy: as many as a pipe of the default size has.
const COPY_BYTES: usize = 64 << 10;
/// Bytes of a pipe that is copied from or to: a few copies, so that one end works while the other one does, and
/// little of the 64 MiB that the kernel grants the pipes of a user by default.
const PIPE_BYTES: usize = 4 * COPY_BYTES;
/// Longest wait, in milliseconds, before a thread looks whether the service has closed the connection.
const LOOK_MS: u32 = 1000;

/// Failure of a copy.
pub(super) enum CopyError {
    /// The connection to the service could not be made.
    Unconnected(PairError),
    /// The service has closed the connection.
    Closed,
    /// The descriptor failed.
    Descriptor(Errno),
}

impl From<StreamError> for CopyError {
    fn from(_: StreamError) -> Self {
        Self::Closed
    }
}

/// Connects to the service and copies an input to it, until both have ended. Reads no more once `stop` is readable.
pub(super) fn input(input: Input, stop: &OwnedFd) -> DescriptorEvent {
    let Input { at, file, name, offer, continuation } = input;
    let mut front = InputFront::default();
    let connected =
        ShmStream::connect(&name, &StreamConfig::default()).and_then(|stream| match stream.transport() {
            StreamTransport::SharedMemory => Ok(stream),
            StreamTransport::Kernel(reason) => Err(reason),
        });
    let connected = connected.map_err(CopyError::Unconnected);
    let copied = connected.and_then(|mut stream| {
        let offer = offer.map(|offer| (offer, continuation));
        copy_input(&file, offer, &mut stream, (&mut front, stop.as_fd()))?;
        stream.finish_sending()?;
        while !has_ended(&mut stream)? {
            stream.wait(StreamInterest::Readable, Some(LOOK_MS))?;
        }
        Ok(())
    });
    match copied {
        Ok(()) => DescriptorEvent::InputEnded(front),
        Err(CopyError::Closed) => DescriptorEvent::InputRefused(at, front),
        Err(CopyError::Unconnected(error)) => {
            let too_large = matches!(
                error,
                PairError::System(Errno::FBIG) | PairError::Segment(SegmentError::System(Errno::FBIG))
            );
            let help = if too_large {
                "; the limit of a file's size (`ulimit -f`) is below that of a ring"
            } else {
                ""
            };
            DescriptorEvent::Failed(format!(
                "cannot pass `{at}` to the service through shared memory: {error}{help}"
            ))
        }
        Err(CopyError::Descriptor(error)) => {
            DescriptorEvent::Failed(format!("cannot read from `{at}`: {error}"))
        }
    }
}

/// Copies what the pipe has, and lets the service read what processes send through rings while the pipe is empty.
/// `front` gets the pipe's first bytes.
fn copy_input(
    file: &OwnedFd,
    offer: Option<(RingOffer, Continuation)>,
    to: &mut ShmStream,
    (front, stop): (&mut InputFront, BorrowedFd<'_>),
) -> Result<(), CopyError> {
    let mut is_first = true;
    let mut buffer = vec![0; COPY_BYTES];
    loop {
        let sources = [Some(file.as_fd()), offer.as_ref().map(|(offer, _)| offer.socket()), Some(stop)];
        let [has_bytes, is_asked, stops] = wait_for(sources)?;
        if stops {
            return Ok(());
        }
        if !has_bytes && !is_asked {
            if has_ended(to)? {
                return Err(CopyError::Closed);
            }
            continue;
        }
        // Bytes in the pipe were written before the other process asked.
        if let Some((offer, rings)) = offer.as_ref().filter(|_| is_asked && !has_input(file.as_fd())) {
            offer.serve(rings, to, stop)?;
            continue;
        }
        match rustix::io::read(file, &mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => {
                if std::mem::take(&mut is_first) {
                    enlarge(file);
                    let shown = count.min(front.len());
                    front[..shown].copy_from_slice(&buffer[..shown]);
                }
                send_all(to, &buffer[..count])?;
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => return Err(CopyError::Descriptor(error)),
        }
    }
}

/// Makes a pipe as long as [`PIPE_BYTES`], if it is a pipe, shorter, and the kernel allows it.
fn enlarge(file: &OwnedFd) {
    if rustix::pipe::fcntl_getpipe_size(file).is_ok_and(|bytes| bytes < PIPE_BYTES) {
        // A user with many pipes may have no more pages for them; the pipe is used as it is then.
        let _ = rustix::pipe::fcntl_setpipe_size(file, PIPE_BYTES);
    }
}

/// Whether a read returns bytes now, or a connection can be accepted.
pub(super) fn has_input(file: BorrowedFd<'_>) -> bool {
    let mut sources = [PollFd::from_borrowed_fd(file, PollFlags::IN)];
    let polled = poll(&mut sources, Some(&Timespec::default()));
    polled.is_ok() && sources[0].revents().contains(PollFlags::IN)
}

/// Sends all bytes to a service.
fn send_all(to: &mut ShmStream, mut bytes: &[u8]) -> Result<(), CopyError> {
    loop {
        bytes = &bytes[to.send(bytes)?..];
        if bytes.is_empty() {
            return Ok(());
        }
        to.wait(StreamInterest::Writable, Some(LOOK_MS))?;
        if has_ended(to)? {
            return Err(CopyError::Closed);
        }
    }
}

/// Whether a service that sends nothing has ended its side.
pub(super) fn has_ended(stream: &mut ShmStream) -> Result<bool, CopyError> {
    Ok(stream.receive(&mut [0; 64])? == RingRead::Finished)
}

/// Writes all that one connection of a service brings to a file. Returns when it has ended, in order or not.
fn drain(from: &mut ShmStream, buffer: &mut [u8], file: &OwnedFd) -> Result<(), Errno> {
    loop {
        match from.receive(buffer) {
            Ok(RingRead::Bytes(count)) => write_all(file, &buffer[..count])?,
            Ok(RingRead::Empty) if from.wait(StreamInterest::Readable, Some(LOOK_MS)).is_ok() => {}
            // A worker that ends leaves its connections as they are.
            _ => return Ok(()),
        }
    }
}

/// Accepts the connections of a service, one after the other, and copies what they bring, until `stop` is readable and
/// none is left.
pub(super) fn output(
    at: &DescriptorAddr,
    file: &OwnedFd,
    listener: &PairListener,
    stop: &OwnedFd,
) -> DescriptorEvent {
    let mut buffer = vec![0; COPY_BYTES];
    enlarge(file);
    loop {
        let stops = match wait_for([Some(listener.socket()), Some(stop.as_fd())]) {
            Ok([false, stops]) => stops,
            Ok([true, _]) => {
                // A process that only tried is no reason to stop.
                if let Ok(mut stream) = ShmStream::accept(listener, &StreamConfig::default()) {
                    match drain(&mut stream, &mut buffer, file) {
                        Ok(()) => {}
                        Err(Errno::PIPE) => return DescriptorEvent::OutputClosed,
                        Err(error) => {
                            return DescriptorEvent::Failed(format!("cannot write to `{at}`: {error}"));
                        }
                    }
                }
                false
            }
            Err(_) => true,
        };
        if stops {
            return DescriptorEvent::OutputEnded;
        }
    }
}

fn write_all(file: &OwnedFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::write(file, bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                poll(&mut [PollFd::new(file, PollFlags::OUT)], None)?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Waits until one of these descriptors is readable or has ended, for a second at most.
pub(super) fn wait_for<const N: usize>(sources: [Option<BorrowedFd<'_>>; N]) -> Result<[bool; N], CopyError> {
    let mut polled: Vec<PollFd<'_>> =
        sources.iter().flatten().map(|source| PollFd::from_borrowed_fd(*source, PollFlags::IN)).collect();
    let timeout = Timespec { tv_sec: i64::from(LOOK_MS / 1000), tv_nsec: 0 };
    match poll(&mut polled, Some(&timeout)) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(CopyError::Descriptor(error)),
    }
    let mut ready = polled.iter().map(|source| !source.revents().is_empty());
    Ok(sources.map(|source| source.is_some() && ready.next().unwrap_or(false)))
}
