//! Layout of `flick top`: divides the rows of the screen among the tables.
//! Promises: each table that fits with its header has at least one row, the first tables first; no row of the screen is
//! unused while a table has more rows; rows that do not fit are counted, and scrolling reaches them.
//! Not here: the contents of the tables; only their lengths matter.

/// Rows of the graph of rates, with its frame.
const GRAPH_ROWS: usize = 7;
/// The same on a small screen.
const GRAPH_ROWS_FEW: usize = 3;
/// Rows of the title and of the key help.
const OTHER_ROWS: usize = 2;
/// Rows of a frame and a header.
const FRAMED_ROWS: usize = 3;
/// Rows of a line and a header.
const LINED_ROWS: usize = 2;
/// Rows of each table that take precedence over the graph.
const ROWS_BEFORE_GRAPH: usize = 3;

/// The visible rows of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableRows {
    /// Rows before them.
    pub before: usize,
    /// Visible rows.
    pub rows: usize,
    /// Rows after them.
    pub behind: usize,
}

impl TableRows {
    /// Describes the rows that are not visible; empty if all are.
    pub fn left_out(self) -> String {
        match (self.before, self.behind) {
            (0, 0) => String::new(),
            (0, behind) => format!("{behind} more"),
            (before, 0) => format!("{before} before"),
            (before, behind) => format!("{before} before, {behind} more"),
        }
    }
}

/// The layout of a screen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Rows of the graph, with its frame; 0: none.
    pub graph: usize,
    /// Whether tables have a frame instead of a line above them.
    pub is_framed: bool,
    /// The tables that fit.
    pub tables: Vec<TableRows>,
    /// Number of tables that do not fit.
    pub tables_left_out: usize,
}

impl Layout {
    /// The layout of tables with `lengths` rows on a screen of `height` rows, scrolled by `steps` rows.
    pub fn new(height: u16, lengths: &[usize], steps: usize) -> Self {
        let height = usize::from(height).saturating_sub(OTHER_ROWS);
        let fits = |graph: usize, beside: usize, most: usize| {
            graph + lengths.iter().map(|rows| beside + rows.min(&most)).sum::<usize>() <= height
        };
        let forms = [
            (GRAPH_ROWS, FRAMED_ROWS, usize::MAX),
            (GRAPH_ROWS, LINED_ROWS, usize::MAX),
            (GRAPH_ROWS_FEW, LINED_ROWS, ROWS_BEFORE_GRAPH),
        ];
        let form = forms.into_iter().find(|(graph, beside, most)| fits(*graph, *beside, *most));
        let (graph, beside) = form.map_or((0, LINED_ROWS), |(graph, beside, _)| (graph, beside));
        let available = height - graph;
        let count = lengths.len().min(available / (beside + 1));
        let shares = shares(&lengths[..count], available - count * beside);
        let table = |(rows, all): (usize, &usize)| {
            let before = steps.min(all - rows);
            TableRows { before, rows, behind: all - rows - before }
        };
        Self {
            graph,
            is_framed: beside == FRAMED_ROWS,
            tables: shares.into_iter().zip(lengths).map(table).collect(),
            tables_left_out: lengths.len() - count,
        }
    }

    /// Rows of a table's frame and header.
    pub fn beside(&self) -> usize {
        if self.is_framed { FRAMED_ROWS } else { LINED_ROWS }
    }

    /// Largest scroll offset.
    pub fn steps_max(&self) -> usize {
        self.tables.iter().map(|table| table.before + table.behind).max().unwrap_or(0)
    }

    /// Rows of a page: scrolling by it skips no row of any table.
    pub fn page(&self) -> usize {
        let cut = self.tables.iter().filter(|table| table.before + table.behind > 0);
        cut.map(|table| table.rows).min().unwrap_or(1)
    }
}

