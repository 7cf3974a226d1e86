//! Shared listening addresses: finds the addresses that belong to several services.
//! Promises: services at one address speak grammars whose first bytes tell them apart, or nothing starts.
//! Refuses: to guess. Port 0 is a port of one's own, and shared only where the configuration says so.

use flick_net::Endpoint;

use crate::setup::{Setup, StartError};

/// An address of several services.
pub struct SharedAddress {
    /// The address.
    pub at: Endpoint,
    /// Services behind it, in their order.
    pub services: Vec<u16>,
    /// By first byte of a connection: the service that takes it; `None`: none.
    pub whose: Box<[Option<u16>; 256]>,
}

/// The addresses that several of the services listen on. `names` are for people.
///
/// Errors: their first bytes do not tell them apart, one of them cannot share an address at all, or one has an address
/// twice.
pub fn shared(
    setups: &[&Setup],
    names: &[String],
    shares_free_ports: bool,
) -> Result<Vec<SharedAddress>, StartError> {
    let mut found: Vec<SharedAddress> = Vec::new();
    for (index, setup) in setups.iter().enumerate() {
        let repeated = |at: usize| setup.listen[..at].iter().any(|(_, other)| *other == setup.listen[at].1);
        let own = |at: &usize| setup.listen[*at].1.port() != Some(0);
        if let Some(at) = (0..setup.listen.len()).filter(own).find(|at| repeated(*at)) {
            let text = format!("`{}` is given {} twice; leave one out", names[index], setup.listen[at].1);
            return Err(StartError::Binding(text));
        }
        for (_, at) in setup.listen.iter().filter(|(_, at)| shares_free_ports || at.port() != Some(0)) {
            let same = |setup: &&Setup| setup.listen.iter().any(|(_, other)| other == at);
            let is_first = !setups[..index].iter().any(same);
            let services: Vec<u16> =
                (0..setups.len() as u16).filter(|other| same(&setups[usize::from(*other)])).collect();
            if is_first && services.len() > 1 && !found.iter().any(|known| known.at == *at) {
                let whose = table(setups, names, at, &services)?;
                found.push(SharedAddress { at: at.clone(), services, whose });
            }
        }
    }
    Ok(found)
}

/// Returns the service that takes connections with each first byte; `None`: none.
///
/// Errors: their first bytes do not tell the services apart, or one of them cannot share an address at all.
fn table(
    setups: &[&Setup],
    names: &[String],
    at: &Endpoint,
    services: &[u16],
) -> Result<Box<[Option<u16>; 256]>, StartError> {
    let refuse = |text: String| Err(StartError::Binding(text));
    if let Endpoint::Shm(_) = at {
        let all: Vec<String> = services.iter().map(|at| format!("`{}`", names[usize::from(*at)])).collect();
        return refuse(format!(
            "{} cannot share {at}: the first byte of a client, which would tell whose it is, comes through the memory \
             of one service; give each a name of its own, or one address of TCP, whose clients on this host move to \
             shared memory",
            all.join(" and ")
        ));
    }
    let mut whose = Box::new([None; 256]);
    let mut rest: Option<u16> = None;
    for &service in services {
        let (setup, name) = (setups[usize::from(service)], &names[usize::from(service)]);
        if setup.merge.is_some() {
            return refuse(format!("`{name}` merges streams and cannot share {at} with another service"));
        }
        if setup.is_relay && setup.view(setup.listened).first.is_none() {
            return refuse(format!(
                "`{name}` takes raw bytes, whatever they are, and cannot share {at} with another service"
            ));
        }
        let Some(first) = setup.view(setup.listened).first else {
            if let Some(other) = rest.replace(service) {
                return refuse(format!(
                    "`{}` and `{name}` cannot share {at}: neither grammar says with which byte a request begins, so \
                     nothing tells their clients apart; give one of them another address",
                    names[usize::from(other)]
                ));
            }
            continue;
        };
        for byte in (0..=u8::MAX).filter(|byte| first[usize::from(byte / 64)] >> (byte % 64) & 1 == 1) {
            if let Some(other) = whose[usize::from(byte)].replace(service) {
                return refuse(format!(
                    "`{}` and `{name}` cannot share {at}: requests of both may begin with byte {byte:#04x}; give one \
                     of them another address",
                    names[usize::from(other)]
                ));
            }
        }
    }
    if let Some(rest) = rest {
        whose.iter_mut().filter(|service| service.is_none()).for_each(|service| *service = Some(rest));
    }
    Ok(whose)
}
