//! Drawn scripts: objects are created, connected, used, modified, queried and destroyed in an order that a seed gives.
//!
//! A loose model of what exists lets most calls make sense, and some be wrong by a little. What is undefined in rdma-core
//! itself is not drawn, nor what the interface leaves open: each queue of completions is of one queue of requests, and
//! what is received does not lie where something else is written.
//!
//! A script depends on its seed and its number only, and its name has both.

mod connections;
mod objects;
mod posts;
mod queue_pairs;
mod windows;

use super::script::{END, Script};
use connectx_model::link::rng::Rng;
use posts::{PLACES, Receive};
use queue_pairs::Pair;
use std::collections::VecDeque;

/// The fewest and the most calls of a script, without those that end what was begun.
const CALLS: (u32, u32) = (30, 60);
/// The most objects of a script; the runner takes 128.
const MOST_OBJECTS: usize = 110;
/// The bytes of the memory that the runner maps.
const BUFFER: u32 = 65536;

/// Draws scripts until they have that many calls.
pub(super) fn scripts(seed: u64, calls: usize) -> Vec<Script> {
    let mut scripts = Vec::new();
    let mut drawn = 0;
    while drawn < calls {
        let script = script(seed, scripts.len() as u64);
        drawn += script.lines.len();
        scripts.push(script);
    }
    scripts
}

/// Draws the script of a number.
fn script(seed: u64, number: u64) -> Script {
    let mut draw = Draw {
        rng: Rng::new(seed.wrapping_mul(1 << 32).wrapping_add(number)),
        lines: Vec::new(),
        things: Vec::new(),
        taken: [false; PLACES],
        more_events: false,
        reads: 0,
    };
    let wanted = CALLS.0 + draw.rng.below(CALLS.1 - CALLS.0);
    // One of these is of connections, the others of verbs alone.
    if draw.rng.chance(250) {
        draw = connections::draw(draw, wanted as usize);
    } else {
        draw.begin();
        while draw.lines.len() < wanted as usize && draw.things.len() < MOST_OBJECTS {
            draw.call();
        }
        draw.end();
    }
    draw.say(END);
    Script {
        name: format!("drawn-{seed}-{number}"),
        lines: draw.lines,
    }
}

/// The kind of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
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
struct Thing {
    name: String,
    kind: Kind,
    gone: bool,
    /// The objects that cannot go before it.
    of: Vec<usize>,
    /// A region's: its access flags, or 0 if requests are not to use it.
    access: u32,
    /// A region's: the receives that wait with it.
    posted: u32,
    /// A shared queue's: the receives that wait.
    receives: VecDeque<Receive>,
    /// A window's: its region, and the queue pair that bound it.
    bound: Option<(usize, usize)>,
    /// A queue of completions': the entries that were asked for.
    entries: u32,
    /// It is of the second kind: a window of type 2, or a queue for XRC.
    second: bool,
    pair: Option<Pair>,
}

/// A draw of a call, or of some.
type Call = fn(&mut Draw);

/// A script that is being drawn.
struct Draw {
    rng: Rng,
    lines: Vec<String>,
    things: Vec<Thing>,
    /// The places of memory in which a receive may come, or has come and was not taken.
    taken: [bool; PLACES],
    /// There may be events that were not taken.
    more_events: bool,
    /// Requests that read so far: each has the next place in memory.
    reads: u32,
}

impl Draw {
    /// The objects without which hardly a call makes sense.
    fn begin(&mut self) {
        self.domain();
        self.memory();
        self.whole_region();
        if self.rng.chance(750) {
            self.connected();
        }
    }

    /// Draws a call, or some that belong together. It may draw nothing.
    fn call(&mut self) {
        const CALLS: &[(u32, Call)] = &[
            (4, Draw::domain),
            (8, Draw::region),
            (8, Draw::register_again),
            (8, Draw::window),
            (18, Draw::bind),
            (4, Draw::channel),
            (10, Draw::completions),
            (8, Draw::ask_completions),
            (8, Draw::shared),
            (6, Draw::ask_shared),
            (3, Draw::xrc_domain),
            (5, Draw::address),
            (8, Draw::any_queue_pair),
            (12, Draw::connected),
            (28, Draw::advance),
            (20, Draw::modify_wrongly),
            (16, Draw::ask_queue_pair),
            (4, Draw::multicast),
            (24, Draw::destroy),
            (6, Draw::ask_device),
            (30, Draw::receive),
            (100, Draw::send),
            (40, Draw::poll),
            (22, Draw::send_wrongly),
            (8, Draw::refused_post),
            (8, Draw::post_in_error),
            (16, Draw::post_through_window),
        ];
        let sum = CALLS.iter().map(|(weight, _)| weight).sum();
        let mut at = self.rng.below(sum);
        for (weight, call) in CALLS {
            if at < *weight {
                return call(self);
            }
            at -= weight;
        }
    }

