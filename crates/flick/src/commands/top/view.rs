//! The figures as a live picture.
//! Promises: the terminal is as it was afterwards, also after a panic (`ratatui::init` sees to that); a service that
//! does not answer for a moment leaves the last picture, and says so.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use flick_admin::State;
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::widgets::{Block, Paragraph, Row, Sparkline, Table};

use super::EVERY;
use super::figures::{self, Figures};
use crate::failure::{Failure, Outcome};

/// Rates kept for the sparkline: more than any terminal is wide.
const HISTORY_MAX: usize = 512;
/// Rows of the sparkline with its frame.
const SPARK_ROWS: u16 = 7;

/// Shows what `read` gives until `q`, Escape or Ctrl-C.
pub fn show(first: State, read: &dyn Fn() -> Result<State, Failure>) -> Outcome {
    let failed = |error: io::Error| Failure::failed(format!("the terminal does not work: {error}"));
    let mut terminal = ratatui::try_init().map_err(failed)?;
    let outcome = draw_all(&mut terminal, first, read);
    ratatui::restore();
    outcome.map_err(failed)
}

fn draw_all(
    terminal: &mut ratatui::DefaultTerminal,
    first: State,
    read: &dyn Fn() -> Result<State, Failure>,
) -> io::Result<()> {
    let mut rates = VecDeque::with_capacity(HISTORY_MAX);
    let mut figures = Figures::of(&first, None);
    let (mut before, mut is_lost) = (first, false);
    loop {
        terminal.draw(|frame| draw(frame, &figures, rates.make_contiguous(), is_lost))?;
        let due = Instant::now() + EVERY;
        while let Some(left) =
            due.checked_duration_since(Instant::now()).filter(|left| *left > Duration::ZERO)
        {
            if event::poll(left)? && ends(&event::read()?) {
                return Ok(());
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

/// In raw mode the terminal sends Ctrl-C as a key.
fn ends(event: &Event) -> bool {
    let Event::Key(key) = event else { return false };
    let is_ctrl_c = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    is_ctrl_c || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc)
}

fn draw(frame: &mut Frame<'_>, figures: &Figures, rates: &[u64], is_lost: bool) {
    let heights = figures.tables.iter().map(|table| Constraint::Length(table.rows.len() as u16 + 3));
    let rows: Vec<Constraint> = [Constraint::Length(1), Constraint::Length(SPARK_ROWS)]
        .into_iter()
        .chain(heights)
        .chain([Constraint::Fill(1), Constraint::Length(1)])
        .collect();
    let areas = Layout::vertical(rows).split(frame.area());
    frame.render_widget(Paragraph::new(figures.title.as_str()).bold(), areas[0]);
    draw_rates(frame, rates, areas[1]);
    for (table, area) in figures.tables.iter().zip(&areas[2..]) {
        draw_table(frame, table, *area);
    }
    let foot = match is_lost {
        true => Paragraph::new("no answer: this is from before; q ends").red(),
        false => Paragraph::new("q ends").dim(),
    };
    frame.render_widget(foot, areas[areas.len() - 1]);
}

fn draw_rates(frame: &mut Frame<'_>, rates: &[u64], area: Rect) {
    let latest = rates.last().copied().unwrap_or(0);
    let block = Block::bordered().title(format!(" {latest} requests/s "));
    let skipped = rates.len().saturating_sub(usize::from(area.width.saturating_sub(2)));
    let line = Sparkline::default().block(block).data(&rates[skipped..]).style(Style::new().fg(Color::Cyan));
    frame.render_widget(line, area);
}

fn draw_table(frame: &mut Frame<'_>, table: &figures::Table, area: Rect) {
    let widths: Vec<Constraint> = table
        .widths()
        .into_iter()
        .enumerate()
        .map(|(index, width)| match index {
            0 => Constraint::Fill(1),
            _ => Constraint::Length(width as u16),
        })
        .collect();
    let rows = table.rows.iter().map(|row| {
        let is_bad = row.iter().any(|cell| cell == "down" || cell.starts_with("error"));
        let line = Row::new(row.iter().map(String::as_str));
        if is_bad { line.style(Style::new().fg(Color::Red)) } else { line }
    });
    let shown = Table::new(rows, widths)
        .header(Row::new(table.heads.iter().copied()).style(Style::new().dim()))
        .column_spacing(2)
        .block(Block::bordered().title(format!(" {} ", table.title)));
    frame.render_widget(shown, area);
}
