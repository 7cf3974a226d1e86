//! The terminal interface of `flick top`.
//! Promises: restores the terminal, also after a panic (`ratatui::init`); while the service does not respond, the last
//! figures stay, with a note, and keys work: another thread waits for it.

use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::time::{Duration, Instant};

use flick_check::counted;
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Block, Borders, Paragraph, Row, Sparkline, Table};

use super::figures::{self, Figures};
use super::layout::{Layout, TableRows};
use super::{INTERVAL, Observed};
use crate::failure::{Failure, Outcome};

/// Rates kept for the sparkline: more than the width of any terminal.
const HISTORY_MAX: usize = 512;
/// Time between two looks whether the service has responded.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// Columns of the screen between two columns of a table.
const COLUMN_SPACING: usize = 2;
/// Width that the names of a table have at least, unless all are shorter.
const NAME_WIDTH_MIN: usize = 20;
/// The keys.
const KEYS: &str = "q quits; up, down, j, k, Page Up, Page Down, Home, End scroll";

/// Shows the states that `read` returns, until `q`, Escape or Ctrl-C.
pub fn show(first: Observed, read: impl Fn() -> Result<Observed, Failure> + Send + 'static) -> Outcome {
    let failed = |error: io::Error| Failure::failed(format!("the terminal does not work: {error}"));
    let mut terminal = ratatui::try_init().map_err(failed)?;
    let outcome = draw_all(&mut terminal, first, &Reader::start(read));
    ratatui::restore();
    outcome.map_err(failed)
}

/// A thread that reads the states.
struct Reader {
    /// Asks for the next state.
    ask: Sender<()>,
    /// The states; `None`: the service did not respond.
    states: Receiver<Option<Observed>>,
}

impl Reader {
    fn start(read: impl Fn() -> Result<Observed, Failure> + Send + 'static) -> Self {
        let ((ask, asked), (states, read_states)) = (mpsc::channel(), mpsc::channel());
        std::thread::spawn(move || while asked.recv().is_ok() && states.send(read().ok()).is_ok() {});
        Self { ask, states: read_states }
    }
}

/// Whether a state was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Pausing,
    Reading,
}

/// The action of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    /// Quit.
    Quit,
    /// Scroll the tables.
    Scroll(Direction),
    /// Draw again, for another size.
    Redraw,
}

/// A scroll direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Down,
    Up,
    PageDown,
    PageUp,
    First,
    Last,
}

impl Direction {
    /// The scroll offset afterwards.
    fn apply(self, steps: usize, layout: &Layout) -> usize {
        let (page, last) = (layout.page(), layout.steps_max());
        let steps = match self {
            Self::Down => steps + 1,
            Self::Up => steps.saturating_sub(1),
            Self::PageDown => steps + page,
            Self::PageUp => steps.saturating_sub(page),
            Self::First => 0,
            Self::Last => last,
        };
        steps.min(last)
    }
}

fn draw_all(terminal: &mut ratatui::DefaultTerminal, first: Observed, reader: &Reader) -> io::Result<()> {
    let mut rates = VecDeque::with_capacity(HISTORY_MAX);
    let mut figures = Figures::of(&first.state, None, &first.connections);
    let (mut before, mut is_stale, mut steps) = (first, false, 0);
    let (mut phase, mut due) = (Phase::Pausing, Instant::now() + INTERVAL);
    let (mut layout, mut is_drawn) = (Layout::default(), false);
    loop {
        if !is_drawn {
            terminal.draw(|frame| {
                layout = draw(frame, &figures, rates.make_contiguous(), is_stale, steps);
            })?;
        }
        is_drawn = false;
        match (next_action(due)?, phase) {
            (Some(Action::Quit), _) => return Ok(()),
            (Some(Action::Redraw), _) => {}
            // A larger screen or a shorter table may have reduced the offset.
            (Some(Action::Scroll(direction)), _) => {
                steps = direction.apply(steps.min(layout.steps_max()), &layout);
            }
            (None, Phase::Pausing) => {
                // Without its thread there are no states.
                let _ = reader.ask.send(());
                (phase, due) = (Phase::Reading, Instant::now() + LOOK_INTERVAL);
            }
            (None, Phase::Reading) => {
                match reader.states.try_recv() {
                    Err(TryRecvError::Empty) => {
                        is_drawn = true;
                        due = Instant::now() + LOOK_INTERVAL;
                        continue;
                    }
                    Ok(None) | Err(TryRecvError::Disconnected) => is_stale = true,
                    Ok(Some(now)) => {
                        is_stale = false;
                        figures = Figures::of(&now.state, Some(&before.state), &now.connections);
                        before = now;
                        if rates.len() == HISTORY_MAX {
                            rates.pop_front();
                        }
                        rates.push_back(figures.rate.unwrap_or(0));
                    }
                }
                (phase, due) = (Phase::Pausing, Instant::now() + INTERVAL);
            }
        }
    }
}

