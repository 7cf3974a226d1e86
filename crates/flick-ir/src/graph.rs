//! The task graph of a program, as `flick build --emit=graph` shows it.
//! Promises: one input task for each channel that is read, one compute task for the rules of each such channel, one
//! output task for each channel that is written; the edges between them are the channels that messages take.
//! Refuses: guessing what never happens. A rule leads to each channel that its code names and may send to.
//! Source: FLICK §4.3 and its Figure 3 (input tasks, compute tasks, output tasks).

mod dot;
mod svg;

use flick_abi::RuleAction;

use crate::calls;
use crate::data::{Module, Op, Type};
use crate::semantics;

pub use dot::to_dot;
pub use svg::to_svg;

/// What a task does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskKind {
    /// Makes messages of bytes.
    Input,
    /// Runs rules on messages.
    Compute,
    /// Makes bytes of messages.
    Output,
}

/// One task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// What it does.
    pub kind: TaskKind,
    /// Its name: the channel's, with `[]` for an array; a compute task is named after its rules.
    pub name: String,
    /// A line more: the unit that travels, or how many rules there are.
    pub detail: String,
}

/// Messages going from one task to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    /// Index in `Graph::tasks`.
    pub from: usize,
    /// Index in `Graph::tasks`.
    pub to: usize,
}

/// Tasks and the channels between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Graph {
    /// Name of the process.
    pub name: String,
    /// Inputs, then computes, then outputs, each in the order of the channels.
    pub tasks: Vec<Task>,
    /// By `from`, then `to`.
    pub edges: Vec<Edge>,
}

/// The task graph of a module.
pub fn graph(module: &Module) -> Graph {
    let program = &module.program;
    let channel_name = |index: usize| {
        let channel = &program.channels[index];
        format!("{}{}", channel.name, if channel.is_array { "[]" } else { "" })
    };
    let unit = |index: usize| {
        let protocol = program.protocols.get(program.channels[index].protocol);
        protocol.map_or_else(String::new, |protocol| protocol.name.clone())
    };
    let channels = 0..program.channels.len();
    let sources: Vec<usize> =
        channels.clone().filter(|index| program.rules.iter().any(|rule| rule.source == *index)).collect();
    let targets: Vec<usize> = channels.filter(|index| program.channels[*index].sends).collect();
    let task = |kind, name, detail| Task { kind, name, detail };
    let mut tasks: Vec<Task> =
        sources.iter().map(|index| task(TaskKind::Input, channel_name(*index), unit(*index))).collect();
    let mut edges = Vec::new();
    for (position, source) in sources.iter().enumerate() {
        let rules: Vec<_> = program.rules.iter().filter(|rule| rule.source == *source).collect();
        let compute = tasks.len();
        edges.push(Edge { from: position, to: compute });
        let count = format!("{} rule{}", rules.len(), if rules.len() == 1 { "" } else { "s" });
        tasks.push(task(TaskKind::Compute, format!("{} =>", channel_name(*source)), count));
        let mut reached: Vec<usize> = rules.iter().flat_map(|rule| reached_by(module, rule.action)).collect();
        reached.sort_unstable();
        reached.dedup();
        let outputs = reached.iter().filter_map(|index| targets.iter().position(|target| target == index));
        edges.extend(outputs.map(|output| Edge { from: compute, to: 2 * sources.len() + output }));
    }
    tasks.extend(targets.iter().map(|index| task(TaskKind::Output, channel_name(*index), unit(*index))));
    edges.sort_by_key(|edge| (edge.from, edge.to));
    Graph { name: program.name.clone(), tasks, edges }
}

/// Channels that an action may send to: those that its code names, if it sends at all.
fn reached_by(module: &Module, action: RuleAction) -> Vec<usize> {
    let rule = match action {
        RuleAction::Pass { to } => return vec![to],
        RuleAction::Run { rule } => rule.0 as usize,
    };
    let mut is_seen = vec![false; module.functions.len()];
    let mut open = vec![rule];
    let (mut named, mut sends) = (Vec::new(), false);
    while let Some(index) = open.pop() {
        if std::mem::replace(&mut is_seen[index], true) {
            continue;
        }
        let function = &module.functions[index];
        open.extend(calls::callees_of(function));
        for inst in function.blocks.iter().flat_map(|block| &block.insts) {
            match (&inst.op, inst.result) {
                (Op::SendOriginal { .. } | Op::SendRebuilt { .. } | Op::SendMessage { .. }, _) => {
                    sends = true
                }
                (Op::AskOriginal { .. } | Op::AskRebuilt { .. } | Op::AskMessage { .. }, _) => sends = true,
                (Op::Const(word), Some(value)) if function.values[value.0 as usize] == Type::Chan => {
                    named.push(semantics::chan_index(*word as u64) as usize);
                }
                _ => {}
            }
        }
    }
    if sends { named } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::{graph, to_dot, to_svg};
    use crate::text;

    const PROXY: &str = r#"program "proxy" {
          channel "client" single protocol 0 sends view(request f0, reply f0, head 24)
          channel "back<ends" array protocol 0 sends view(request f0, reply f0, head 24)
          rule 0 run f2
          rule 1 pass 0
          protocol "cmd" in_order max 100 { }
        }
        fn f0 parser "p" { b0(v0: frame, v1: int): done }
        fn f1 helper "target" { b0(v0: chan): send_original v0 return }
        fn f2 rule "rule.0" { b0(v0: frame, v1: uint): v2: chan = const 1 call f1(v2) return }"#;

    #[test]
    fn a_proxy_has_two_ways() {
        let graph = graph(&text::parse(PROXY).expect("the test's text is of the form"));
        let names: Vec<&str> = graph.tasks.iter().map(|task| task.name.as_str()).collect();
        assert_eq!(names, ["client", "back<ends[]", "client =>", "back<ends[] =>", "client", "back<ends[]"]);
        let edges: Vec<_> = graph.edges.iter().map(|edge| (edge.from, edge.to)).collect();
        assert_eq!(edges, [(0, 2), (1, 3), (2, 5), (3, 4)]);
    }

    #[test]
    fn drawings_are_whole_and_escaped() {
        let graph = graph(&text::parse(PROXY).expect("the test's text is of the form"));
        let dot = to_dot(&graph);
        assert!(dot.starts_with("digraph \"proxy\" {") && dot.ends_with("}\n"), "{dot}");
        assert!(dot.contains("t2 -> t5"), "{dot}");
        let svg = to_svg(&graph);
        assert!(svg.starts_with("<svg xmlns=") && svg.ends_with("</svg>\n"), "{svg}");
        assert!(svg.contains("back&lt;ends[]") && !svg.contains("back<"), "{svg}");
        assert_eq!(svg.matches("<rect class=\"task").count(), 6);
        assert_eq!(svg.matches("<path class=\"channel").count(), 4);
    }
}
