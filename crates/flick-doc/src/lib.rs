//! A grammar or library as one page of HTML: for each unit a picture of its bytes, as RFCs have them, its fields, and what
//! the platform is told about it.
//! Promises: what is said comes from the text alone, its comments included; the page needs nothing but itself; every text
//! of the author is escaped; the same text gives the same page.
//! Refuses: to judge. A text with mistakes gives a page of what could be understood; the caller checks it first.
//! Start reading at [`page`] (`page.rs`), then `shape.rs`, what the picture is drawn from, and `picture.rs`, which draws.
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
