//! A relay that parses nothing: one thread for each direction, blocking calls, one connection at a time.
//! It is the lower bound of the cost per byte with these system calls.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc;

use rustix::pipe::{SpliceFlags, splice};

use crate::cli::BareRelayArgs;

/// Bytes of the pipe between two splices.
const PIPE_BYTES: usize = 1 << 20;

/// Relays one connection after the other, without end.
pub(crate) fn run(args: &BareRelayArgs) -> io::Result<()> {
    serve(&TcpListener::bind(args.listen)?, args)
}

fn serve(listener: &TcpListener, args: &BareRelayArgs) -> io::Result<()> {
    // Both threads stay alive, so that their processor time can be read at any moment.
    let (to_server, pairs) = mpsc::channel::<(TcpStream, TcpStream)>();
    let (done, finished) = mpsc::channel::<()>();
    let requests = args.clone();
    std::thread::spawn(move || {
        for (client, server) in pairs {
            // Either end may be closed; the other direction finds that out by itself.
            let _ = forward(&requests, &client, &server);
            if done.send(()).is_err() {
                return;
            }
        }
    });
    loop {
        let (client, _) = listener.accept()?;
        let server = TcpStream::connect(args.server)?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let pair = (client.try_clone()?, server.try_clone()?);
        to_server.send(pair).map_err(io::Error::other)?;
        let _ = forward(args, &server, &client);
        finished.recv().map_err(io::Error::other)?;
    }
}

/// Forwards the bytes of `from` until its end, and then the end.
fn forward(args: &BareRelayArgs, from: &TcpStream, to: &TcpStream) -> io::Result<()> {
    let moved = if args.splice { spliced(from, to) } else { copied(args.buffer_bytes, from, to) };
    let _ = to.shutdown(Shutdown::Write);
    moved
}

fn copied(buffer_bytes: usize, mut from: &TcpStream, mut to: &TcpStream) -> io::Result<()> {
    let mut buffer = vec![0; buffer_bytes.max(1)];
    loop {
        match from.read(&mut buffer)? {
            0 => return Ok(()),
            bytes => to.write_all(&buffer[..bytes])?,
        }
    }
}

fn spliced(from: &TcpStream, to: &TcpStream) -> io::Result<()> {
    let (reader, writer) = rustix::pipe::pipe()?;
    // A smaller pipe still works.
    let _ = rustix::pipe::fcntl_setpipe_size(&writer, PIPE_BYTES);
    loop {
        let mut held = splice(from, None, &writer, None, PIPE_BYTES, SpliceFlags::MOVE)?;
        if held == 0 {
            return Ok(());
        }
        while held > 0 {
            held -= splice(&reader, None, to, None, held, SpliceFlags::MOVE)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use crate::cli::BareRelayArgs;
    use crate::relay::peers::{Peers, Shape};

    /// Bodies of every shape arrive whole through a relay of this kind.
    fn check(splice: bool, buffer_bytes: usize) {
        for shape in Shape::ALL {
            let peers = Peers::new(shape).expect("there are sockets");
            let listener = TcpListener::bind(("127.0.0.1", 0)).expect("there are sockets");
            let listen = listener.local_addr().expect("it is bound");
            let args = BareRelayArgs { listen, server: peers.addr(), splice, buffer_bytes };
            std::thread::spawn(move || super::serve(&listener, &args));
            peers.checked(listen, 3 << 20).expect("the body arrives");
            peers.moved(listen, 3 << 20).expect("the body arrives");
        }
    }

    #[test]
    fn bodies_arrive_whole_through_copies() {
        check(false, 10_007);
    }

    #[test]
    fn bodies_arrive_whole_through_splices() {
        check(true, 0);
    }
}
