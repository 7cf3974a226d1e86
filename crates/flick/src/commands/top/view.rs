//! The figures as a live picture.
//! Promises: the terminal is as it was afterwards, also after a panic (`ratatui::init` sees to that); a service that
//! does not answer for a moment leaves the last picture, and says so.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use flick_admin::State;
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Block, Borders, Paragraph, Row, Sparkline, Table};

use super::EVERY;
use super::figures::{self, Figures};
use super::layout::{Layout, Part};
use crate::failure::{Failure, Outcome};

/// Rates kept for the sparkline: more than any terminal is wide.
const HISTORY_MAX: usize = 512;
/// What keys do.
const KEYS: &str = "q ends; up, down, j, k, Page Up, Page Down, Home, End: more";

/// Shows what `read` gives until `q`, Escape or Ctrl-C.
pub fn show(first: State, read: &dyn Fn() -> Result<State, Failure>) -> Outcome {
    let failed = |error: io::Error| Failure::failed(format!("the terminal does not work: {error}"));
    let mut terminal = ratatui::try_init().map_err(failed)?;
    let outcome = draw_all(&mut terminal, first, read);
    ratatui::restore();
    outcome.map_err(failed)
}

/// What one event asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    /// To end.
    End,
    /// To scroll.
    Scroll(Way),
    /// To draw what there is again, for another size.
    Draw,
}

/// Where to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Down,
    Up,
    PageDown,
    PageUp,
    First,
    Last,
}

