//! What RFC 9110 and 9112 say of given bytes: tables of verdicts, random messages, and a reader that is strict and
//! slow. Nothing here knows of flick: it is what flick's grammar, and what leaves a balancer, is held against.

pub mod generate;
pub mod strict;
pub mod table;

/// What a request asked that the framing of its reply depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// A method without influence on framing.
    Get,
    /// As `Get`, of HTTP/1.0.
    Get10,
    /// Its reply has no body.
    Head,
    /// A reply of 2xx opens a tunnel.
    Connect,
    /// A reply of 101 opens a tunnel.
    Upgrade,
}
