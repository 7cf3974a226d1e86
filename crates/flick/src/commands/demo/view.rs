//! The demonstration as a live picture: requests each second, latency, and each backend's share.
//! Promises: the terminal is restored at the end, also after a panic (`ratatui::init`).

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use flick_load::load::LoadSnapshot;
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Gauge, Paragraph, Sparkline};

use super::plain::shares;
use super::{PROGRAM, Scene};

/// Time between two pictures.
const FRAME_TIME: Duration = Duration::from_millis(100);
/// Pictures kept for the sparkline: more than any terminal is wide.
const HISTORY_MAX: usize = 512;

/// Shows the run until it ends, or `q`, Escape or Ctrl-C.
pub fn show(scene: &Scene<'_>) -> io::Result<()> {
    let mut terminal = ratatui::try_init()?;
    let outcome = draw_all(scene, &mut terminal);
    ratatui::restore();
    outcome
}

fn draw_all(scene: &Scene<'_>, terminal: &mut ratatui::DefaultTerminal) -> io::Result<()> {
    let progress = scene.run.progress();
    let start = Instant::now();
    let mut rates: VecDeque<u64> = VecDeque::with_capacity(HISTORY_MAX);
    let mut before = progress.snapshot();
    while !scene.run.is_finished() && scene.signals.try_recv().is_err() {
        if event::poll(FRAME_TIME)? && event::read().is_ok_and(|event| ends(&event)) {
            return Ok(());
        }
        let now = progress.snapshot();
        if now.at.duration_since(before.at) < FRAME_TIME / 2 {
            continue;
        }
        if rates.len() == HISTORY_MAX {
            rates.pop_front();
        }
        rates.push_back(now.rate_since(&before) as u64);
        before = now;
        let picture =
            Picture { scene, rates: &rates, now: &now, shares: shares(scene), elapsed: start.elapsed() };
        terminal.draw(|frame| picture.draw(frame))?;
    }
    Ok(())
}

/// In raw mode the terminal sends Ctrl-C as a key.
fn ends(event: &Event) -> bool {
    let Event::Key(key) = event else { return false };
    let is_ctrl_c = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    is_ctrl_c || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc)
}

/// One picture.
struct Picture<'a> {
    scene: &'a Scene<'a>,
    rates: &'a VecDeque<u64>,
    now: &'a LoadSnapshot,
    shares: Vec<f64>,
    elapsed: Duration,
}

impl Picture<'_> {
    fn draw(&self, frame: &mut Frame<'_>) {
        let backends = u16::try_from(self.shares.len()).unwrap_or(u16::MAX);
        let rows = [
            Constraint::Length(2),
            Constraint::Min(5),
            Constraint::Length(4),
            Constraint::Length(backends.saturating_add(2)),
            Constraint::Length(1),
        ];
        let [title, rate, latency, shares, foot] = Layout::vertical(rows).areas(frame.area());
        frame.render_widget(self.title(), title);
        self.draw_rate(frame, rate);
        frame.render_widget(self.latency(), latency);
        self.draw_shares(frame, shares);
        let left = self.scene.length.saturating_sub(self.elapsed).as_secs();
        frame.render_widget(Paragraph::new(format!("{left} s to go, q ends it")).dim(), foot);
    }

    fn title(&self) -> Paragraph<'_> {
        let scene = self.scene;
        let what = format!(
            "  {} clients -> one proxy of {} lines ({}) -> {} {}",
            scene.connections,
            PROGRAM.lines().filter(|line| !line.trim().is_empty()).count(),
            scene.platform.io(),
            self.shares.len(),
            scene.backends
        );
        Paragraph::new(Line::from(vec![Span::from("flick demo").bold(), Span::from(what)]))
    }

    fn draw_rate(&self, frame: &mut Frame<'_>, area: Rect) {
        let latest = self.rates.back().copied().unwrap_or(0);
        let block = Block::bordered().title(format!(" {latest} requests/s "));
        let width = usize::from(area.width.saturating_sub(2));
        let skipped = self.rates.len().saturating_sub(width);
        let data: Vec<u64> = self.rates.iter().skip(skipped).copied().collect();
        let line = Sparkline::default().block(block).data(&data).style(Style::new().fg(Color::Cyan));
        frame.render_widget(line, area);
    }

    fn latency(&self) -> Paragraph<'_> {
        let (latency, counts) = (&self.now.latency, &self.now.counts);
        let figures = format!(
            "p50 {} us   p90 {} us   p99 {} us   p99.9 {} us   max {} us",
            latency.p50_us, latency.p90_us, latency.p99_us, latency.p999_us, latency.max_us
        );
        let faults = counts.faults();
        let color = if faults == 0 { Color::Green } else { Color::Red };
        let checked = Span::styled(format!("{} replies checked, {faults} errors", counts.replies), color);
        Paragraph::new(Line::from(vec![Span::from(figures), checked]))
            .block(Block::bordered().title(" latency "))
    }

    fn draw_shares(&self, frame: &mut Frame<'_>, area: Rect) {
        let block = Block::bordered().title(" share of each backend ");
        let inner = block.inner(area);
        frame.render_widget(block, area);
        let rows = Layout::vertical(self.shares.iter().map(|_| Constraint::Length(1))).split(inner);
        for ((index, share), row) in self.shares.iter().enumerate().zip(rows.iter()) {
            let gauge = Gauge::default()
                .ratio(share.clamp(0.0, 1.0))
                .label(format!("backends[{index}]  {:.1} %", share * 100.0))
                .gauge_style(Style::new().fg(Color::Blue));
            frame.render_widget(gauge, *row);
        }
    }
}
