//! The queue pairs of one end, from joining the group to leaving it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use bareverbs::cm::rdma::{ChannelId, CmEvent, CmId, EventType, JoinMulticast, PortSpace};
use bareverbs::verbs::{Gid, LinkLayer, Platform, Wc, WcFlags};

use bareverbs_examples::Result;
use bareverbs_examples::datagrams::{self, GRH, RemoteQp};
use bareverbs_examples::exchange::{
    Amount, Exchanged, MessageSizes, Messages, RESOLVE, next_event, text,
};
use bareverbs_node::{Cm, Host, Unreached};

/// The time for switches to learn of a new member.
const SETTLE: Duration = Duration::from_secs(3);

/// The group that is joined, and the way of joining it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Group {
    pub(crate) address: IpAddr,
    /// `true` if the route to the group is resolved like that to any address.
    pub(crate) resolved: bool,
    pub(crate) port_space: PortSpace,
    pub(crate) send_only: bool,
}

/// The messages from one queue pair.
struct SenderMessages {
    message: Vec<u8>,
    times: u32,
}

/// One queue pair.
struct Member<'d, P: Platform> {
    id: CmId,
    messages: Option<Messages<'d, P>>,
    /// Where the group is, and its GID, once it was joined.
    there: Option<(RemoteQp, Gid)>,
}

pub(crate) struct Members<'c, 's, 'd, P: Platform> {
    cm: &'c mut Cm<'s, 'd, P>,
    group: Group,
    amount: Amount,
    sizes: MessageSizes,
    channel: ChannelId,
    /// The context of an id is its place here.
    members: Vec<Member<'d, P>>,
    done: Exchanged,
}

impl<'c, 's, 'd, P: Platform> Members<'c, 's, 'd, P> {
    /// The receivers, from so many queue pairs at once.
    pub(crate) fn receivers(
        cm: &'c mut Cm<'s, 'd, P>,
        group: Group,
        amount: Amount,
        senders: usize,
    ) -> Result<Self> {
        let receives = amount.messages().checked_mul(senders.try_into()?);
        let receives = receives.ok_or("-c and -C: too many messages")?;
        let sizes = MessageSizes {
            size: amount.size(),
            header: GRH,
            sends: 0,
            receives,
            places: receives as usize,
        };
        Self::new(cm, group, amount, sizes)
    }

    /// The senders.
    pub(crate) fn senders(cm: &'c mut Cm<'s, 'd, P>, group: Group, amount: Amount) -> Result<Self> {
        let sizes = MessageSizes {
            size: amount.size(),
            header: GRH,
            sends: amount.messages(),
            receives: 0,
            places: 0,
        };
        Self::new(cm, group, amount, sizes)
    }

    fn new(
        cm: &'c mut Cm<'s, 'd, P>,
        group: Group,
        amount: Amount,
        sizes: MessageSizes,
    ) -> Result<Self> {
        datagrams::check_size(cm, amount)?;
        let channel = cm.create_event_channel()?;
        Ok(Self {
            cm,
            group,
            amount,
            sizes,
            channel,
            members: Vec::with_capacity(amount.connections()),
            done: Exchanged::default(),
        })
    }

    /// Joins the group with all of them.
    pub(crate) fn join(&mut self, here: Host) -> Result<()> {
        let by_ip = here.ip().is_some();
        let here = here.at(self.group.port_space, 0);
        let group = Host::Ip(self.group.address).at(self.group.port_space, 0);
        for number in 0..self.amount.connections() {
            let space = self.group.port_space;
            let id = self
                .cm
                .create_id(Some(self.channel), number as u64, space)?;
            self.members.push(Member {
                id,
                messages: None,
                there: None,
            });
            if self.group.resolved && by_ip {
                self.cm.resolve_addr(id, Some(here), group, RESOLVE)?;
            } else {
                self.cm.bind_addr(id, here)?;
                self.enter(number)?;
            }
        }
        while self.done.connections < self.members.len() {
            let event = next_event(self.cm, self.channel)?;
            self.handle(&event)?;
        }
        Ok(())
    }

    fn handle(&mut self, event: &CmEvent) -> Result<()> {
        let number = event.context as usize;
        match event.event {
            EventType::AddrResolved => self.enter(number),
            EventType::MulticastJoin => {
                log::info!("queue pair {number} joined {}", event.ud.ah_attr.dgid);
                let there = RemoteQp::from_event(self.cm, &event.ud)?;
                self.members[number].there = Some((there, event.ud.ah_attr.dgid));
                self.done.connections += 1;
                Ok(())
            }
            _ => Err(format!(
                "queue pair {number}: {}",
                Unreached::from_event(self.cm, event)
            )
            .into()),
        }
    }

