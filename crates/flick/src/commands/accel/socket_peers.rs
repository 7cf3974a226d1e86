//! The other ends of sockets of the family Unix, which only the kernel's socket diagnostics know.
//! Promises: a socket that has none, or that the kernel does not know, is left out.
//! Source: `sock_diag(7)`, `linux/unix_diag.h`.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::netlink::SOCK_DIAG;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

/// Bytes of an answer about one socket, at most.
const ANSWER_BYTES_MAX: usize = 512;
/// Bytes of a netlink header, of a `struct unix_diag_req` and of a `struct unix_diag_msg`.
const HEADER: usize = 16;
const REQUEST: usize = 24;
const MESSAGE: usize = 16;

/// Asks for the peers of sockets, by inode.
pub fn look(inodes: &[u64]) -> io::Result<HashMap<u64, u64>> {
    let mut peers = HashMap::new();
    if inodes.is_empty() {
        return Ok(peers);
    }
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(SOCK_DIAG))?;
    for inode in inodes {
        if let Some(peer) = ask(&socket, u32::try_from(*inode).unwrap_or_default())? {
            peers.insert(*inode, u64::from(peer));
        }
    }
    Ok(peers)
}

/// Asks for the peer of one socket.
fn ask(socket: &OwnedFd, inode: u32) -> io::Result<Option<u32>> {
    const BY_FAMILY: u32 = 20;
    const REQUEST_FLAG: u32 = 1;
    const AF_UNIX: u32 = 1;
    const ALL_STATES: u32 = u32::MAX;
    const SHOW_PEER: u32 = 4;
    const ANY_COOKIE: u32 = u32::MAX;
    let length = (HEADER + REQUEST) as u32;
    // Length; type and flags; sequence number; port. Family; states; inode; what to show; cookie.
    let words = [length, BY_FAMILY | REQUEST_FLAG << 16, inode, 0];
    let request = [AF_UNIX, ALL_STATES, inode, SHOW_PEER, ANY_COOKIE, ANY_COOKIE];
    let bytes: Vec<u8> = words.iter().chain(&request).flat_map(|word| word.to_le_bytes()).collect();
    rustix::net::send(socket.as_fd(), &bytes, SendFlags::empty())?;
    let mut answer = [0; ANSWER_BYTES_MAX];
    // The kernel has answered before the call above returns.
    let (length, _) = rustix::net::recv(socket.as_fd(), answer.as_mut_slice(), RecvFlags::DONTWAIT)?;
    Ok(answer.get(..length).and_then(|answer| peer(answer, inode)))
}

/// The peer's inode, from an answer.
fn peer(answer: &[u8], inode: u32) -> Option<u32> {
    const UNIX_DIAG_PEER: u16 = 2;
    const BY_FAMILY: u16 = 20;
    let half = |at: usize| Some(u16::from_le_bytes(answer.get(at..at + 2)?.try_into().ok()?));
    let word = |at: usize| Some(u32::from_le_bytes(answer.get(at..at + 4)?.try_into().ok()?));
    if half(4)? != BY_FAMILY || word(HEADER + 4)? != inode {
        return None;
    }
    let mut at = HEADER + MESSAGE;
    while at + 4 <= answer.len() {
        let length = usize::from(half(at)?);
        if half(at + 2)? == UNIX_DIAG_PEER {
            return word(at + 4);
        }
        at += length.max(4).next_multiple_of(4);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::net::UnixStream;

    fn inode(socket: &UnixStream) -> u64 {
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(socket));
        std::fs::metadata(path).expect("it is open").ino()
    }

    #[test]
    fn both_ends_of_a_pair_are_peers_of_each_other_and_an_unknown_inode_of_none() {
        let (one, other) = UnixStream::pair().expect("a pair");
        let (one_inode, other_inode) = (inode(&one), inode(&other));
        let peers = look(&[one_inode, other_inode, 0]).expect("the kernel answers");
        assert_eq!(peers, HashMap::from([(one_inode, other_inode), (other_inode, one_inode)]));
    }

    #[test]
    fn answers_that_end_early_have_no_peer() {
        for length in 0..HEADER + MESSAGE + 8 {
            assert_eq!(peer(&[0; HEADER + MESSAGE + 8][..length], 0), None);
        }
    }
}
