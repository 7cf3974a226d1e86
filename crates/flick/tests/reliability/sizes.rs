//! Values of every size, against a real memcached: through the proxy they fare as they do without it.

use std::io::Write;
use std::net::TcpStream;

use flick_load::binary::{HEADER_BYTES, Header, MAGIC_REQUEST, Opcode, Status};

use crate::common::peers::Memcached;
use crate::common::service::Service;
use crate::machine;
use crate::wire::{self, Client, get, set};

const MIB: usize = 1 << 20;

/// The sizes at which something changes: nothing, one buffer of ours, one item of memcached's.
fn sizes() -> Vec<usize> {
    let buffer = 1 << 14;
    let mut sizes = vec![0, 1, 2, 2_048 - 33, 2_048 - 32, 2_048, 4_096 - 32, 4_096, 65_536, 300_000];
    sizes.extend(buffer - 40..=buffer + 1);
    sizes.extend([MIB - 1_000, MIB - 200, MIB, MIB + 1, 2 * MIB]);
    sizes
}

#[test]
fn m9_value_sizes_as_without_a_proxy() {
    let _machine = machine::alone();
    for io in ["epoll", "uring"] {
        let (behind, direct) = (Memcached::start(), Memcached::start());
        let service = Service::proxy(&[behind.address], &["--workers", "1", "--io", io]);
        let mut proxied = Client::connect(service.address);
        let mut plain = Client::connect(direct.address);
        let before = machine::resident_bytes(service.pid());
        for (opaque, size) in (0_u32..).zip(sizes()) {
            let value: Vec<u8> = (0..size).map(|at| (at * 31 + size) as u8).collect();
            let key = format!("value-{size}");
            let write = set(opaque, &key, &value);
            let (through, without) = (proxied.ask(&write), plain.ask(&write));
            assert_eq!(through.outcome(), without.outcome(), "{io}, {size} bytes written");
            assert_eq!(through.value(), without.value(), "{io}, {size} bytes written");
            // In between, memcached's own overhead decides.
            let expected = if size < MIB { Status::NoError } else { Status::ValueTooLarge };
            assert!(size == MIB - 200 || through.status() == Some(expected), "{io}, {size} bytes written");
            let read = get(opaque, &key);
            let (through, without) = (proxied.ask(&read), plain.ask(&read));
            assert_eq!(through.outcome(), without.outcome(), "{io}, {size} bytes read");
            assert!(through.value() == without.value(), "{io}, {size} bytes read");
        }
        let grown = machine::resident_bytes(service.pid()).saturating_sub(before);
        println!("{io}: memory grew by {} KiB", grown / 1024);
        assert!(grown < 8 * MIB as u64, "{io}: memory grew by {grown} bytes");
        drop(proxied);
        service.drained();
    }
}

/// A length beyond any limit: what arrives of it is discarded or the connection is closed, whatever the client
/// does; others go on, and nothing is allocated for it.
#[test]
fn m9_oversized_value_lengths_take_no_memory() {
    let _machine = machine::alone();
    for io in ["epoll", "uring"] {
        let server = Memcached::start();
        let service = Service::proxy(&[server.address], &["--workers", "1", "--io", io]);
        let mut neighbour = Client::connect(service.address);
        let before = machine::resident_bytes(service.pid());
        for declared in [0x7fff_ffff_u32, 0x8000_0000, 0xffff_ffff] {
            for opcode in [Opcode::Set, Opcode::SetQ, Opcode::Append] {
                let extras_len = if opcode == Opcode::Append { 0 } else { 8 };
                for (name, sends) in
                    [("closes", 100), ("sends slowly", 40_000), ("goes on sending", 32 * MIB)]
                {
                    let what = format!("{io}, {opcode:?} of {declared:#x}, client {name}");
                    let header = Header {
                        magic: MAGIC_REQUEST,
                        opcode: opcode.byte(),
                        extras_len,
                        key_len: 3,
                        body_len: declared,
                        opaque: 7,
                        ..Header::default()
                    };
                    huge(service.address, &header, sends, &what);
                    assert_eq!(neighbour.ask(&get(3, "other")).status(), Some(Status::KeyNotFound), "{what}");
                }
            }
        }
        let grown = machine::resident_bytes(service.pid()).saturating_sub(before);
        println!("{io}: memory grew by {} KiB", grown / 1024);
        assert!(grown < 8 * MIB as u64, "{io}: memory grew by {grown} bytes");
        drop(neighbour);
        service.drained();
    }
}

/// Sends the head of a huge request and `sends` bytes of its body, and expects an error or the end, if anything.
fn huge(address: std::net::SocketAddr, header: &Header, sends: usize, what: &str) {
    let stream = TcpStream::connect(address).expect("the service accepts");
    let mut reader = Client::of(stream.try_clone().expect("a descriptor is left"));
    let mut writer = stream;
    assert_eq!(header.encode().len(), HEADER_BYTES);
    writer.write_all(&header.encode()).expect("the service reads");
    let chunk = vec![b'v'; if sends > MIB { 65_536 } else { 10 }];
    let mut sent = 0;
    while sent < sends && writer.write_all(&chunk).is_ok() {
        sent += chunk.len();
    }
    // memcached tells some of them that it will not keep this, others only when it has swallowed all.
    if reader.is_readable()
        && let Some(reply) = reader.try_reply()
    {
        assert_eq!(reply.header.opaque, 7, "{what}");
        assert!(!matches!(reply.status(), None | Some(Status::NoError)), "{what}: {reply:?}");
    }
    wire::reset(writer);
}
