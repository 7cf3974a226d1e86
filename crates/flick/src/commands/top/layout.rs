//! How the rows of a screen are shared among the tables of `flick top`.
//! Promises: each table has a row at least, as long as there is room for that with its head, the first ones before the others; no
//! row of the screen stays empty while a table has more to show; what is not there is counted, and scrolling reaches it.
//! Refuses: to look at what is in the tables: their lengths decide.

/// Rows of the graph of rates, with its frame.
const GRAPH_ROWS: usize = 7;
/// The same where rows are few.
const GRAPH_ROWS_FEW: usize = 3;
/// The title, and the line of keys.
const OTHER_ROWS: usize = 2;
/// Of a table with a frame: the frame and the heads of its columns.
const FRAMED_ROWS: usize = 3;
/// Of a table under a line: the line and the heads.
const LINED_ROWS: usize = 2;
/// Rows of each table that are worth more than the graph.
const ROWS_BEFORE_GRAPH: usize = 3;

/// What is shown of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Rows that stand before it.
    pub before: usize,
    /// Rows that are shown.
    pub rows: usize,
    /// Rows that stand behind it.
    pub behind: usize,
}

impl Part {
    /// What to say of those that are left out; nothing where none is.
    pub fn left_out(self) -> String {
        match (self.before, self.behind) {
            (0, 0) => String::new(),
            (0, behind) => format!("{behind} more"),
            (before, 0) => format!("{before} before"),
            (before, behind) => format!("{before} before, {behind} more"),
        }
    }
}

/// A screen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Rows of the graph, with its frame; 0: none.
    pub graph: usize,
    /// Whether tables have a frame, rather than a line above them.
    pub is_framed: bool,
    /// By table, as far as there is room for any of it.
    pub parts: Vec<Part>,
    /// Tables behind those, for which there is none.
    pub tables_left_out: usize,
}

impl Layout {
    /// For tables of so many rows each on a screen of that height, after so many steps down.
    pub fn new(height: u16, tables: &[usize], steps: usize) -> Self {
        let height = usize::from(height).saturating_sub(OTHER_ROWS);
        let fits = |graph: usize, beside: usize, most: usize| {
            graph + tables.iter().map(|rows| beside + rows.min(&most)).sum::<usize>() <= height
        };
        let forms = [
            (GRAPH_ROWS, FRAMED_ROWS, usize::MAX),
            (GRAPH_ROWS, LINED_ROWS, usize::MAX),
            (GRAPH_ROWS_FEW, LINED_ROWS, ROWS_BEFORE_GRAPH),
        ];
        let form = forms.into_iter().find(|(graph, beside, most)| fits(*graph, *beside, *most));
        let (graph, beside) = form.map_or((0, LINED_ROWS), |(graph, beside, _)| (graph, beside));
        let room = height - graph;
        let count = tables.len().min(room / (beside + 1));
        let shares = shares(&tables[..count], room - count * beside);
        let part = |(rows, all): (usize, &usize)| {
            let before = steps.min(all - rows);
            Part { before, rows, behind: all - rows - before }
        };
        Self {
            graph,
            is_framed: beside == FRAMED_ROWS,
            parts: shares.into_iter().zip(tables).map(part).collect(),
            tables_left_out: tables.len() - count,
        }
    }

    /// Rows of a table that are not its own.
    pub fn beside(&self) -> usize {
        if self.is_framed { FRAMED_ROWS } else { LINED_ROWS }
    }

    /// Steps down behind which there is nothing new.
    pub fn steps_max(&self) -> usize {
        self.parts.iter().map(|part| part.before + part.behind).max().unwrap_or(0)
    }

    /// Steps of a page: so few that none of the tables leaves a row out.
    pub fn page(&self) -> usize {
        let cut = self.parts.iter().filter(|part| part.before + part.behind > 0);
        cut.map(|part| part.rows).min().unwrap_or(1)
    }
}

