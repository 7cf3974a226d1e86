//! The graph in the language of Graphviz.

use std::fmt::Write as _;

use super::{EdgeKind, GraphTaskKind, TaskGraph};

/// Writes a graph as DOT.
pub fn to_dot(graph: &TaskGraph) -> String {
    let mut text = format!("digraph \"{}\" {{\n  rankdir=LR;\n  node [shape=box];\n", quoted(&graph.name));
    for (index, task) in graph.tasks.iter().enumerate() {
        let role = task.kind.role();
        let style = match task.kind {
            GraphTaskKind::Compute | GraphTaskKind::Merge => ", style=rounded",
            GraphTaskKind::State => ", shape=cylinder",
            GraphTaskKind::Input | GraphTaskKind::Event | GraphTaskKind::Output => "",
        };
        let (name, detail) = (quoted(&task.name), quoted(&task.detail));
        let _ = writeln!(text, "  t{index} [label=\"{role}\\n{name}\\n{detail}\"{style}];");
    }
    for edge in &graph.edges {
        let style = match edge.kind {
            EdgeKind::Sends => "",
            EdgeKind::Asks => " [dir=both, label=ask]",
            EdgeKind::Keeps => " [dir=none, style=dashed]",
        };
        let _ = writeln!(text, "  t{} -> t{}{style};", edge.from, edge.to);
    }
    text.push_str("}\n");
    text
}

fn quoted(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}
