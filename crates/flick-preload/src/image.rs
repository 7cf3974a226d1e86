//! The file of a patched text: pages of one libc in which call sites jump to stubs, and the stubs.
//! Promises: `flick accel` writes it, the library maps it; every offset is checked before it is used. A libc with
//! other bytes than the file was made from is refused, page by page.
//! Refuses: another architecture than x86-64.

use crate::limits::{IMAGE_BYTES_MAX, PAGE_BYTES, RUNS_MAX, SITES_MAX};

/// First bytes of the file. The last one is the version.
pub const IMAGE_MAGIC: [u8; 8] = *b"FLKTEXT1";

/// Bytes of a site that a jump replaces.
pub const PATCH_BYTES: usize = 5;

/// Bytes of a build id (SHA-1).
pub const BUILD_ID_BYTES: usize = 20;

/// Bytes of the header: magic, build id, then `stubs_below`, `stub_bytes`, `stub_offset`, the number of runs and of
/// sites.
const HEADER_BYTES: usize = 8 + BUILD_ID_BYTES + 5 * 4;
const RUN_BYTES: usize = 12;
const SITE_BYTES: usize = 16;

/// Adjacent pages of libc's text with sites.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageRun {
    /// Their offset from libc's base.
    pub address: u32,
    /// Their bytes.
    pub bytes: u32,
    /// Their offset in the file.
    pub offset: u32,
}

/// A call site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Site {
    /// Its offset from libc's base.
    pub address: u32,
    /// Offset of its stub in the stubs.
    pub stub: u32,
    /// The bytes that the jump replaces.
    pub original: [u8; PATCH_BYTES],
}

/// A reason why a patched text is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Mismatch {
    /// The file is not a patched text of this version.
    Format = 1001,
    /// It was made for another libc.
    BuildId = 1002,
    /// The memory of libc has other bytes than the file was made from.
    Bytes = 1003,
    /// The file is not the user's, or others may write to it.
    Owner = 1004,
    /// The process has no glibc.
    NoLibc = 1005,
    /// The memory for stubs is in use.
    Occupied = 1006,
}

/// A patched text in memory. Having one means: every run and the stubs lie inside of the file, on pages, and every
/// site in a run.
#[derive(Debug, Clone, Copy)]
pub struct Image<'a> {
    bytes: &'a [u8],
    runs: usize,
    sites: usize,
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..at + 4).and_then(|word| word.try_into().ok());
    u32::from_le_bytes(word.unwrap_or_default())
}