/// The next action; `None` if there is none until `due`.
fn next_action(due: Instant) -> io::Result<Option<Action>> {
    while let Some(left) = due.checked_duration_since(Instant::now()).filter(|left| *left > Duration::ZERO) {
        if event::poll(left)?
            && let Some(action) = action_of(&event::read()?)
        {
            return Ok(Some(action));
        }
    }
    Ok(None)
}

/// The action of an event. In raw mode the terminal sends Ctrl-C as a key.
fn action_of(event: &Event) -> Option<Action> {
    let key = match event {
        Event::Resize(..) => return Some(Action::Redraw),
        Event::Key(key) if key.kind != KeyEventKind::Release => key,
        _ => return None,
    };
    Some(match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Action::Quit,
        KeyCode::Char('q') | KeyCode::Esc => Action::Quit,
        KeyCode::Down | KeyCode::Char('j') => Action::Scroll(Direction::Down),
        KeyCode::Up | KeyCode::Char('k') => Action::Scroll(Direction::Up),
        KeyCode::PageDown => Action::Scroll(Direction::PageDown),
        KeyCode::PageUp => Action::Scroll(Direction::PageUp),
        KeyCode::Home => Action::Scroll(Direction::First),
        KeyCode::End => Action::Scroll(Direction::Last),
        _ => return None,
    })
}

/// Draws the figures, scrolled by `steps` rows. Returns the layout.
fn draw(frame: &mut Frame<'_>, figures: &Figures, rates: &[u64], is_stale: bool, steps: usize) -> Layout {
    let lengths: Vec<usize> = figures.tables.iter().map(|table| table.rows.len()).collect();
    let layout = Layout::new(frame.area().height, &lengths, steps);
    let tables = layout.tables.iter().map(|table| table.rows + layout.beside());
    let heights = [1, layout.graph].into_iter().chain(tables).map(|rows| Constraint::Length(rows as u16));
    let heights: Vec<Constraint> = heights.chain([Constraint::Fill(1), Constraint::Length(1)]).collect();
    let areas = ratatui::layout::Layout::vertical(heights).split(frame.area());
    frame.render_widget(Paragraph::new(figures.title.as_str()).bold(), areas[0]);
    if layout.graph > 0 {
        draw_rates(frame, rates, areas[1]);
    }
    for ((table, visible), area) in figures.tables.iter().zip(&layout.tables).zip(&areas[2..]) {
        draw_table(frame, table, *visible, layout.is_framed, *area);
    }
    let left_out = match layout.tables_left_out {
        0 => String::new(),
        1 => "1 more table; ".to_owned(),
        count => format!("{count} more tables; "),
    };
    let foot = match is_stale {
        true => Paragraph::new(format!("no response, the figures are old; {left_out}{KEYS}")).red(),
        false => Paragraph::new(format!("{left_out}{KEYS}")).dim(),
    };
    frame.render_widget(foot, areas[areas.len() - 1]);
    layout
}

fn draw_rates(frame: &mut Frame<'_>, rates: &[u64], area: Rect) {
    let latest = rates.last().copied().unwrap_or(0);
    let block = Block::bordered().title(format!(" {latest} requests/s "));
    let skipped = rates.len().saturating_sub(usize::from(area.width.saturating_sub(2)));
    let line = Sparkline::default().block(block).data(&rates[skipped..]).style(Style::new().fg(Color::Cyan));
    frame.render_widget(line, area);
}

/// The number of columns beside which the first one, which has names, keeps `NAME_WIDTH_MIN`.
fn columns_that_fit(widths: &[usize], available: usize) -> usize {
    let Some((name, others)) = widths.split_first() else { return 0 };
    let mut used = (*name).min(NAME_WIDTH_MIN);
    let fits = |width: &&usize| {
        used += COLUMN_SPACING + **width;
        used <= available
    };
    1 + others.iter().take_while(fits).count()
}

