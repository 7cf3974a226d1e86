//! The graph in the language of Graphviz.

use std::fmt::Write as _;

use super::{Graph, TaskKind};

/// Writes a graph as DOT.
pub fn to_dot(graph: &Graph) -> String {
    let mut text = format!("digraph \"{}\" {{\n  rankdir=LR;\n  node [shape=box];\n", quoted(&graph.name));
    for (index, task) in graph.tasks.iter().enumerate() {
        let (role, style) = match task.kind {
            TaskKind::Input => ("input", ""),
            TaskKind::Compute => ("compute", ", style=rounded"),
            TaskKind::Output => ("output", ""),
        };
        let (name, detail) = (quoted(&task.name), quoted(&task.detail));
        let _ = writeln!(text, "  t{index} [label=\"{role}\\n{name}\\n{detail}\"{style}];");
    }
    for edge in &graph.edges {
        let _ = writeln!(text, "  t{} -> t{};", edge.from, edge.to);
    }
    text.push_str("}\n");
    text
}

fn quoted(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}
