//! The task graph of a program, as `flick build --emit=graph` shows it.
//! Promises: one input task for each channel that is read and for each timer and handler, one compute task for what
//! each of them runs, one output task for each channel that is written, one for each piece of state; the edges between
//! them are the paths of messages, and the accesses to state.
//! Refuses: guessing what never happens. Code leads to each channel that it may send to; where its instructions do not
//! tell which that is, to each that it names.
//! Source: FLICK §4.3 and its Figure 3 (input tasks, compute tasks, output tasks).

mod dot;
mod reach;
mod svg;

use flick_abi::{Event, RuleAction, Start};

use crate::data::Module;

pub use dot::to_dot;
pub use svg::to_svg;

/// The kind of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GraphTaskKind {
    /// Makes messages of bytes.
    Input,
    /// Starts rules without a message: a timer, or an event of a channel.
    Event,
    /// Runs rules on messages.
    Compute,
    /// Merges sorted streams, as a tree of tasks.
    Merge,
    /// Makes bytes of messages.
    Output,
    /// Is kept: a dictionary, counter, gauge, or what lives with a session.
    State,
}

impl GraphTaskKind {
    /// The column of a drawing: 0 what starts, 1 what runs, 2 what leaves and stays.
    pub fn column(self) -> usize {
        match self {
            Self::Input | Self::Event => 0,
            Self::Compute | Self::Merge => 1,
            Self::Output | Self::State => 2,
        }
    }

    /// A word for people.
    pub fn role(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Event => "event",
            Self::Compute => "compute",
            Self::Merge => "merge",
            Self::Output => "output",
            Self::State => "state",
        }
    }
}

/// One task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphTask {
    /// Its kind.
    pub kind: GraphTaskKind,
    /// Its name: the channel's, with `[]` for an array; a compute task is named after its rules.
    pub name: String,
    /// A line more: the unit that travels, or how many rules there are.
    pub detail: String,
}

/// The kind of an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EdgeKind {
    /// Messages, one way.
    Sends,
    /// Requests one way, and their replies back.
    Asks,
    /// Values that are kept.
    Keeps,
}

/// Messages or values going from one task to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphEdge {
    /// Index in `TaskGraph::tasks`.
    pub from: usize,
    /// Index in `TaskGraph::tasks`.
    pub to: usize,
    /// Its kind.
    pub kind: EdgeKind,
    /// The start of the rules at its one end.
    pub start: Start,
    /// Index in `Program::channels` of where they send or ask, if it is their way out.
    pub channel: Option<usize>,
}

/// Tasks and the channels between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskGraph {
    /// Name of the process.
    pub name: String,
    /// Inputs and events, then computes and merges, then outputs and state.
    pub tasks: Vec<GraphTask>,
    /// By `from`, then `to`.
    pub edges: Vec<GraphEdge>,
}

/// A piece of what is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kept {
    Dict(u32),
    Counter(u32),
    Session,
}

/// The task graph of a module.
pub fn graph(module: &Module) -> TaskGraph {
    let program = &module.program;
    let starts = starts(module);
    let targets: Vec<usize> =
        (0..program.channels.len()).filter(|index| program.channels[*index].sends).collect();
    let kept = kept(module);
    let (first_run, first_target) = (starts.len(), 2 * starts.len());
    let first_kept = first_target + targets.len();
    let mut edges = Vec::new();
    for (position, start) in starts.iter().enumerate() {
        let compute = first_run + position;
        let edge = |from, to, kind, channel| GraphEdge { from, to, kind, start: start.cause, channel };
        edges.push(edge(position, compute, EdgeKind::Sends, None));
        let reached = reach::of(module, &start.actions);
        let output = |index: &usize| targets.iter().position(|target| target == index);
        let kinds = [(&reached.sends, EdgeKind::Sends), (&reached.asks, EdgeKind::Asks)];
        for (channels, kind) in kinds {
            let outputs = channels.iter().filter_map(|channel| Some((*channel, output(channel)?)));
            edges.extend(
                outputs.map(|(channel, output)| edge(compute, first_target + output, kind, Some(channel))),
            );
        }
        let positions = reached.keeps.iter().filter_map(|piece| kept.iter().position(|known| known == piece));
        edges.extend(positions.map(|position| edge(compute, first_kept + position, EdgeKind::Keeps, None)));
    }
    edges.sort_by_key(|edge| (edge.from, edge.to, edge.kind));
    let (mut tasks, runs): (Vec<GraphTask>, Vec<GraphTask>) =
        starts.into_iter().map(|start| (start.task, start.run)).unzip();
    tasks.extend(runs);
    let output = |index: &usize| GraphTask {
        kind: GraphTaskKind::Output,
        name: channel_name(module, *index),
        detail: program.sent(&program.channels[*index]).unwrap_or_default().to_owned(),
    };
    tasks.extend(targets.iter().map(output));
    tasks.extend(kept.into_iter().map(|piece| kept_task(module, piece)));
    TaskGraph { name: program.name.clone(), tasks, edges }
}

