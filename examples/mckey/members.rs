//! The queue pairs of one end, from joining the group to leaving it.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bareverbs::cm::rdma::{ChannelId, CmEvent, CmId, EventType, JoinMulticast, PortSpace};
use bareverbs::verbs::{Platform, Wc, WcFlags};

use crate::Result;
use bareverbs_examples::datagrams::{self, GRH, There};
use bareverbs_examples::exchange::{Amount, Exchanged, Messages, RESOLVE, Room, next_event, text};
use bareverbs_node::Cm;
use bareverbs_node::Unreached;

/// How long switches may take to learn of a new member.
const SETTLE: Duration = Duration::from_secs(3);

/// What is joined, and how.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Group {
    pub(crate) address: IpAddr,
    /// Whether the way there is asked for as that to any address.
    pub(crate) resolved: bool,
    pub(crate) port_space: PortSpace,
    pub(crate) send_only: bool,
}

/// What was heard from one queue pair.
struct Heard {
    message: Vec<u8>,
    times: u32,
}

/// One queue pair.
struct Member<'d, P: Platform> {
    id: CmId,
    messages: Option<Messages<'d, P>>,
    /// Where the group is, once it was joined.
    there: Option<There>,
}

pub(crate) struct Members<'c, 's, 'd, P: Platform> {
    cm: &'c mut Cm<'s, 'd, P>,
    group: Group,
    amount: Amount,
    room: Room,
    channel: ChannelId,
    /// The context of an id is its place here.
    members: Vec<Member<'d, P>>,
    done: Exchanged,
}

impl<'c, 's, 'd, P: Platform> Members<'c, 's, 'd, P> {
    /// Those that hear so many queue pairs at once.
    pub(crate) fn receivers(
        cm: &'c mut Cm<'s, 'd, P>,
        group: Group,
        amount: Amount,
        senders: usize,
    ) -> Result<Self> {
        let receives = amount.messages().checked_mul(senders.try_into()?);
        let receives = receives.ok_or("-c and -C: too many messages")?;
        let room = Room {
            size: amount.size(),
            header: GRH,
            sends: 0,
            receives,
            places: receives as usize,
        };
        Self::new(cm, group, amount, room)
    }

    /// Those that only speak.
    pub(crate) fn senders(cm: &'c mut Cm<'s, 'd, P>, group: Group, amount: Amount) -> Result<Self> {
        let room = Room {
            size: amount.size(),
            header: GRH,
            sends: amount.messages(),
            receives: 0,
            places: 0,
        };
        Self::new(cm, group, amount, room)
    }

    fn new(cm: &'c mut Cm<'s, 'd, P>, group: Group, amount: Amount, room: Room) -> Result<Self> {
        datagrams::check_size(cm, amount)?;
        let channel = cm.create_event_channel()?;
        Ok(Self {
            cm,
            group,
            amount,
            room,
            channel,
            members: Vec::with_capacity(amount.connections()),
            done: Exchanged::default(),
        })
    }

    /// Joins the group with all of them.
    pub(crate) fn join(&mut self, here: IpAddr) -> Result<()> {
        let here = SocketAddr::new(here, 0);
        let group = SocketAddr::new(self.group.address, 0);
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
            if self.group.resolved {
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
                self.members[number].there = Some(There::told(self.cm, &event.ud)?);
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
        member.messages = Some(Messages::new(self.cm, member.id, self.room)?);
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
                there: Some(there),
                ..
            } = member
            {
                messages.say(&text(number, self.amount.size()))?;
                self.done.sent += there.send(self.cm, messages)?;
            }
        }
        Ok(())
    }

    /// Waits for all that there is to hear. `verify`: it comes from as many queue pairs as there are here, and is what those
    /// of this program say.
    pub(crate) fn receive(&mut self, verify: bool) -> Result<()> {
        for number in 0..self.members.len() {
            let mut heard = BTreeMap::new();
            for _ in 0..self.room.receives {
                self.hear(number, &mut heard)?;
            }
            if verify && self.room.receives > 0 {
                self.verify(heard)
                    .map_err(|error| format!("queue pair {number}: {error}"))?;
            }
        }
        Ok(())
    }

    fn hear(&mut self, number: usize, heard: &mut BTreeMap<u32, Heard>) -> Result<()> {
        let Some(messages) = &self.members[number].messages else {
            return Ok(());
        };
        let wc = if self.done.received == 0 {
            // The first one comes when it likes.
            messages.check(self.cm.get_recv_comp(messages.id())?)?
        } else {
            messages.receive(self.cm)?
        };
        self.done.received += 1;
        let (header, message) = messages.heard(wc.wr_id as usize)?;
        self.check(&wc, &header)?;
        let sender = wc.src_qp.number();
        let heard = heard.entry(sender).or_insert_with(|| Heard {
            message: message.clone(),
            times: 0,
        });
        heard.times += 1;
        if heard.message == message {
            return Ok(());
        }
        Err(format!("queue pair {number}: two different messages from {sender:#x}").into())
    }

    /// That a datagram was sent to the group, and says who sent it.
    fn check(&self, wc: &Wc, header: &[u8]) -> Result<()> {
        let to_group = match self.group.address {
            IpAddr::V4(group) => header.ends_with(&group.octets()),
            IpAddr::V6(group) => header.ends_with(&group.octets()),
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

    fn verify(&self, heard: BTreeMap<u32, Heard>) -> Result<()> {
        let (count, messages) = (self.amount.connections(), self.amount.messages());
        if heard.len() != count || heard.values().any(|heard| heard.times != messages) {
            return Err("not all that was sent was heard".into());
        }
        let sorted = |mut messages: Vec<Vec<u8>>| {
            messages.sort_unstable();
            messages
        };
        let said = (0..count).map(|number| text(number, self.amount.size()));
        let heard = heard.into_values().map(|heard| heard.message);
        if sorted(said.collect()) == sorted(heard.collect()) {
            return Ok(());
        }
        Err("what was heard is not what was said".into())
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
