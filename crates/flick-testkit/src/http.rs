//! Reference for HTTP messages, by RFC 9110 and 9112: tables of verdicts, random messages, and a reader that is strict
//! and slow. Requests that smuggle others, readers as lenient as servers have been, and a judge of what they all see.
//! Nothing here knows of flick: tests compare flick's grammar, and the output of a balancer, with it.

pub mod ambiguity;
pub mod corpus;
pub mod generate;
pub mod lenient;
pub mod strict;
pub mod table;

/// Property of a request that the framing of its reply depends on.
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
