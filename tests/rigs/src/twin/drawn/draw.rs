//! A script that is being drawn, and what there is in it.

use connectx_model::link::rng::Rng;
use std::collections::VecDeque;

/// The bytes of the memory that the runner maps.
pub(super) const BUFFER: u32 = 65536;
/// The bytes of a receive's place.
pub(super) const PLACE: u32 = 4096;
pub(super) const PLACES: usize = (BUFFER / 2 / PLACE) as usize;

/// The kind of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Domain,
    Memory,
    Region,
    Window,
    Channel,
    Completions,
    Shared,
    XrcDomain,
    Address,
    QueuePair,
}

/// An object.
pub(super) struct Thing {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) gone: bool,
    /// The objects that cannot go before it.
    pub(super) of: Vec<usize>,
    /// A region's: its access flags, or 0 if requests are not to use it.
    pub(super) access: u32,
    /// A region's: the receives that wait with it.
    pub(super) posted: u32,
    /// A shared queue's: the receives that wait.
    pub(super) receives: VecDeque<Receive>,
    /// A window's: its region, and the queue pair that bound it.
    pub(super) bound: Option<(usize, usize)>,
    /// A queue of completions': the entries that were asked for.
    pub(super) entries: u32,
    /// It is of the second kind: a window of type 2, or a queue for XRC.
    pub(super) second: bool,
    /// A shared queue's: an event comes when fewer receives wait.
    pub(super) limit: u32,
    /// A queue of completions': it has been asked for an event, of solicited completions only or of each.
    pub(super) armed: Option<Armed>,
    /// A queue of completions': the events that were taken and not acknowledged.
    pub(super) owed: u32,
    /// An address handle's: the group to which it leads.
    pub(super) group: Option<&'static str>,
    pub(super) pair: Option<Pair>,
}

/// A script that is being drawn.
pub(super) struct Draw {
    pub(super) rng: Rng,
    pub(super) lines: Vec<String>,
    pub(super) things: Vec<Thing>,
    /// The places of memory in which a receive may come, or has come and was not taken.
    pub(super) taken: [bool; PLACES],
    /// The asynchronous events that come and were not taken.
    pub(super) events: u32,
    /// Requests that read so far: each has the next place in memory.
    pub(super) reads: u32,
}

/// The completions of which a queue tells by an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Armed {
    Each,
    Solicited,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Rc,
    Uc,
    Ud,
    XrcSend,
    XrcReceive,
}

impl Type {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Rc => "QPT_RC",
            Self::Uc => "QPT_UC",
            Self::Ud => "QPT_UD",
            Self::XrcSend => "QPT_XRC_SEND",
            Self::XrcReceive => "QPT_XRC_RECV",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Reset,
    Init,
    Receives,
    Sends,
    Error,
}

/// A request that was sent.
pub(super) struct Sent {
    /// It completes although nothing is wrong with it.
    pub(super) completes: bool,
    /// It has immediate data.
    pub(super) immediate: bool,
    /// The places of memory that it reads into.
    pub(super) places: u32,
}

/// A queue pair.
pub(super) struct Pair {
    pub(super) kind: Type,
    pub(super) state: State,
    /// The other end; without one it is connected to itself, and nothing is posted.
    pub(super) partner: Option<usize>,
    /// The other end has gone, or has begun again, since this one was connected.
    pub(super) broken: bool,
    /// It was able to send since it was reset.
    pub(super) was_ready: bool,
    /// It was reset.
    pub(super) again: bool,
    pub(super) send_cq: usize,
    pub(super) recv_cq: usize,
    pub(super) shared: Option<usize>,
    pub(super) extended: bool,
    pub(super) sig_all: bool,
    pub(super) wr: u32,
    pub(super) sges: u32,
    pub(super) inline: u32,
    pub(super) access: u32,
    pub(super) mtu: u32,
    pub(super) rnr_retry: u32,
    /// Requests, until the completion of a later one has been taken.
    pub(super) sent: VecDeque<Sent>,
    /// The receives that wait; a shared queue has its own.
    pub(super) waiting: VecDeque<Receive>,
    /// The places of receives that have completed and were not taken.
    pub(super) arrived: VecDeque<usize>,
    /// The groups that it is attached to.
    pub(super) groups: Vec<&'static str>,
}

/// A receive.
pub(super) struct Receive {
    pub(super) bytes: u32,
    pub(super) region: usize,
    pub(super) place: usize,
}

impl Draw {
    pub(super) fn say(&mut self, line: impl Into<String>) {
        self.lines.push(line.into());
    }

    pub(super) fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.rng.below(of.len() as u32) as usize]
    }

    /// Adds an object that the next line makes. Its name is the word and a number.
    pub(super) fn add(&mut self, kind: Kind, word: &str, of: &[usize]) -> usize {
        let name = format!("{word}{}", self.things.len());
        self.things.push(Thing {
            name,
            kind,
            gone: false,
            of: of.to_vec(),
            access: 0,
            posted: 0,
            receives: VecDeque::new(),
            bound: None,
            entries: 0,
            second: false,
            limit: 0,
            armed: None,
            owed: 0,
            group: None,
            pair: None,
        });
        self.things.len() - 1
    }

    /// Says a call that makes an object which is not used afterwards: it has to fail.
    pub(super) fn vain(&mut self, word: &str, call: &str) {
        let name = format!("{word}{}", self.things.len());
        let vain = self.add(Kind::Memory, word, &[]);
        self.things[vain].gone = true;
        self.say(format!("{name} = {call}"));
    }

    pub(super) fn name(&self, thing: usize) -> &str {
        &self.things[thing].name
    }

    /// The objects of a kind that are there.
    pub(super) fn all(&self, kind: Kind) -> Vec<usize> {
        self.some(|thing| thing.kind == kind)
    }

    pub(super) fn some(&self, wanted: impl Fn(&Thing) -> bool) -> Vec<usize> {
        let there = |thing: &usize| !self.things[*thing].gone && wanted(&self.things[*thing]);
        (0..self.things.len()).filter(there).collect()
    }

    /// One of the objects of a kind that are there.
    pub(super) fn any(&mut self, kind: Kind) -> Option<usize> {
        let all = self.all(kind);
        self.among(&all)
    }

    pub(super) fn among(&mut self, all: &[usize]) -> Option<usize> {
        (!all.is_empty()).then(|| self.one(all))
    }

    /// Returns `true` if an object that is there cannot do without this one.
    pub(super) fn is_used(&self, thing: usize) -> bool {
        let bound = |other: &Thing| other.bound.is_some_and(|(region, _)| region == thing);
        !self
            .some(|other| other.of.contains(&thing) || bound(other))
            .is_empty()
    }
}
