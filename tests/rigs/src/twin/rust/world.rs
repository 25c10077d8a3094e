//! The device, the connection manager and the clock of the runner, and the way from line to line.

use super::Printed;
use super::line::{Left, Line};
use super::objects::{Destroyed, Entry, Missing, Object, Objects};
use crate::twin::compare::Results;
use crate::twin::script::{END, Script};
use bareverbs_cm::ip;
use bareverbs_cm::rdma::{self, NeighbourDiscovery, RdmaCm};
use bareverbs_core::{
    AsyncEvent, Config, Cqs, Device, EthernetInit, PageChunks, Platform, Qps, Resources, Srqs,
};
use bareverbs_in_process::{Builder, ModelPlatform as P};
use std::collections::{HashMap, HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// The port's addresses, with their prefixes: those that the machine's has.
const ADDRESSES: [(&str, u8); 2] = [("10.0.0.1", 24), ("fd00::1", 64)];

/// Time for what has to come, as in language.c.
pub(super) const COMES: u64 = 10_000;

type Cm<'s, 'd> = RdmaCm<'s, 'd, P, NeighbourDiscovery<'s, 'd, P>>;

/// Runs scripts on a new device.
pub(super) fn run(scripts: &[Script], linux: &Results<'_>, printed: &mut Printed) {
    type Queues = Resources<Qps<128>, Cqs<128>, Srqs<64>, PageChunks<256>>;
    let world = Builder::new()
        .function(connectx_model::Config::new(1))
        .function(connectx_model::Config::new(2))
        .stepped();
    let mut resources = Box::new(Queues::new());
    let device = world.open(0, Config::DEFAULT, resources.storage(), &[]);
    let pd = device.default_pd().expect("a protection domain");
    let mut host =
        ip::Resources::<ip::Addresses<2>, ip::Neighbours<64>, ip::Routes<1>, ip::Groups<16>>::new();
    let mut ids = Box::new(rdma::Resources::<rdma::Ids<P, 64>, rdma::Channels<16>>::new());
    let config = ip::Config::new(1);
    let mut neighbours = NeighbourDiscovery::new(
        &device,
        &pd,
        EthernetInit::default(),
        config,
        host.storage(),
    )
    .expect("a queue");
    for (address, prefix) in ADDRESSES {
        let address = address.parse().expect("an address");
        neighbours.add_address(address, prefix, None).expect("room");
    }
    let deadline = device.platform().now() + Duration::from_secs(10);
    neighbours.wait_for_addresses(deadline).expect("addresses");
    let cm = RdmaCm::new(&device, neighbours, rdma::Config::new(1), ids.storage()).expect("QP1");
    let mut runner = Runner {
        device: &device,
        cm,
        objects: Objects::default(),
        events: VecDeque::new(),
        data: HashMap::new(),
        ports: HashSet::new(),
        failed: false,
    };
    for script in scripts {
        let Some(results) = linux.get(script.name.as_str()) else {
            continue;
        };
        let of_linux = |number| results.get(&number).copied().unwrap_or_default();
        printed.add(script, runner.script(script, &of_linux));
    }
}

/// A device in use by scripts.
pub(super) struct Runner<'s, 'd> {
    pub(super) device: &'d Device<'d, P>,
    pub(super) cm: Cm<'s, 'd>,
    pub(super) objects: Objects<'d>,
    /// Asynchronous events that were not asked for yet.
    pub(super) events: VecDeque<AsyncEvent>,
    /// The places of the requests' data, by direction and the lowest bits of their ids.
    pub(super) data: HashMap<(bool, u8), (u64, usize)>,
    /// Ports that the lines of the script have named; others are chosen.
    pub(super) ports: HashSet<u16>,
    /// `true` if the call before has failed.
    pub(super) failed: bool,
}

impl<'d> Runner<'_, 'd> {
    /// Runs a script. The result of a call that was left out is the reason.
    fn script<'a>(
        &mut self,
        script: &Script,
        linux: &impl Fn(usize) -> &'a str,
    ) -> Vec<Result<String, String>> {
        let mut results = Vec::new();
        let mut lost = false;
        self.turn();
        self.events.clear();
        for (number, line) in script.lines.iter().enumerate() {
            let on_linux = linux(number);
            // Where Linux's library dies there is nothing to be held to.
            lost |= on_linux.starts_with("died");
            if lost {
                results.push(Err("behind a call that was left out".into()));
                continue;
            }
            let line = Line::read(line);
            let result = catch_unwind(AssertUnwindSafe(|| self.line(&line)));
            let result = result.unwrap_or_else(|_| Ok("died".into()));
            self.failed = match &result {
                Ok(told) => ["left out", "-1", "null"]
                    .iter()
                    .any(|it| told.starts_with(it)),
                Err(_) => true,
            };
            lost = result.is_err() && has_effect(&line, on_linux);
            let result = result.map(|told| filled(&told, on_linux));
            results.push(result.map_err(|reason| match reason {
                NO_CALL => format!("no such call: {}", line.call),
                reason => reason.into(),
            }));
        }
        self.clear();
        results
    }

    /// Drops what a script has left. Connections have to be over before the next one has as many.
    fn clear(&mut self) {
        let ids = self
            .objects
            .entries
            .iter()
            .filter_map(|entry| match entry.object {
                Some(Object::Id(ref ident)) => Some(ident.id),
                _ => None,
            });
        for id in ids {
            // It may be gone.
            let _ = self.cm.destroy_id(id);
        }
        for entry in &self.objects.entries {
            if let Some(Object::EventChannel(channel)) = entry.object {
                let _ = self.cm.destroy_event_channel(channel);
            }
        }
        self.objects.clear();
        self.data.clear();
        self.ports.clear();
        self.turn();
        self.wait(100 * COMES, |it| {
            (it.cm.connections_in_use() == 0).then_some(())
        });
    }

    /// Makes the call of a line.
    fn line(&mut self, line: &Line<'_>) -> Result<String, Left> {
        if line.call == END {
            return Ok(self.end());
        }
        let count = self.objects.entries.len();
        let told = match self.call(line) {
            Ok(told) => told,
            Err(Missing::Gone) => "left out".into(),
            Err(Missing::Unknown(left)) => return Err(left),
        };
        // An object that was not made has its name, too.
        if let Some(name) = line.name
            && self.objects.entries.len() == count
        {
            let (name, object) = (name.into(), None);
            self.objects.entries.push(Entry { name, object });
        }
        Ok(told)
    }

    fn call(&mut self, line: &Line<'_>) -> Result<String, Missing> {
        if let Some(told) = self.verbs_call(line) {
            return told;
        }
        if let Some(told) = self.data_call(line) {
            return told;
        }
        if let Some(told) = self.cm_call(line) {
            return told;
        }
        Err(Missing::Unknown(NO_CALL))
    }

    /// Keeps an object that was made, under the name that it has in the line.
    pub(super) fn keep(
        &mut self,
        line: &Line<'_>,
        made: Result<Object<'d>, &'static str>,
    ) -> Result<String, Missing> {
        Ok(match made {
            Ok(object) => {
                let (name, object) = (line.name.unwrap_or_default().into(), Some(object));
                self.objects.entries.push(Entry { name, object });
                "made".into()
            }
            Err(name) => format!("null {name}"),
        })
    }

    /// Destroys an object.
    pub(super) fn destroy(&mut self, object: Object<'d>) -> Destroyed<'d> {
        match object {
            Object::Memory(_) => {
                // Regions that stay are still in it.
                self.objects.memory.push(object);
                Ok(())
            }
            Object::EventChannel(_) | Object::Id(_) | Object::QpOfId(..) => {
                self.destroy_of_cm(object)
            }
            object => object.destroy(),
        }
    }

    /// Destroys the object that a line names.
    pub(super) fn destroy_named(&mut self, line: &Line<'_>) -> Result<String, Missing> {
        let name = line.at(0)?;
        self.objects.find(name)?;
        let mut entries = self.objects.entries.iter();
        let index = entries
            .rposition(|entry| entry.name == name)
            .unwrap_or_default();
        let Some(object) = self.objects.entries[index].object.take() else {
            return Err(Missing::Gone);
        };
        Ok(match self.destroy(object) {
            Ok(()) => "0".into(),
            Err((object, error)) => {
                self.objects.entries[index].object = Some(object);
                error.into()
            }
        })
    }

    /// Ends a script, as runner.c does.
    fn end(&mut self) -> String {
        let mut told = Vec::new();
        for round in 0..3 {
            for index in (0..self.objects.entries.len()).rev() {
                let entry = &mut self.objects.entries[index];
                let Some(object) = entry.object.take() else {
                    continue;
                };
                let (kept, error) = match self.destroy(object) {
                    Ok(()) => continue,
                    Err(stays) => stays,
                };
                let entry = &mut self.objects.entries[index];
                entry.object = Some(kept);
                match round {
                    0 => told.push(format!("{}={error}", entry.name)),
                    2 => told.push(format!("{}=stays", entry.name)),
                    _ => {}
                }
            }
        }
        match told.is_empty() {
            true => "all gone".into(),
            false => told.join(" "),
        }
    }

    /// Lets everything go on by a turn: the clock is virtual, and goes on when there is nothing to do.
    pub(super) fn turn(&mut self) {
        // A device that has failed shows in the calls.
        let _ = self.cm.poll(self.cm.now());
        while let Some(event) = self.device.next_async_event() {
            self.cm.handle_async_event(&event);
            self.events.push_back(event);
        }
        self.device.platform().relax();
    }

    /// Looks for something until it is there, for so many milliseconds.
    pub(super) fn wait<T>(
        &mut self,
        milliseconds: u64,
        mut look: impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<T> {
        let end = self.cm.now() + Duration::from_millis(milliseconds);
        loop {
            let found = look(self);
            if found.is_some() || self.cm.now() >= end {
                return found;
            }
            self.turn();
        }
    }
}

/// A result with Linux's words in place of those that Rust's API does not have: a `?` stands for what Linux's word has between
/// the same beginning and end, and stays where it has another word.
fn filled(told: &str, on_linux: &str) -> String {
    let words = on_linux.split(' ').chain(std::iter::repeat(""));
    let one = |(word, of_linux): (&'_ str, &'_ str)| {
        let is_filled = word.split_once('?').is_some_and(|(begin, end)| {
            let rest = of_linux.strip_prefix(begin);
            rest.is_some_and(|rest| rest.len() > end.len() && rest.ends_with(end))
        });
        if is_filled { of_linux } else { word }.to_string()
    };
    let words: Vec<String> = told.split(' ').zip(words).map(one).collect();
    words.join(" ")
}

const NO_CALL: Left = "no such call";

/// Says whether a call that is left out has changed anything on Linux: then the script cannot go on.
fn has_effect(line: &Line<'_>, on_linux: &str) -> bool {
    let only_asks = line.call.starts_with("query_")
        || line.call == "rdma_init_qp_attr"
        || ["id", "mr", "cq", "no_async", "sum", "device_list"].contains(&line.call);
    let failed = ["null", "-1", "E", "left out", "none", "no_such"];
    !only_asks && !failed.iter().any(|it| on_linux.starts_with(it))
}

#[cfg(test)]
mod tests {
    use super::filled;

    #[test]
    fn words_without_a_counterpart_are_filled_in() {
        for (told, on_linux, filled_in) in [
            (
                "0 cqs=? state=3",
                "0 cqs=cq,cq state=2",
                "0 cqs=cq,cq state=3",
            ),
            ("mtu=?,5", "mtu=2,5", "mtu=2,5"),
            ("mtu=?,5", "mtu=2,3", "mtu=?,5"),
            ("null E?", "null EBUSY", "null EBUSY"),
            ("q=E?", "q=EBUSY", "q=EBUSY"),
            ("E?", "0", "E?"),
            ("null E?", "made", "null E?"),
            ("global=? port=1", "to=none", "global=? port=1"),
        ] {
            assert_eq!(filled(told, on_linux), filled_in);
        }
    }
}
