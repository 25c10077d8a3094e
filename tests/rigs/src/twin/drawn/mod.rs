//! Drawn scripts: objects are created, connected, used, modified, queried and destroyed in an order that a seed gives.
//!
//! A loose model of what exists lets most calls make sense, and some be wrong by a little. What is undefined in rdma-core
//! itself is not drawn, nor what the interface leaves open: each queue of completions is of one queue of requests, and
//! what is received does not lie where something else is written.
//!
//! A script depends on its seed and its number only, and its name has both.

mod connections;
mod draw;
mod groups;
mod notices;
mod objects;
mod posts;
mod queue_pairs;
mod windows;
mod wrong;

use super::script::{END, Script};
use connectx_model::link::rng::Rng;
use draw::{Draw, Kind, PLACES};

/// The fewest and the most calls of a script, without those that end what was begun.
const CALLS: (u32, u32) = (30, 60);
/// The most objects of a script; the runner takes 128.
const MOST_OBJECTS: usize = 110;

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
        events: 0,
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

/// A draw of a call, or of some.
type Call = fn(&mut Draw);

impl Draw {
    /// The objects without which hardly a call makes sense.
    fn begin(&mut self) {
        self.domain();
        self.memory();
        self.whole_region();
        if self.rng.chance(500) {
            self.channel();
        }
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
            (8, Draw::join_group),
            (20, Draw::send_to_group),
            (10, Draw::share),
            (12, Draw::limit),
            (24, Draw::arm),
            (6, Draw::acknowledge_some),
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
        for cq in self.all(Kind::Completions) {
            self.acknowledge(cq);
        }
        self.leave_groups();
        self.nothing_is_left();
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
