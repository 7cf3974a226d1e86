//! A packet filter as it is written by hand: it reads a record, handles it and writes it, with one system call for the
//! record's header, one for its packet, and one to write both; or with buffers of 64 KiB.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::fd::AsFd;

use super::{EDITED_AT, EDITED_TO, HEADER_BYTES};
use crate::cli::PacketFilterArgs;

/// Bytes of a buffer, as many as a pipe has.
const BUFFER_BYTES: usize = 64 << 10;
/// Most bytes of a packet.
const PACKET_BYTES_MAX: usize = 256 << 10;

/// Filters standard input to standard output.
pub(crate) fn run(args: &PacketFilterArgs) -> io::Result<()> {
    // Not `stdin()` and `stdout()`, which have buffers of their own.
    let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let packets = if args.buffered {
        filter(
            BufReader::with_capacity(BUFFER_BYTES, input),
            BufWriter::with_capacity(BUFFER_BYTES, output),
            args.edit,
        )
    } else {
        filter(input, output, args.edit)
    };
    eprintln!("packets {}", packets?);
    Ok(())
}

fn filter(mut input: impl Read, mut output: impl Write, edit: bool) -> io::Result<u64> {
    let mut bytes = vec![0; 16 + PACKET_BYTES_MAX];
    input.read_exact(&mut bytes[..HEADER_BYTES])?;
    output.write_all(&bytes[..HEADER_BYTES])?;
    output.flush()?;
    let mut packets = 0;
    loop {
        match input.read_exact(&mut bytes[..16]) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
            read => read?,
        }
        let kept = u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]) as usize;
        let end = 16 + kept.min(PACKET_BYTES_MAX);
        input.read_exact(&mut bytes[16..end])?;
        if edit && kept > EDITED_AT {
            bytes[16 + EDITED_AT] = EDITED_TO;
        }
        packets += 1;
        output.write_all(&bytes[..end])?;
    }
    output.flush()?;
    Ok(packets)
}