/// A start of rules: a task of the first column, the task that runs the rules, and their actions.
struct Starter {
    cause: Start,
    task: GraphTask,
    run: GraphTask,
    actions: Vec<RuleAction>,
}

fn starts(module: &Module) -> Vec<Starter> {
    let program = &module.program;
    let mut starts = Vec::new();
    for source in 0..program.channels.len() {
        let rules: Vec<RuleAction> =
            program.rules.iter().filter(|rule| rule.source == source).map(|rule| rule.action).collect();
        let merges: Vec<_> = program.merges.iter().filter(|merge| merge.source == source).collect();
        if rules.is_empty() && merges.is_empty() {
            continue;
        }
        let name = channel_name(module, source);
        let received = program.received(&program.channels[source]).unwrap_or_default().to_owned();
        let task = GraphTask { kind: GraphTaskKind::Input, name: name.clone(), detail: received };
        let run = match merges.is_empty() {
            true => GraphTask {
                kind: GraphTaskKind::Compute,
                name: format!("{name} =>"),
                detail: format!("{} rule{}", rules.len(), if rules.len() == 1 { "" } else { "s" }),
            },
            false => GraphTask {
                kind: GraphTaskKind::Merge,
                name: format!("foldt on {name}"),
                detail: "a tree of merges".to_owned(),
            },
        };
        let actions = rules.into_iter().chain(merges.into_iter().map(|merge| merge.finish)).collect();
        starts.push(Starter { cause: Start::Channel(source), task, run, actions });
    }
    let event = |cause, name: String, detail: &str, rule| Starter {
        cause,
        task: GraphTask { kind: GraphTaskKind::Event, name: name.clone(), detail: detail.to_owned() },
        run: GraphTask {
            kind: GraphTaskKind::Compute,
            name: format!("{name}:"),
            detail: "no message".to_owned(),
        },
        actions: vec![RuleAction::Run { rule }],
    };
    starts.extend(program.handlers.iter().enumerate().map(|(index, handler)| {
        let channel = channel_name(module, handler.channel);
        event(
            Start::Handler(index),
            format!("except {} {channel}", event_name(handler.event)),
            "event",
            handler.rule,
        )
    }));
    starts.extend(program.timers.iter().enumerate().map(|(index, timer)| {
        let name = format!("every {} ms", timer.interval_ns / 1_000_000);
        event(Start::Timer(index), name, "timer", timer.rule)
    }));
    starts
}

fn event_name(event: Event) -> &'static str {
    match event {
        Event::Closed => "closed",
        Event::Broken => "broken",
        Event::Refused => "refused",
        Event::TimedOut => "timed_out",
        Event::Malformed => "malformed",
    }
}

fn channel_name(module: &Module, index: usize) -> String {
    let channel = &module.program.channels[index];
    format!("{}{}", channel.name, if channel.is_array { "[]" } else { "" })
}

/// All that is kept.
fn kept(module: &Module) -> Vec<Kept> {
    let program = &module.program;
    let dicts = (0..program.dicts.len() as u32).map(Kept::Dict);
    let counters = (0..program.counters.len() as u32).map(Kept::Counter);
    let session = (program.state_words > 0).then_some(Kept::Session);
    dicts.chain(counters).chain(session).collect()
}

