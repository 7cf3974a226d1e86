//! The graph as a picture that needs nothing but a browser: three columns: what starts, what runs, what leaves or
//! stays.

use std::fmt::Write as _;

use super::{EdgeKind, GraphTaskKind, TaskGraph};

/// Size of a task's box, in pixels.
const BOX: (usize, usize) = (190, 54);
/// Distance from one box to the next, in pixels.
const GAP: (usize, usize) = (110, 26);
/// Room around everything, in pixels.
const MARGIN: usize = 24;
/// Room for the title and the heads of the columns, in pixels.
const HEAD: usize = 64;

/// Writes a graph as SVG.
pub fn to_svg(graph: &TaskGraph) -> String {
    let rows = (0..3).map(|column| rows_of(graph, column)).max().unwrap_or(0);
    let width = 2 * MARGIN + 3 * BOX.0 + 2 * GAP.0;
    let height = MARGIN + HEAD + rows * (BOX.1 + GAP.1);
    let positions = positions(graph, rows);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" role=\"img\">\n<title>Task graph of {}</title>\n{STYLE}",
        escaped(&graph.name)
    );
    let _ = writeln!(text, "<rect class=\"page\" width=\"{width}\" height=\"{height}\"/>");
    let _ = writeln!(text, "<text class=\"title\" x=\"{MARGIN}\" y=\"30\">{}</text>", escaped(&graph.name));
    for (column, head) in
        ["input tasks and events", "compute tasks", "output tasks and state"].into_iter().enumerate()
    {
        let x = MARGIN + column * (BOX.0 + GAP.0);
        let _ = writeln!(text, "<text class=\"head\" x=\"{x}\" y=\"{}\">{head}</text>", HEAD - 8);
    }
    for edge in &graph.edges {
        let ((x, y), (to_x, to_y)) = (positions[edge.from], positions[edge.to]);
        let (x, y, to_x, to_y) = (x + BOX.0, y + BOX.1 / 2, to_x, to_y + BOX.1 / 2);
        let middle = x.midpoint(to_x);
        let (class, marks) = match edge.kind {
            EdgeKind::Sends => ("channel", " marker-end=\"url(#arrow)\""),
            EdgeKind::Asks => ("channel ask", " marker-start=\"url(#arrow)\" marker-end=\"url(#arrow)\""),
            EdgeKind::Keeps => ("keeps", ""),
        };
        let _ = writeln!(
            text,
            "<path class=\"{class}\" d=\"M{x} {y}C{middle} {y} {middle} {to_y} {to_x} {to_y}\"{marks}/>"
        );
    }
    for (task, (x, y)) in graph.tasks.iter().zip(positions) {
        let (class, radius) = match task.kind {
            GraphTaskKind::Input | GraphTaskKind::Output => ("io", 3),
            GraphTaskKind::Event => ("event", 3),
            GraphTaskKind::Compute | GraphTaskKind::Merge => ("compute", 12),
            GraphTaskKind::State => ("state", 20),
        };
        let (w, h) = BOX;
        let center = x + w / 2;
        let _ = writeln!(
            text,
            "<rect class=\"task {class}\" x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\" rx=\"{radius}\"/>\n\
             <text class=\"name\" x=\"{center}\" y=\"{}\">{}</text>\n\
             <text class=\"detail\" x=\"{center}\" y=\"{}\">{}</text>",
            y + 23,
            escaped(&task.name),
            y + 42,
            escaped(&task.detail)
        );
    }
    text.push_str("</svg>\n");
    text
}

const STYLE: &str = "<style>
text{font-family:system-ui,sans-serif;fill:#1d2733}
.page{fill:#fff}.title{font-size:18px;font-weight:600}.head{font-size:12px;fill:#5a6775}
.name{font-size:14px;text-anchor:middle}.detail{font-size:12px;fill:#5a6775;text-anchor:middle}
.task{stroke:#5a6775}.io{fill:#eaf1f8}.compute{fill:#fdf3dc}.event{fill:#f6e8ef}.state{fill:#e9f3e6}
.channel{fill:none;stroke:#5a6775;stroke-width:1.5}.ask{stroke:#a04e1e}
.keeps{fill:none;stroke:#6f8f66;stroke-width:1.5;stroke-dasharray:5 4}
</style>
<defs><marker id=\"arrow\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" \
orient=\"auto-start-reverse\"><path d=\"M0 0L8 4L0 8z\" fill=\"#5a6775\"/></marker></defs>
";

/// Left upper corner of each task, in pixels; short columns are centred on the longest.
fn positions(graph: &TaskGraph, rows: usize) -> Vec<(usize, usize)> {
    let step = BOX.1 + GAP.1;
    let mut next = [0, 1, 2].map(|column| HEAD + (rows - rows_of(graph, column)) * step / 2);
    let position = |task: &super::GraphTask| {
        let column = task.kind.column();
        let y = next[column];
        next[column] += step;
        (MARGIN + column * (BOX.0 + GAP.0), y)
    };
    graph.tasks.iter().map(position).collect()
}

fn rows_of(graph: &TaskGraph, column: usize) -> usize {
    graph.tasks.iter().filter(|task| task.kind.column() == column).count()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
