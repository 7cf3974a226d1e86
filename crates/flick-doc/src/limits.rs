//! Every bound of the pages, in one place.
//! Promises: a page is a small multiple of its source, whatever the source says about sizes.

/// Columns of a picture, in bits; as in RFCs.
pub const PICTURE_BITS: u32 = 32;

/// Most rows that one field takes in a picture; a longer field says how long it is.
pub const FIELD_ROWS_MAX: u32 = 4;

/// Deepest nesting of units whose width is looked for.
pub const UNITS_DEPTH_MAX: u32 = 8;

/// Deepest chain of classes that name each other.
pub const CLASSES_DEPTH_MAX: u32 = 8;

/// Longest label of a paragraph, as in `Passes on as it came: ...`.
pub const LABEL_BYTES_MAX: usize = 24;

/// Most words of a label.
pub const LABEL_WORDS_MAX: usize = 5;