fn kept_task(module: &Module, piece: Kept) -> GraphTask {
    let program = &module.program;
    let (name, detail) = match piece {
        Kept::Dict(number) => {
            let dict = &program.dicts[number as usize];
            (dict.name.clone(), format!("dictionary, {} entries", dict.entries_max))
        }
        Kept::Counter(number) => {
            let counter = &program.counters[number as usize];
            (counter.name.clone(), if counter.is_gauge { "gauge" } else { "counter" }.to_owned())
        }
        Kept::Session => ("locals".to_owned(), format!("{} bytes a session", 8 * program.state_words)),
    };
    GraphTask { kind: GraphTaskKind::State, name, detail }
}

#[cfg(test)]
mod tests {
    use super::{EdgeKind, graph, to_dot, to_svg};
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
    fn a_proxy_has_an_edge_in_each_direction() {
        let graph = graph(&text::parse(PROXY).expect("the test's text is of the form"));
        let names: Vec<&str> = graph.tasks.iter().map(|task| task.name.as_str()).collect();
        assert_eq!(names, ["client", "back<ends[]", "client =>", "back<ends[] =>", "client", "back<ends[]"]);
        let edges: Vec<_> = graph.edges.iter().map(|edge| (edge.from, edge.to)).collect();
        assert_eq!(edges, [(0, 2), (1, 3), (2, 5), (3, 4)]);
    }

    #[test]
    fn each_direction_of_a_channel_has_its_own_unit() {
        let mut program = PROXY.to_owned();
        for (channel, directions) in [
            ("\"client\" single protocol 0", "sends as \"reply\""),
            ("\"back<ends\" array protocol 0", "receives \"reply\" sends"),
        ] {
            program = program.replace(&format!("{channel} sends"), &format!("{channel} {directions}"));
        }
        let module = text::parse(&program).expect("the test's text is of the form");
        assert_eq!(text::print(&text::parse(&text::print(&module)).expect("printed")), text::print(&module));
        let tasks = graph(&module).tasks;
        let details: Vec<&str> = tasks.iter().map(|task| task.detail.as_str()).collect();
        assert_eq!(details, ["cmd", "reply", "1 rule", "1 rule", "reply", "cmd"]);
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

    const KEEPER: &str = r#"program "keeper" {
          channel "client" single protocol 0 sends view(request f0, reply f0, head 24)
          channel "backends" array protocol 0 sends view(request f0, reply f0, head 24)
          rule 0 run f1 asks
          protocol "cmd" in_order max 100 { }
          timer 5000000000 f2
          dict "hits" max 10 key 8 value 8 evict lru layout 1
          counter "ticks"
          state 2
        }
        fn f0 parser "p" { b0(v0: frame, v1: int): done }
        fn f1 rule "rule.0" {
          b0(v0: frame, v1: uint):
            v2: chan = const 1 v3: int = const 0 v4: chan = chan_elem v2, v3
            state_store 0, v3
            ask_original v4 timeout v3
            suspend -> b1 state 1
          b1(): v5: chan = const 0 send_original v5 return
        }
        fn f2 rule "every.1" { b0(v0: frame, v1: uint): v2: int = const 1 host counter_add.0(v2) return }"#;

    #[test]
    fn asks_timers_and_what_is_kept_are_shown() {
        let module = text::parse(KEEPER).expect("the test's text is of the form");
        let graph = graph(&module);
        let names: Vec<&str> = graph.tasks.iter().map(|task| task.name.as_str()).collect();
        let expected = [
            "client",
            "every 5000 ms",
            "client =>",
            "every 5000 ms:",
            "client",
            "backends[]",
            "hits",
            "ticks",
            "locals",
        ];
        assert_eq!(names, expected);
        let edges: Vec<_> = graph.edges.iter().map(|edge| (edge.from, edge.to, edge.kind)).collect();
        let (sends, asks, keeps) = (EdgeKind::Sends, EdgeKind::Asks, EdgeKind::Keeps);
        let expected =
            [(0, 2, sends), (1, 3, sends), (2, 4, sends), (2, 5, asks), (2, 8, keeps), (3, 7, keeps)];
        assert_eq!(edges, expected);
        assert!(to_dot(&graph).contains("t2 -> t5 [dir=both, label=ask];"));
        assert!(to_svg(&graph).contains("class=\"keeps\""));
    }
}
