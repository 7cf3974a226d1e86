//! Binding a process that merges: the array is listened on, one connection for each address it was given; the result
//! goes to a channel that the service connects to, or listens on too.

use std::sync::Arc;

use flick_abi::{Engine, Program, RuleAction};
use flick_net::Endpoint;

use super::{Setup, StartError, channel_index, describe_channels};
use crate::backend_set::BackendSetPublisher;
use crate::config::{Binding, PlatformConfig};
use crate::limits::MERGE_STREAMS_MAX;
use crate::merge::{MergeSetup, SinkAt};
use crate::observe::backend_log::BackendLog;
use crate::setup::requirements::Requirements;
use crate::tunables::Tunables;

/// Binds a process with a merge. Its channels are known to be bound, each once.
pub(super) fn bind(
    program: Arc<Program>,
    engine: Arc<dyn Engine>,
    config: &PlatformConfig,
) -> Result<Setup, StartError> {
    let (source, sink_channel) = channels(&program)?;
    let (source_name, sink_name) = (&program.channels[source].name, &program.channels[sink_channel].name);
    let mut listen = Vec::new();
    let (mut streams, mut sink) = (0, SinkAt::Listen);
    for binding in &config.listen {
        let channel = channel_index(&program, &binding.channel)?;
        listen.extend(distinct(binding).map(|at| (channel, at)));
        if channel == source {
            streams = binding.endpoints.len() as u32;
        }
    }
    for binding in &config.connect {
        if channel_index(&program, &binding.channel)? == source {
            return Err(StartError::Binding(format!(
                "process `{}` merges `{source_name}`, whose streams come to it: write `--listen \
                 {source_name}=ADDRESSxN`, where N is the number of streams",
                program.name
            )));
        }
        sink = SinkAt::Connect(single(binding)?);
    }
    if sink == SinkAt::Listen {
        let binding = config.listen.iter().find(|binding| binding.channel == *sink_name);
        binding.map(single).transpose()?;
    }
    if streams > MERGE_STREAMS_MAX || streams > config.limits.max_connections {
        return Err(StartError::Binding(format!(
            "`{source_name}` was given {streams} streams; at most {} are merged",
            MERGE_STREAMS_MAX.min(config.limits.max_connections)
        )));
    }
    let mut channel_lens = vec![1; program.channels.len()];
    channel_lens[source] = u64::from(streams);
    let needs = Requirements::of(&program, source, &vec![0; program.channels.len()], config)?;
    Ok(Setup {
        engine,
        limits: config.limits.clone(),
        timeouts: config.timeouts.clone(),
        tunables: Arc::new(Tunables::new(&config.limits)),
        listened: source,
        listen,
        max_requests_per_backend: 0,
        max_pending_per_backend: 0,
        retry_min_per_second: 0,
        slots: Vec::new(),
        backend_sets: BackendSetPublisher::of_lens(channel_lens),
        backend_log: BackendLog::new(0),
        actions: vec![Vec::new(); program.channels.len()],
        lookup: None,
        needs,
        always_dedicates: false,
        is_relay: false,
        whole_bytes_max: crate::limits::WHOLE_BYTES_MAX,
        pool_memory: config.pool_memory(),
        ring_memory_max: config.ring_memory_max(),
        merge: Some(MergeSetup {
            merge: program.merges[0].clone(),
            streams,
            sink_channel,
            sink,
            ring_bytes: config.limits.merge_ring_bytes,
        }),
        program,
    })
}

/// The array that is merged and the channel of the result.
fn channels(program: &Program) -> Result<(usize, usize), StartError> {
    let refuse = |what: &str| {
        StartError::Program(format!(
            "process `{}` {what}; a process that merges has two channels, an array that it merges and one for the \
             result. Its channels are: {}",
            program.name,
            describe_channels(program)
        ))
    };
    let [merge] = program.merges.as_slice() else { return Err(refuse("merges more than once")) };
    if !program.rules.is_empty() {
        return Err(refuse("has rules beside its merge"));
    }
    if program.channels.len() != 2 || !program.channels[merge.source].is_array {
        return Err(refuse("has other channels"));
    }
    let sink = 1 - merge.source;
    match merge.finish {
        RuleAction::Pass { to } if to != sink => Err(refuse("merges an array into itself")),
        _ => Ok((merge.source, sink)),
    }
}

/// The addresses of a binding, each once: `A,A,B` are three elements at two addresses.
fn distinct(binding: &Binding) -> impl Iterator<Item = Endpoint> + '_ {
    let endpoints = &binding.endpoints;
    let is_first = |(at, endpoint): &(usize, &Endpoint)| !endpoints[..*at].contains(endpoint);
    endpoints.iter().enumerate().filter(is_first).map(|(_, endpoint)| endpoint.clone())
}

fn single(binding: &Binding) -> Result<Endpoint, StartError> {
    match binding.endpoints.as_slice() {
        [endpoint] => Ok(endpoint.clone()),
        endpoints => Err(StartError::Binding(format!(
            "channel `{}` is a single channel but was given {} addresses",
            binding.channel,
            endpoints.len()
        ))),
    }
}
