//! The distribution of a port's frames over queues: rules by what is hashed, an indirection table, and counters of the rules.

use std::fmt;

use bareverbs::verbs::{
    EthernetDomain, EthernetTarget, FlowAction, FlowCounter, FlowMatch, FlowRuleInit, FlowSlot,
    FlowTable, HashedPackets, IndirectionTable, Platform, Rqn, RssHash,
};
use bareverbs_examples::Result;

/// The packets that are hashed, from the first rule on.
const PACKETS: [HashedPackets; 6] = [
    HashedPackets::TcpIpv4,
    HashedPackets::UdpIpv4,
    HashedPackets::TcpIpv6,
    HashedPackets::UdpIpv6,
    HashedPackets::Ipv4,
    HashedPackets::Ipv6,
];

/// The rule of what is not hashed comes last.
const RULES: usize = PACKETS.len() + 1;

fn matches(packets: HashedPackets) -> FlowMatch {
    use HashedPackets::*;
    let version = match packets {
        TcpIpv4 | UdpIpv4 | Ipv4 => FlowMatch::ANY.ipv4(),
        _ => FlowMatch::ANY.ipv6(),
    };
    match packets {
        TcpIpv4 | TcpIpv6 => version.ip_protocol(6),
        UdpIpv4 | UdpIpv6 => version.ip_protocol(17),
        _ => version,
    }
}

/// The counts of a port's rules, and of the changes of its table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    /// Frames by kind, as in [`PACKETS`], then the others.
    pub(crate) frames: [u64; RULES],
    pub(crate) bytes: u64,
    pub(crate) changes: u64,
}

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (packets, frames) in PACKETS.iter().zip(self.frames) {
            write!(f, "{packets:?} {frames} ")?;
        }
        let others = self.frames[PACKETS.len()];
        let (bytes, changes) = (self.bytes, self.changes);
        write!(f, "others {others}; {bytes} bytes; {changes} changes")
    }
}

/// Rules, targets, table and counters of a port, in the order in which they go.
pub(crate) struct Spread<'d, 's, P: Platform> {
    _flows: FlowTable<'d, 's, P>,
    _targets: Vec<EthernetTarget<'d, P>>,
    table: Option<IndirectionTable<'d, P>>,
    /// None, or one for each rule.
    counters: Vec<FlowCounter<'d, P>>,
    queues: Vec<Rqn>,
    changes: u64,
}

impl<'d, 's, P: Platform> Spread<'d, 's, P> {
    /// Lets all frames of a port come to these queues, by a hash of what they have of IP; what has nothing comes to the first.
    pub(crate) fn new(
        domain: &EthernetDomain<'d, P>,
        queues: Vec<Rqn>,
        slots: &'s mut [FlowSlot],
        count: bool,
    ) -> Result<Self> {
        let mut targets = Vec::new();
        let mut table = None;
        let rest = domain.create_target(queues[0])?;
        if queues.len() > 1 {
            let most = domain.max_indirection_table();
            if (most as usize) < queues.len() {
                return Err(format!(
                    "the port spreads frames over {} queues at most",
                    most.max(1)
                )
                .into());
            }
            let size = (queues.len() as u32 * 16).next_power_of_two().min(most);
            let indirection = domain.create_indirection_table(&queues, size)?;
            for packets in PACKETS {
                let hash = RssHash::all_of(packets);
                targets.push(domain.create_hashed_target(&indirection, &hash)?);
            }
            table = Some(indirection);
        }
        let mut counters = Vec::new();
        for _ in 0..if count { RULES } else { 0 } {
            counters.push(domain.alloc_flow_counter()?);
        }
        let mut flows = domain.create_flow_table(slots, 3)?;
        let mut add = |nth: usize, matches, target: &EthernetTarget<'d, P>, priority| {
            let to = [target.number()];
            let mut rule = FlowRuleInit::new(matches, FlowAction::Forward(&to)).priority(priority);
            if let Some(counter) = counters.get(nth) {
                rule = rule.counted(counter);
            }
            flows.add(&rule).map(|_| ())
        };
        for (nth, (packets, target)) in PACKETS.into_iter().zip(&targets).enumerate() {
            let with_ports = !matches!(packets, HashedPackets::Ipv4 | HashedPackets::Ipv6);
            add(nth, matches(packets), target, u8::from(!with_ports))?;
        }
        add(PACKETS.len(), FlowMatch::ANY, &rest, 2)?;
        flows.set_promiscuous(true, true)?;
        targets.push(rest);
        Ok(Self {
            _flows: flows,
            _targets: targets,
            table,
            counters,
            queues,
            changes: 0,
        })
    }

    /// Gives what each queue gets to the next one, while frames come.
    pub(crate) fn change(&mut self) -> Result<()> {
        let table = self.table.as_mut();
        let table = table.ok_or("a table that changes needs two queues at least")?;
        self.queues.rotate_left(1);
        table.set(&self.queues)?;
        self.changes += 1;
        Ok(())
    }

    /// The counts so far; `None` if the rules do not count.
    pub(crate) fn counted(&self) -> Result<Option<Counted>> {
        if self.counters.is_empty() {
            return Ok(None);
        }
        let mut counted = Counted {
            changes: self.changes,
            ..Counted::default()
        };
        for (frames, counter) in counted.frames.iter_mut().zip(&self.counters) {
            let traffic = counter.query()?;
            *frames = traffic.packets;
            counted.bytes += traffic.octets;
        }
        Ok(Some(counted))
    }
}
