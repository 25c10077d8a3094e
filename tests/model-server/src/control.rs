//! What befalls a card, by lines on standard input:
//!
//! | line | effect |
//! |---|---|
//! | `link FUNCTION up` or `down` | the cable is plugged in or out |
//! | `health FUNCTION SYNDROME` | the firmware stops with this syndrome (decimal) |
//! | `vanish FUNCTION` | the card falls off the bus |
//! | `pages FUNCTION COUNT` | the next object costs this many pages more |

use crate::world::{Function, World};
use std::io;

/// What a line asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Link(bool),
    Health(u8),
    Vanish,
    Pages(u32),
}

/// The function and what befalls it; `None` if the line makes no sense.
fn parse(line: &str) -> Option<(usize, Event)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let event = match words[..] {
        ["link", _, "up"] => Event::Link(true),
        ["link", _, "down"] => Event::Link(false),
        ["health", _, syndrome] => Event::Health(syndrome.parse().ok().filter(|&s| s != 0)?),
        ["vanish", _] => Event::Vanish,
        ["pages", _, count] => Event::Pages(count.parse().ok()?),
        _ => return None,
    };
    Some((words.get(1)?.parse().ok()?, event))
}

/// Does what the lines say until there are no more.
pub(crate) fn follow(world: &World, lines: impl Iterator<Item = io::Result<String>>) {
    for line in lines.map_while(Result::ok) {
        let Some((index, event)) = parse(&line).filter(|&(index, _)| index < world.functions())
        else {
            log::error!("standard input: {line:?}");
            continue;
        };
        log::info!("function {index}: {event:?}");
        world.with(index, |Function { model, port }| match event {
            Event::Link(up) => model.set_link(port, up),
            Event::Health(syndrome) => model.fail_health(syndrome, 0),
            Event::Vanish => model.vanish(),
            Event::Pages(count) => model.set_page_appetite(count),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        assert_eq!(parse("link 1 down"), Some((1, Event::Link(false))));
        assert_eq!(parse("link 0 up "), Some((0, Event::Link(true))));
        assert_eq!(parse("health 0 12"), Some((0, Event::Health(12))));
        assert_eq!(parse("vanish 3"), Some((3, Event::Vanish)));
        assert_eq!(parse("pages 0 40"), Some((0, Event::Pages(40))));
        for bad in [
            "",
            "link",
            "link x up",
            "health 0 0",
            "health 0 256",
            "vanish",
        ] {
            assert_eq!(parse(bad), None, "{bad:?}");
        }
    }
}