fn draw_table(
    frame: &mut Frame<'_>,
    table: &figures::FigureTable,
    visible: TableRows,
    is_framed: bool,
    area: Rect,
) {
    let all = table.widths();
    let inner = area.width.saturating_sub(if is_framed { 2 } else { 0 });
    let count = columns_that_fit(&all, usize::from(inner));
    let widths: Vec<Constraint> = all[..count]
        .iter()
        .copied()
        .enumerate()
        .map(|(index, width)| match index {
            0 => Constraint::Fill(1),
            _ => Constraint::Length(width as u16),
        })
        .collect();
    let rows = table.rows.iter().skip(visible.before).take(visible.rows).map(|row| {
        let is_bad = row.iter().any(|cell| cell == "down" || cell.starts_with("error"));
        let line = Row::new(row.iter().map(String::as_str));
        if is_bad { line.style(Style::new().fg(Color::Red)) } else { line }
    });
    let mut block = Block::new()
        .borders(if is_framed { Borders::ALL } else { Borders::TOP })
        .title(format!(" {} ", table.title));
    let left_out = visible.left_out();
    if count < all.len() {
        let columns = counted(all.len() - count, "column");
        block = block.title(Line::from(format!(" {columns} cut ")).right_aligned().bold());
    }
    if !left_out.is_empty() {
        block = block.title(Line::from(format!(" {left_out} ")).right_aligned().bold());
    }
    let shown = Table::new(rows, widths)
        .header(Row::new(table.heads.iter().copied()).style(Style::new().dim()))
        .column_spacing(COLUMN_SPACING as u16)
        .block(block);
    frame.render_widget(shown, area);
}

#[cfg(test)]
mod tests {
    use super::{Action, Direction, Layout, action_of, columns_that_fit};
    use ratatui::crossterm::event::{Event, KeyCode, KeyModifiers};

    fn pressed(code: KeyCode, modifiers: KeyModifiers) -> Option<Action> {
        action_of(&Event::Key(ratatui::crossterm::event::KeyEvent::new(code, modifiers)))
    }

    #[test]
    fn keys_scroll_within_the_tables() {
        let layout = Layout::new(24, &[5, 9, 4], 0);
        let mut steps = 0;
        for (code, expected) in [
            (KeyCode::Up, 0),
            (KeyCode::Down, 1),
            (KeyCode::Char('j'), 2),
            (KeyCode::Char('k'), 1),
            (KeyCode::PageDown, 5),
            (KeyCode::PageDown, 5),
            (KeyCode::PageUp, 1),
            (KeyCode::PageUp, 0),
            (KeyCode::End, 5),
            (KeyCode::Down, 5),
            (KeyCode::Home, 0),
        ] {
            let Some(Action::Scroll(direction)) = pressed(code, KeyModifiers::NONE) else {
                panic!("{code:?} scrolls");
            };
            steps = direction.apply(steps, &layout);
            assert_eq!(steps, expected, "{code:?}");
        }
        assert_eq!(Direction::Down.apply(7, &layout), 5);
    }

    /// The last columns of a table took the width of its names on a terminal of 80 columns.
    #[test]
    fn names_keep_their_width_on_a_narrow_screen() {
        let widths = [36, 5, 10, 3, 3, 8, 5];
        for (available, expected) in [(100, 7), (66, 7), (65, 6), (40, 3), (27, 2), (26, 1), (0, 1)] {
            assert_eq!(columns_that_fit(&widths, available), expected, "{available}");
        }
        assert_eq!(columns_that_fit(&[8, 10], 20), 2, "short names need no more than they have");
    }

    #[test]
    fn other_keys_quit_or_do_nothing() {
        for code in [KeyCode::Esc, KeyCode::Char('q')] {
            assert_eq!(pressed(code, KeyModifiers::NONE), Some(Action::Quit), "{code:?}");
        }
        assert_eq!(pressed(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Action::Quit));
        assert_eq!(pressed(KeyCode::Char('c'), KeyModifiers::NONE), None);
        assert_eq!(action_of(&Event::Resize(80, 24)), Some(Action::Redraw));
    }
}