impl<'a> Image<'a> {
    /// Parses a file.
    ///
    /// Errors: `Format`.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Mismatch> {
        let (runs, sites) = (word(bytes, HEADER_BYTES - 8) as usize, word(bytes, HEADER_BYTES - 4) as usize);
        let image = Self { bytes, runs, sites };
        let is_bounded = bytes.len() <= IMAGE_BYTES_MAX
            && runs <= RUNS_MAX
            && sites <= SITES_MAX
            && bytes.len() >= HEADER_BYTES;
        let tables = HEADER_BYTES + RUN_BYTES * runs + SITE_BYTES * sites;
        let is_valid = is_bounded
            && bytes.starts_with(&IMAGE_MAGIC)
            && tables <= bytes.len()
            && image.is_inside(image.stub_offset(), image.stub_bytes())
            && (image.stubs_below() as usize).is_multiple_of(PAGE_BYTES)
            && image.runs().all(|run| image.has_run(&run))
            && image.sites().all(|site| image.has_site(&site));
        if is_valid { Ok(image) } else { Err(Mismatch::Format) }
    }

    fn is_inside(&self, offset: u32, bytes: u32) -> bool {
        let (offset, bytes) = (offset as usize, bytes as usize);
        offset.is_multiple_of(PAGE_BYTES)
            && bytes.is_multiple_of(PAGE_BYTES)
            && bytes > 0
            && offset.checked_add(bytes).is_some_and(|end| end <= self.bytes.len())
    }

    fn has_run(&self, run: &PageRun) -> bool {
        run.address.is_multiple_of(PAGE_BYTES as u32)
            && run.address.checked_add(run.bytes).is_some()
            && self.is_inside(run.offset, run.bytes)
    }

    fn has_site(&self, site: &Site) -> bool {
        site.stub < self.stub_bytes() && self.run_of(site).is_some()
    }

    /// The run of a site.
    fn run_of(&self, site: &Site) -> Option<PageRun> {
        let end = site.address.checked_add(PATCH_BYTES as u32)?;
        self.runs().find(|run| {
            run.address <= site.address && run.address.checked_add(run.bytes).is_some_and(|last| end <= last)
        })
    }

    /// The build id of the libc that it was made from.
    pub fn build_id(&self) -> &'a [u8] {
        self.bytes.get(8..8 + BUILD_ID_BYTES).unwrap_or_default()
    }

    /// Distance from libc's base down to the stubs.
    pub fn stubs_below(&self) -> u32 {
        word(self.bytes, 8 + BUILD_ID_BYTES)
    }

    /// Bytes of the stubs, a multiple of a page. The word behind them holds the address of the library's entry.
    pub fn stub_bytes(&self) -> u32 {
        word(self.bytes, 12 + BUILD_ID_BYTES)
    }

    /// Offset of the stubs in the file.
    pub fn stub_offset(&self) -> u32 {
        word(self.bytes, 16 + BUILD_ID_BYTES)
    }

    /// The runs of pages.
    pub fn runs(&self) -> impl Iterator<Item = PageRun> + use<'a> {
        let (bytes, runs) = (self.bytes, self.runs);
        (0..runs).map(move |index| {
            let at = HEADER_BYTES + RUN_BYTES * index;
            PageRun { address: word(bytes, at), bytes: word(bytes, at + 4), offset: word(bytes, at + 8) }
        })
    }

    /// The sites, in the order of their addresses.
    pub fn sites(&self) -> impl Iterator<Item = Site> + use<'a> {
        let (bytes, runs, sites) = (self.bytes, self.runs, self.sites);
        (0..sites).map(move |index| {
            let at = HEADER_BYTES + RUN_BYTES * runs + SITE_BYTES * index;
            let original = bytes.get(at + 8..at + 8 + PATCH_BYTES).and_then(|bytes| bytes.try_into().ok());
            Site {
                address: word(bytes, at),
                stub: word(bytes, at + 4),
                original: original.unwrap_or_default(),
            }
        })
    }

    /// Checks that `live`, the pages of a run in memory, are the original of the run's pages in the file.
    ///
    /// Errors: `Bytes`.
    pub fn verify(&self, run: &PageRun, live: &[u8]) -> Result<(), Mismatch> {
        let patched = self.bytes.get(run.offset as usize..(run.offset + run.bytes) as usize);
        let mut patched = patched.ok_or(Mismatch::Format)?;
        let mut live = live.get(..run.bytes as usize).ok_or(Mismatch::Format)?;
        let mut at = run.address;
        let end = run.address + run.bytes;
        for site in self.sites().filter(|site| run.address <= site.address && site.address < end) {
            let before = site.address.checked_sub(at).ok_or(Mismatch::Format)? as usize;
            let (Some((old, old_rest)), Some((new, new_rest))) =
                (live.split_at_checked(before), patched.split_at_checked(before))
            else {
                return Err(Mismatch::Format);
            };
            let is_site = old_rest.starts_with(&site.original)
                && new_rest.starts_with(&jump(&site, self.stubs_below()));
            if old != new || !is_site {
                return Err(Mismatch::Bytes);
            }
            live = old_rest.get(PATCH_BYTES..).unwrap_or_default();
            patched = new_rest.get(PATCH_BYTES..).unwrap_or_default();
            at = site.address + PATCH_BYTES as u32;
        }
        if live == patched { Ok(()) } else { Err(Mismatch::Bytes) }
    }
}

/// The jump that stands at a site, if stubs are this far below libc's base.
pub fn jump(site: &Site, stubs_below: u32) -> [u8; PATCH_BYTES] {
    let from = site.address.wrapping_add(PATCH_BYTES as u32);
    let to = site.stub.wrapping_sub(stubs_below);
    let [a, b, c, d] = to.wrapping_sub(from).to_le_bytes();
    [0xe9, a, b, c, d]
}

/// Appends the header and the tables of a file.
pub fn write_tables(
    push: &mut dyn FnMut(&[u8]),
    build_id: &[u8; BUILD_ID_BYTES],
    stubs: (u32, u32, u32),
    runs: &[PageRun],
    sites: &[Site],
) {
    push(&IMAGE_MAGIC);
    push(build_id);
    for number in [stubs.0, stubs.1, stubs.2, runs.len() as u32, sites.len() as u32] {
        push(&number.to_le_bytes());
    }
    for run in runs {
        [run.address, run.bytes, run.offset].iter().for_each(|number| push(&number.to_le_bytes()));
    }
    for site in sites {
        [site.address, site.stub].iter().for_each(|number| push(&number.to_le_bytes()));
        push(&site.original);
        push(&[0; SITE_BYTES - 8 - PATCH_BYTES]);
    }
}

/// Bytes of the header and the tables.
pub const fn table_bytes(runs: usize, sites: usize) -> usize {
    HEADER_BYTES + RUN_BYTES * runs + SITE_BYTES * sites
}