impl Way {
    /// Steps down afterwards.
    fn from(self, steps: usize, layout: &Layout) -> usize {
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

fn draw_all(
    terminal: &mut ratatui::DefaultTerminal,
    first: State,
    read: &dyn Fn() -> Result<State, Failure>,
) -> io::Result<()> {
    let mut rates = VecDeque::with_capacity(HISTORY_MAX);
    let mut figures = Figures::of(&first, None);
    let (mut before, mut is_lost, mut steps) = (first, false, 0);
    loop {
        let due = Instant::now() + EVERY;
        loop {
            let mut layout = Layout::default();
            terminal.draw(|frame| {
                layout = draw(frame, &figures, rates.make_contiguous(), is_lost, steps);
            })?;
            match wish(due)? {
                None => break,
                Some(Wish::End) => return Ok(()),
                Some(Wish::Draw) => {}
                // What a larger screen or a shorter list has taken back does not have to be gone back.
                Some(Wish::Scroll(way)) => steps = way.from(steps.min(layout.steps_max()), &layout),
            }
        }
        let Ok(now) = read() else {
            is_lost = true;
            continue;
        };
        is_lost = false;
        figures = Figures::of(&now, Some(&before));
        before = now;
        if rates.len() == HISTORY_MAX {
            rates.pop_front();
        }
        rates.push_back(figures.rate.unwrap_or(0));
    }
}

/// The next thing that is asked for; nothing until `due`.
fn wish(due: Instant) -> io::Result<Option<Wish>> {
    while let Some(left) = due.checked_duration_since(Instant::now()).filter(|left| *left > Duration::ZERO) {
        if event::poll(left)?
            && let Some(wish) = asked_by(&event::read()?)
        {
            return Ok(Some(wish));
        }
    }
    Ok(None)
}

/// In raw mode the terminal sends Ctrl-C as a key.
fn asked_by(event: &Event) -> Option<Wish> {
    let key = match event {
        Event::Resize(..) => return Some(Wish::Draw),
        Event::Key(key) if key.kind != KeyEventKind::Release => key,
        _ => return None,
    };
    Some(match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Wish::End,
        KeyCode::Char('q') | KeyCode::Esc => Wish::End,
        KeyCode::Down | KeyCode::Char('j') => Wish::Scroll(Way::Down),
        KeyCode::Up | KeyCode::Char('k') => Wish::Scroll(Way::Up),
        KeyCode::PageDown => Wish::Scroll(Way::PageDown),
        KeyCode::PageUp => Wish::Scroll(Way::PageUp),
        KeyCode::Home => Wish::Scroll(Way::First),
        KeyCode::End => Wish::Scroll(Way::Last),
        _ => return None,
    })
}

/// Draws it, scrolled by so many steps, and says what went where.
fn draw(frame: &mut Frame<'_>, figures: &Figures, rates: &[u64], is_lost: bool, steps: usize) -> Layout {
    let lengths: Vec<usize> = figures.tables.iter().map(|table| table.rows.len()).collect();
    let layout = Layout::new(frame.area().height, &lengths, steps);
    let tables = layout.parts.iter().map(|part| part.rows + layout.beside());
    let heights = [1, layout.graph].into_iter().chain(tables).map(|rows| Constraint::Length(rows as u16));
    let heights: Vec<Constraint> = heights.chain([Constraint::Fill(1), Constraint::Length(1)]).collect();
    let areas = ratatui::layout::Layout::vertical(heights).split(frame.area());
    frame.render_widget(Paragraph::new(figures.title.as_str()).bold(), areas[0]);
    if layout.graph > 0 {
        draw_rates(frame, rates, areas[1]);
    }
    for ((table, part), area) in figures.tables.iter().zip(&layout.parts).zip(&areas[2..]) {
        draw_table(frame, table, *part, layout.is_framed, *area);
    }
    let left_out = match layout.tables_left_out {
        0 => String::new(),
        1 => "1 table more; ".to_owned(),
        count => format!("{count} tables more; "),
    };
    let foot = match is_lost {
        true => Paragraph::new(format!("no answer: this is from before; {left_out}{KEYS}")).red(),
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

fn draw_table(frame: &mut Frame<'_>, table: &figures::Table, part: Part, is_framed: bool, area: Rect) {
    let widths: Vec<Constraint> = table
        .widths()
        .into_iter()
        .enumerate()
        .map(|(index, width)| match index {
            0 => Constraint::Fill(1),
            _ => Constraint::Length(width as u16),
        })
        .collect();
    let rows = table.rows.iter().skip(part.before).take(part.rows).map(|row| {
        let is_bad = row.iter().any(|cell| cell == "down" || cell.starts_with("error"));
        let line = Row::new(row.iter().map(String::as_str));
        if is_bad { line.style(Style::new().fg(Color::Red)) } else { line }
    });
    let mut block = Block::new()
        .borders(if is_framed { Borders::ALL } else { Borders::TOP })
        .title(format!(" {} ", table.title));
    let left_out = part.left_out();
    if !left_out.is_empty() {
        block = block.title(Line::from(format!(" {left_out} ")).right_aligned().bold());
    }
    let shown = Table::new(rows, widths)
        .header(Row::new(table.heads.iter().copied()).style(Style::new().dim()))
        .column_spacing(2)
        .block(block);
    frame.render_widget(shown, area);
}

#[cfg(test)]
mod tests {
    use super::{Layout, Way, Wish, asked_by};
    use ratatui::crossterm::event::{Event, KeyCode, KeyModifiers};

    fn pressed(code: KeyCode, modifiers: KeyModifiers) -> Option<Wish> {
        asked_by(&Event::Key(ratatui::crossterm::event::KeyEvent::new(code, modifiers)))
    }

    #[test]
    fn keys_go_down_and_up_and_no_further_than_there_is_something() {
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
            let Some(Wish::Scroll(way)) = pressed(code, KeyModifiers::NONE) else {
                panic!("{code:?} scrolls");
            };
            steps = way.from(steps, &layout);
            assert_eq!(steps, expected, "{code:?}");
        }
        assert_eq!(Way::Down.from(7, &layout), 5);
    }

    #[test]
    fn others_end_it_or_do_nothing() {
        for code in [KeyCode::Esc, KeyCode::Char('q')] {
            assert_eq!(pressed(code, KeyModifiers::NONE), Some(Wish::End), "{code:?}");
        }
        assert_eq!(pressed(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Wish::End));
        assert_eq!(pressed(KeyCode::Char('c'), KeyModifiers::NONE), None);
        assert_eq!(asked_by(&Event::Resize(80, 24)), Some(Wish::Draw));
    }
}