/// Gives each table a row in its turn, until all have what they want or nothing is left.
fn shares(tables: &[usize], mut room: usize) -> Vec<usize> {
    let mut shares = vec![0; tables.len()];
    while room > 0 && shares != tables {
        for (share, _) in shares.iter_mut().zip(tables).filter(|(share, rows)| **share < **rows).take(room) {
            *share += 1;
            room -= 1;
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::{Layout, OTHER_ROWS};

    /// Rows of the graph, and by table what is before, shown, and behind.
    fn check(height: u16, tables: &[usize], steps: usize, graph: usize, parts: &[(usize, usize, usize)]) {
        let layout = Layout::new(height, tables, steps);
        let found: Vec<_> = layout.parts.iter().map(|part| (part.before, part.rows, part.behind)).collect();
        assert_eq!((layout.graph, found.as_slice()), (graph, parts), "{height} rows for {tables:?}");
    }

    #[test]
    fn five_services_left_no_row_of_a_small_screen_to_their_backends() {
        check(24, &[5, 9, 4], 0, 3, &[(0, 5, 0), (0, 4, 5), (0, 4, 0)]);
        assert_eq!(Layout::new(24, &[5, 9, 4], 0).parts[1].left_out(), "5 more");
    }

    #[test]
    fn with_room_for_all_nothing_is_left_out() {
        check(40, &[5, 9, 4], 0, 7, &[(0, 5, 0), (0, 9, 0), (0, 4, 0)]);
        assert!(Layout::new(40, &[5, 9, 4], 0).is_framed);
        // Frames go first, then most of the graph, then all of it.
        check(33, &[5, 9, 4], 0, 7, &[(0, 5, 0), (0, 9, 0), (0, 4, 0)]);
        assert!(!Layout::new(33, &[5, 9, 4], 0).is_framed);
        check(32, &[5, 9, 4], 0, 3, &[(0, 5, 0), (0, 9, 0), (0, 4, 0)]);
        check(19, &[5, 9, 4], 0, 0, &[(0, 4, 1), (0, 4, 5), (0, 3, 1)]);
    }

    #[test]
    fn steps_reach_every_row_and_end_there() {
        check(24, &[5, 9, 4], 2, 3, &[(0, 5, 0), (2, 4, 3), (0, 4, 0)]);
        assert_eq!(Layout::new(24, &[5, 9, 4], 2).parts[1].left_out(), "2 before, 3 more");
        check(24, &[5, 9, 4], 99, 3, &[(0, 5, 0), (5, 4, 0), (0, 4, 0)]);
        assert_eq!(Layout::new(24, &[5, 9, 4], 99).parts[1].left_out(), "5 before");
        let layout = Layout::new(24, &[5, 9, 4], 2);
        assert_eq!((layout.steps_max(), layout.page()), (5, 4));
        let whole = Layout::new(40, &[5, 9, 4], 0);
        assert_eq!((whole.steps_max(), whole.page()), (0, 1));
    }

    #[test]
    fn what_there_is_no_room_for_is_counted() {
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
    fn no_row_is_promised_twice_and_none_is_wasted() {
        for height in 0..120 {
            for tables in [&[5, 9, 4][..], &[1], &[256, 1024, 1024, 40, 10], &[1, 1, 300]] {
                let layout = Layout::new(height, tables, 3);
                let own: usize = layout.parts.iter().map(|part| part.rows).sum();
                let used = layout.graph + own + layout.beside() * layout.parts.len();
                let room = usize::from(height).saturating_sub(OTHER_ROWS);
                assert!(used <= room, "{height} rows for {tables:?}: {layout:?}");
                let is_cut = layout.parts.iter().any(|part| part.before + part.behind > 0);
                assert!(!is_cut || used == room, "{height} rows for {tables:?}: {layout:?}");
                assert!(layout.parts.iter().all(|part| part.rows > 0), "{height} rows for {tables:?}");
            }
        }
    }
}
