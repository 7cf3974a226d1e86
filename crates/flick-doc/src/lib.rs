//! Renders a grammar or library as one page of HTML: for each unit a picture of its bytes, as RFCs have them, its
//! fields, and its properties.
//! Promises: the page is made of the source and its comments alone; it needs no other file; every text of the source is
//! escaped; the same source renders the same page.
//! Refuses: to check. A source with errors renders the part that could be parsed; the caller checks it first. Start
//! reading at [`page`] (`page.rs`), then `shape.rs`, what the picture is drawn from, and `picture.rs`, which draws.
#![forbid(unsafe_code)]

mod classes;
mod comments;
mod facts;
mod fields;
mod html;
pub mod limits;
mod page;
mod picture;
mod scope;
mod shape;

pub use page::page;