    /// Makes the queue pair of an id, which can receive before it is in the group.
    fn enter(&mut self, number: usize) -> Result<()> {
        let member = &mut self.members[number];
        member.messages = Some(Messages::new(self.cm, member.id, self.sizes)?);
        let join = JoinMulticast {
            group: self.group.address,
            send_only: self.group.send_only,
            context: number as u64,
        };
        Ok(self.cm.join_multicast_ex(member.id, &join)?)
    }

    /// Gives switches time to learn who is in the group.
    pub(crate) fn settle(&mut self) -> Result<()> {
        let end = self.cm.now() + SETTLE;
        while self.cm.now() < end {
            self.cm.wait(end)?;
        }
        Ok(())
    }

    /// Sends all that there is to say.
    pub(crate) fn send(&mut self) -> Result<()> {
        for (number, member) in self.members.iter().enumerate() {
            if let Member {
                messages: Some(messages),
                there: Some((there, _)),
                ..
            } = member
            {
                messages.say(&text(number, self.amount.size()))?;
                self.done.sent += there.send(self.cm, messages)?;
            }
        }
        Ok(())
    }

    /// Waits for all messages. `verify`: they come from as many queue pairs as there are here, and are those of this
    /// program.
    pub(crate) fn receive(&mut self, verify: bool) -> Result<()> {
        for number in 0..self.members.len() {
            let mut by_sender = BTreeMap::new();
            for _ in 0..self.sizes.receives {
                self.receive_one(number, &mut by_sender)?;
            }
            if verify && self.sizes.receives > 0 {
                self.verify(by_sender)
                    .map_err(|error| format!("queue pair {number}: {error}"))?;
            }
        }
        Ok(())
    }

    fn receive_one(
        &mut self,
        number: usize,
        by_sender: &mut BTreeMap<u32, SenderMessages>,
    ) -> Result<()> {
        let Some(messages) = &self.members[number].messages else {
            return Ok(());
        };
        let wc = if self.done.received == 0 {
            // The first one has no time limit.
            messages.check(self.cm.get_recv_comp(messages.id()))?
        } else {
            messages.receive(self.cm)?
        };
        self.done.received += 1;
        let (header, message) = messages.received(wc.wr_id as usize)?;
        self.check(&wc, &header, number)?;
        let sender = wc.src_qp.number();
        let entry = by_sender.entry(sender).or_insert_with(|| SenderMessages {
            message: message.clone(),
            times: 0,
        });
        entry.times += 1;
        if entry.message == message {
            return Ok(());
        }
        Err(format!("queue pair {number}: two different messages from {sender:#x}").into())
    }

    /// That a datagram was sent to the group, and says who sent it.
    fn check(&self, wc: &Wc, header: &[u8], number: usize) -> Result<()> {
        let to_group = match (self.cm.port().link_layer, self.group.address) {
            (LinkLayer::Ethernet, IpAddr::V4(group)) => header.ends_with(&group.octets()),
            (LinkLayer::Ethernet, IpAddr::V6(group)) => header.ends_with(&group.octets()),
            // Of an IP address the GID has a part.
            (LinkLayer::InfiniBand, _) => {
                let there = self.members[number].there.as_ref();
                there.is_some_and(|(_, mgid)| header.ends_with(&mgid.0))
            }
        };
        if !to_group {
            return Err("a datagram came that is not for the group".into());
        }
        if wc.flags.contains(WcFlags::WITH_IMM) && wc.imm_data == wc.src_qp.number() {
            return Ok(());
        }
        Err(format!(
            "a datagram of {} calls itself {:#x}",
            wc.src_qp, wc.imm_data
        )
        .into())
    }

    fn verify(&self, by_sender: BTreeMap<u32, SenderMessages>) -> Result<()> {
        let (count, messages) = (self.amount.connections(), self.amount.messages());
        if by_sender.len() != count || by_sender.values().any(|sender| sender.times != messages) {
            return Err("not all that was sent was received".into());
        }
        let sorted = |mut messages: Vec<Vec<u8>>| {
            messages.sort_unstable();
            messages
        };
        let said = (0..count).map(|number| text(number, self.amount.size()));
        let received = by_sender.into_values().map(|sender| sender.message);
        if sorted(said.collect()) == sorted(received.collect()) {
            return Ok(());
        }
        Err("the received messages are not the sent ones".into())
    }

    pub(crate) fn leave(mut self) -> Result<Exchanged> {
        for Member { id, messages, .. } in self.members.drain(..) {
            self.cm.leave_multicast(id, self.group.address)?;
            drop(messages);
            self.cm.destroy_id(id)?;
        }
        self.cm.destroy_event_channel(self.channel)?;
        Ok(self.done)
    }
}
