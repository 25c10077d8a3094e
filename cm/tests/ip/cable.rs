//! Hosts that are cabled together.

use core::time::Duration;

use bareverbs_cm::ip::{Config, Event, Filter, Host, Mac, Resolution};

use super::{Memory, ip};

/// Hosts on one cable, and what their ports let in.
pub(crate) struct Cable<'s> {
    pub(crate) now: Duration,
    pub(crate) hosts: Vec<(Host<'s>, Vec<Mac>)>,
    /// Frames that went over it: when, and what.
    pub(crate) seen: Vec<(Duration, Vec<u8>)>,
    pub(crate) cut: bool,
}

impl<'s> Cable<'s> {
    pub(crate) fn new(memories: &'s mut [Memory], macs: &[Mac], config: Config) -> Self {
        let hosts = memories.iter_mut().zip(macs);
        Self {
            now: Duration::from_secs(1000),
            hosts: hosts
                .map(|(memory, mac)| (Host::new(*mac, config, memory.storage()), Vec::new()))
                .collect(),
            seen: Vec::new(),
            cut: false,
        }
    }

    pub(crate) fn host(&mut self, index: usize) -> &mut Host<'s> {
        &mut self.hosts[index].0
    }

    pub(crate) fn add(&mut self, index: usize, address: &str, prefix: u8, vlan: Option<u16>) {
        let now = self.now;
        self.host(index)
            .add_address(now, ip(address), prefix, vlan)
            .expect("an address");
        self.settle();
    }

    pub(crate) fn resolve(&mut self, index: usize, source: &str, destination: &str) -> Resolution {
        let now = self.now;
        let outcome = self.host(index).resolve(now, ip(source), ip(destination));
        self.settle();
        outcome
    }

    /// Everything that is due, and what it leads to.
    pub(crate) fn settle(&mut self) {
        let mut frame = [0xa5; 2048];
        loop {
            let mut quiet = true;
            for index in 0..self.hosts.len() {
                let (host, filter) = &mut self.hosts[index];
                while let Some(change) = host.poll_filter() {
                    match change {
                        Filter::Join(mac) => filter.push(mac),
                        Filter::Leave(mac) => {
                            let at = filter.iter().position(|joined| *joined == mac);
                            filter.swap_remove(at.expect("was joined"));
                        }
                    }
                }
                while let Some(length) = self.hosts[index].0.poll_transmit(self.now, &mut frame) {
                    quiet = false;
                    let sent = frame[..length].to_vec();
                    self.carry(index, sent);
                }
            }
            if quiet {
                return;
            }
        }
    }

    pub(crate) fn carry(&mut self, from: usize, frame: Vec<u8>) {
        self.seen.push((self.now, frame.clone()));
        if self.cut {
            return;
        }
        for index in (0..self.hosts.len()).filter(|index| *index != from) {
            let (host, filter) = &mut self.hosts[index];
            let to: Mac = frame[..6].try_into().unwrap();
            if to != host.mac() && to != [0xff; 6] && !filter.contains(&to) {
                continue;
            }
            let mut reply = [0xa5; 2048];
            if let Some(length) = host.receive(self.now, &frame, &mut reply) {
                self.carry(index, reply[..length].to_vec());
            }
        }
    }

    /// Lets time pass, from deadline to deadline.
    pub(crate) fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        loop {
            self.settle();
            let deadlines = self
                .hosts
                .iter()
                .filter_map(|(host, _)| host.next_deadline());
            match deadlines.min() {
                Some(at) if at <= until => self.now = self.now.max(at),
                _ => break,
            }
        }
        self.now = until;
    }

    pub(crate) fn events(&mut self, index: usize) -> Vec<Event> {
        std::iter::from_fn(|| self.host(index).poll_event()).collect()
    }

    /// Hands a frame to a host; its answer.
    pub(crate) fn give(&mut self, index: usize, frame: &[u8]) -> Option<Vec<u8>> {
        let mut reply = [0xa5; 2048];
        let now = self.now;
        let length = self.host(index).receive(now, frame, &mut reply)?;
        Some(reply[..length].to_vec())
    }
}
