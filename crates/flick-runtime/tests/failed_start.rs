//! A platform that cannot start all its threads: what the predecessor would have served is left to it.

mod common;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use flick_net::{Endpoint, ListenSocket, ListenSockets};
use flick_runtime::{Binding, Handoff, Limits, Platform, PlatformConfig, ServiceConfig};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Workers of the platform. The first ones start.
const WORKERS: usize = 4;

/// The service, with what it takes over.
fn start(handoff: Handoff, at: SocketAddr) -> Result<Platform, String> {
    let backend = SocketAddr::from(([127, 0, 0, 1], 1));
    let listen = vec![Binding::new("client", vec![Endpoint::Tcp(at)])];
    let connect = vec![Binding::new("backends", vec![Endpoint::Tcp(backend)])];
    let limits = Limits { buffer_memory: 64 << 20, ..Limits::default() };
    let config = PlatformConfig { workers: WORKERS, limits, ..PlatformConfig::new(listen, connect) };
    let (program, engine) = (common::program(), Arc::new(common::Hand));
    let service = ServiceConfig { name: "first".into(), program, engine, config, group: 0 };
    Platform::start_with(vec![service], handoff).map_err(|error| error.to_string())
}

/// Threads that had started accepted clients, and reset them when a later one could not start.
#[test]
fn clients_were_accepted_by_threads_of_a_start_that_failed() {
    let before = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let at = before.local_addr().expect("it is bound");
    let usual = getrlimit(Resource::Nofile);
    let mut failed_late = 0;
    // With each further descriptor a start comes further.
    for descriptors in 16.. {
        let mut client = Some(TcpStream::connect(at).expect("the backlog has room"));
        let sockets =
            (0..WORKERS).map(|_| ListenSocket::adopt(before.try_clone().expect("a descriptor").into()));
        let sockets = ListenSockets::of(sockets.collect::<Result<_, _>>().expect("they listen"));
        let handoff = Handoff::of_sockets(vec![(Endpoint::Tcp(at), sockets)], Vec::new());
        setrlimit(Resource::Nofile, Rlimit { current: Some(descriptors), ..usual })
            .expect("below the maximum");
        let started = start(handoff, at);
        setrlimit(Resource::Nofile, usual).expect("as before");
        match started {
            Ok(platform) => {
                platform.stop();
                platform.wait();
                break;
            }
            Err(error) if error.contains("start worker") => {
                failed_late += usize::from(!error.contains("worker 0"))
            }
            Err(error) => assert!(error.contains("open files"), "{error}"),
        }
        let mut polled = [PollFd::new(&before, PollFlags::IN)];
        assert_eq!(
            poll(&mut polled, Some(&Timespec::default())),
            Ok(1),
            "accepted; {descriptors} descriptors"
        );
        drop((before.accept().expect("the client waits"), client.take()));
    }
    assert!(failed_late > 0, "a later thread could not start");
}