/// Divides the available rows: round-robin, one row at a time, up to the length of each table.
fn shares(lengths: &[usize], mut available: usize) -> Vec<usize> {
    let mut shares = vec![0; lengths.len()];
    while available > 0 && shares != lengths {
        let growing = shares.iter_mut().zip(lengths).filter(|(share, rows)| **share < **rows);
        for (share, _) in growing.take(available) {
            *share += 1;
            available -= 1;
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::{Layout, OTHER_ROWS};

    /// Checks the rows of the graph, and of each table the rows before, visible and after.
    fn check(height: u16, lengths: &[usize], steps: usize, graph: usize, tables: &[(usize, usize, usize)]) {
        let layout = Layout::new(height, lengths, steps);
        let found: Vec<_> =
            layout.tables.iter().map(|table| (table.before, table.rows, table.behind)).collect();
        assert_eq!((layout.graph, found.as_slice()), (graph, tables), "{height} rows for {lengths:?}");
    }

    #[test]
    fn every_table_has_rows_on_a_small_screen() {
        check(24, &[5, 9, 4], 0, 3, &[(0, 5, 0), (0, 4, 5), (0, 4, 0)]);
        assert_eq!(Layout::new(24, &[5, 9, 4], 0).tables[1].left_out(), "5 more");
    }

    #[test]
    fn everything_fits_on_a_large_screen() {
        check(40, &[5, 9, 4], 0, 7, &[(0, 5, 0), (0, 9, 0), (0, 4, 0)]);
        assert!(Layout::new(40, &[5, 9, 4], 0).is_framed);
        // Frames are dropped first, then a part of the graph, then the graph.
        check(33, &[5, 9, 4], 0, 7, &[(0, 5, 0), (0, 9, 0), (0, 4, 0)]);
        assert!(!Layout::new(33, &[5, 9, 4], 0).is_framed);
        check(32, &[5, 9, 4], 0, 3, &[(0, 5, 0), (0, 9, 0), (0, 4, 0)]);
        check(19, &[5, 9, 4], 0, 0, &[(0, 4, 1), (0, 4, 5), (0, 3, 1)]);
    }

    #[test]
    fn scrolling_reaches_every_row() {
        check(24, &[5, 9, 4], 2, 3, &[(0, 5, 0), (2, 4, 3), (0, 4, 0)]);
        assert_eq!(Layout::new(24, &[5, 9, 4], 2).tables[1].left_out(), "2 before, 3 more");
        check(24, &[5, 9, 4], 99, 3, &[(0, 5, 0), (5, 4, 0), (0, 4, 0)]);
        assert_eq!(Layout::new(24, &[5, 9, 4], 99).tables[1].left_out(), "5 before");
        let layout = Layout::new(24, &[5, 9, 4], 2);
        assert_eq!((layout.steps_max(), layout.page()), (5, 4));
        let whole = Layout::new(40, &[5, 9, 4], 0);
        assert_eq!((whole.steps_max(), whole.page()), (0, 1));
    }

    #[test]
    fn tables_that_do_not_fit_are_counted() {
        check(17, &[5, 9, 4, 2, 10], 0, 0, &[(0, 1, 4), (0, 1, 8), (0, 1, 3), (0, 1, 1), (0, 1, 9)]);
        check(16, &[5, 9, 4, 2, 10], 0, 0, &[(0, 2, 3), (0, 2, 7), (0, 1, 3), (0, 1, 1)]);
        assert_eq!(Layout::new(16, &[5, 9, 4, 2, 10], 0).tables_left_out, 1);
        for height in 0..=4 {
            check(height, &[5, 9], 0, 0, &[]);
            assert_eq!(Layout::new(height, &[5, 9], 0).tables_left_out, 2);
        }
        check(24, &[], 0, 7, &[]);
    }

    #[test]
    fn rows_are_used_exactly_once() {
        for height in 0..120 {
            for tables in [&[5, 9, 4][..], &[1], &[256, 1024, 1024, 40, 10], &[1, 1, 300]] {
                let layout = Layout::new(height, tables, 3);
                let own: usize = layout.tables.iter().map(|table| table.rows).sum();
                let used = layout.graph + own + layout.beside() * layout.tables.len();
                let available = usize::from(height).saturating_sub(OTHER_ROWS);
                assert!(used <= available, "{height} rows for {tables:?}: {layout:?}");
                let is_cut = layout.tables.iter().any(|table| table.before + table.behind > 0);
                assert!(!is_cut || used == available, "{height} rows for {tables:?}: {layout:?}");
                assert!(layout.tables.iter().all(|table| table.rows > 0), "{height} rows for {tables:?}");
            }
        }
    }
}
