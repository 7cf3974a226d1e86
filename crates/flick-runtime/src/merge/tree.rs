//! The shape of a tree of merge tasks: who feeds whom.
//! Promises: streams keep their order from left to right, so that of equal elements the one from the stream with the
//! lower number comes first; the depth is the logarithm of the number of streams.

/// A task of a tree by number: its nodes, from the leaves up, then one feeder for each stream, then the sink.
pub type TaskId = u32;

/// An edge of a tree: the ring from one task to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeEdge {
    /// Task that pushes into the ring.
    pub from: TaskId,
    /// Task that pops from the ring.
    pub to: TaskId,
    /// Index of the popping node's input.
    pub side: usize,
}

/// The shape of a tree.
#[derive(Clone, Debug)]
pub struct Tree {
    /// Streams at the leaves.
    pub streams: u32,
    /// Inner tasks.
    pub nodes: u32,
    /// All edges: first those of the streams, in their order; last the one to the sink.
    pub edges: Vec<TreeEdge>,
}

impl Tree {
    /// A balanced tree over `streams`, of which there is at least one.
    pub fn new(streams: u32) -> Self {
        assert!(streams > 0, "a merge has streams");
        let nodes = (streams - 1).max(1);
        let sink = nodes + streams;
        let edge = |from| TreeEdge { from, to: sink, side: 0 };
        let mut edges: Vec<TreeEdge> = (nodes..sink).map(edge).collect();
        let mut level: Vec<usize> = (0..edges.len()).collect();
        let mut node = 0;
        while level.len() > 1 || node == 0 {
            let mut above = Vec::with_capacity(level.len().div_ceil(2));
            for pair in level.chunks(2) {
                if pair.len() == 1 && streams > 1 {
                    above.push(pair[0]);
                    continue;
                }
                for (side, child) in pair.iter().enumerate() {
                    (edges[*child].to, edges[*child].side) = (node, side);
                }
                above.push(edges.len());
                edges.push(edge(node));
                node += 1;
            }
            level = above;
        }
        assert!(node == nodes, "a tree over n streams has n - 1 nodes");
        Self { streams, nodes, edges }
    }

    /// The task that reads a stream's connection.
    pub fn feeder(&self, stream: u32) -> TaskId {
        self.nodes + stream
    }

    /// The stream that a task feeds, if it is a feeder.
    pub fn stream_of(&self, task: TaskId) -> Option<u32> {
        (self.nodes..self.sink()).contains(&task).then(|| task - self.nodes)
    }

    /// The task that sends the result.
    pub fn sink(&self) -> TaskId {
        self.nodes + self.streams
    }

    /// Number of tasks.
    pub fn tasks(&self) -> u32 {
        self.sink() + 1
    }

    /// Returns which of `workers` runs each node. The work of a node is the number of streams below it; from the last
    /// one down each node goes to the worker with the least work.
    pub fn session_slots(&self, workers: usize) -> Vec<u32> {
        let mut streams = vec![0_usize; self.tasks() as usize];
        for edge in &self.edges {
            streams[edge.from as usize] += usize::from(self.stream_of(edge.from).is_some());
        }
        // The task that pushes to a node has a lower number than it, or is a feeder: edges are in that order.
        for edge in &self.edges {
            streams[edge.to as usize] += streams[edge.from as usize];
        }
        let (mut loads, mut session_slots) = (vec![0_usize; workers], vec![0; self.nodes as usize]);
        for node in (0..self.nodes as usize).rev() {
            let least = (0..workers).min_by_key(|worker| loads[*worker]).expect("there is a worker");
            loads[least] += streams[node];
            session_slots[node] = least as u32;
        }
        session_slots
    }
}

#[cfg(test)]
mod tests {
    use super::Tree;

    /// Streams below each task, read from the edges, as text.
    fn show(tree: &Tree, task: u32) -> String {
        if let Some(stream) = tree.stream_of(task) {
            return stream.to_string();
        }
        let mut below: Vec<_> = tree.edges.iter().filter(|edge| edge.to == task).collect();
        below.sort_by_key(|edge| edge.side);
        let below: Vec<_> = below.iter().map(|edge| show(tree, edge.from)).collect();
        format!("({})", below.join(" "))
    }

    fn check(streams: u32, expected: &str) {
        let tree = Tree::new(streams);
        assert_eq!(show(&tree, tree.sink()), expected, "{streams} streams");
        assert_eq!(tree.edges.len() as u32, tree.nodes + streams);
        assert_eq!(tree.edges.last().map(|edge| edge.to), Some(tree.sink()));
    }

    /// Checks the load of each worker: the sum of the streams below its nodes.
    fn check_slots(streams: u32, workers: usize, expected: &[usize]) {
        let tree = Tree::new(streams);
        let below = |node| show(&tree, node).chars().filter(|char| char.is_ascii_digit()).count();
        let mut loads = vec![0; workers];
        for (node, worker) in tree.session_slots(workers).into_iter().enumerate() {
            loads[worker as usize] += below(node as u32);
        }
        assert_eq!(loads, expected, "{streams} streams, {workers} workers");
    }

    #[test]
    fn nodes_are_spread_by_what_they_have_to_do() {
        check_slots(1, 2, &[1, 0]);
        check_slots(2, 2, &[2, 0]);
        check_slots(4, 2, &[4, 4]);
        check_slots(8, 2, &[12, 12]);
        check_slots(8, 3, &[8, 8, 8]);
        check_slots(7, 2, &[11, 9]);
        check_slots(8, 1, &[24]);
    }

    #[test]
    fn streams_stay_in_order_and_the_depth_is_small() {
        check(1, "((0))");
        check(2, "((0 1))");
        check(3, "(((0 1) 2))");
        check(5, "((((0 1) (2 3)) 4))");
        check(8, "((((0 1) (2 3)) ((4 5) (6 7))))");
    }
}
