//! Waiting for what another process has.

use std::thread;
use std::time::{Duration, Instant};

/// The interval at which it is tried again.
const INTERVAL: Duration = Duration::from_millis(1);

/// Opens something, and tries again while another process has it, for as long as `patience`.
///
/// # Errors
///
/// The error of `open`: the last one for which `is_in_use` returned `true`, or the first other one.
#[cfg_attr(not(feature = "last-messages"), expect(unreachable_pub))]
pub fn when_free<T, E>(
    patience: Duration,
    is_in_use: impl Fn(&E) -> bool,
    mut open: impl FnMut() -> Result<T, E>,
) -> Result<T, E> {
    let end = Instant::now().checked_add(patience);
    loop {
        match open() {
            Err(error) if is_in_use(&error) && end.is_none_or(|end| Instant::now() < end) => {
                thread::sleep(INTERVAL);
            }
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opening_is_tried_again_only_while_another_process_is_in_the_way() {
        let patience = Duration::MAX;
        let mut left = vec![Ok("open"), Err("in use"), Err("in use")];
        let opened = when_free(
            patience,
            |why| *why == "in use",
            || left.pop().expect("no more tries"),
        );
        assert_eq!(opened, Ok("open"));
        for (patience, why) in [(patience, "refused"), (Duration::ZERO, "in use")] {
            let mut tries = 0;
            let refused: Result<(), _> = when_free(
                patience,
                |why| *why == "in use",
                || {
                    tries += 1;
                    Err(why)
                },
            );
            assert_eq!((refused, tries), (Err(why), 1));
        }
    }
}