    /// Takes what has not been taken, so that nothing is left to chance at the end.
    fn end(&mut self) {
        for pair in self.all(Kind::QueuePair) {
            self.poll_all(pair);
        }
    }

    fn say(&mut self, line: impl Into<String>) {
        self.lines.push(line.into());
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.rng.below(of.len() as u32) as usize]
    }

    /// Adds an object that the next line makes. Its name is the word and a number.
    fn add(&mut self, kind: Kind, word: &str, of: &[usize]) -> usize {
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
            pair: None,
        });
        self.things.len() - 1
    }

    /// Says a call that makes an object which is not used afterwards: it has to fail.
    fn vain(&mut self, word: &str, call: &str) {
        let name = format!("{word}{}", self.things.len());
        let vain = self.add(Kind::Memory, word, &[]);
        self.things[vain].gone = true;
        self.say(format!("{name} = {call}"));
    }

    fn name(&self, thing: usize) -> &str {
        &self.things[thing].name
    }

    /// The objects of a kind that are there.
    fn all(&self, kind: Kind) -> Vec<usize> {
        self.some(|thing| thing.kind == kind)
    }

    fn some(&self, wanted: impl Fn(&Thing) -> bool) -> Vec<usize> {
        let there = |thing: &usize| !self.things[*thing].gone && wanted(&self.things[*thing]);
        (0..self.things.len()).filter(there).collect()
    }

    /// One of the objects of a kind that are there.
    fn any(&mut self, kind: Kind) -> Option<usize> {
        let all = self.all(kind);
        self.among(&all)
    }

    fn among(&mut self, all: &[usize]) -> Option<usize> {
        (!all.is_empty()).then(|| self.one(all))
    }

    /// Returns `true` if an object that is there cannot do without this one.
    fn is_used(&self, thing: usize) -> bool {
        let bound = |other: &Thing| other.bound.is_some_and(|(region, _)| region == thing);
        !self
            .some(|other| other.of.contains(&thing) || bound(other))
            .is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::super::script;
    use super::*;

    #[test]
    fn a_seed_gives_the_same_scripts_again() {
        let some = scripts(7, 2000);
        assert_eq!(some, scripts(7, 2000));
        assert_ne!(some, scripts(8, 2000));
        // The first of more are the same.
        assert_eq!(some[..], scripts(7, 4000)[..some.len()]);
    }

    #[test]
    fn drawn_scripts_can_be_read() {
        let drawn = scripts(1, 20000);
        let lines: usize = drawn.iter().map(|script| script.lines.len()).sum();
        assert!(lines >= 20000);
        let text: Vec<String> = drawn
            .iter()
            .map(|drawn| {
                let calls = &drawn.lines[..drawn.lines.len() - 1];
                format!("script {}\n{}\n", drawn.name, calls.join("\n"))
            })
            .collect();
        assert_eq!(script::read(&[&text.concat()]).unwrap(), drawn);
    }

    #[test]
    fn drawn_calls_use_what_was_made_before() {
        for script in scripts(2, 20000) {
            let mut made = Vec::new();
            for line in &script.lines {
                let call = line
                    .split_once(" = ")
                    .map_or(line.as_str(), |(_, call)| call);
                for name in super::super::shrink::names(call) {
                    let known = script
                        .lines
                        .iter()
                        .any(|line| line.starts_with(&format!("{name} = ")));
                    assert!(!known || made.contains(&name), "{}: {line}", script.name);
                }
                if let Some((name, _)) = line.split_once(" = ") {
                    made.push(name);
                }
            }
            assert!(made.len() < 128);
        }
    }
}
