//! The table of programs that run.

mod cm;
mod infiniband;
mod mixed;
mod perftest;
mod raw;
mod rsockets;
mod sockets;
mod verbs;
mod verbs_abi;

use super::scenario::Scenario;

/// Everything that runs.
pub(super) fn all() -> impl Iterator<Item = &'static Scenario> {
    [
        verbs::ALL,
        verbs_abi::ALL,
        cm::ALL,
        mixed::ALL,
        rsockets::ALL,
        sockets::ALL,
        perftest::ALL,
        raw::ALL,
        infiniband::ALL,
    ]
    .into_iter()
    .flatten()
}

#[cfg(test)]
mod tests {
    use super::all;
    use crate::c_abi::scenario::Side;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_different_and_each_scenario_says_something() {
        let names: BTreeSet<&str> = all().map(|scenario| scenario.name).collect();
        assert_eq!(names.len(), all().count());
        for scenario in all() {
            assert!(!scenario.says.is_empty(), "{}", scenario.name);
            let of_client = scenario.says.iter().any(|(side, ..)| *side == Side::Client);
            assert_eq!(of_client, !scenario.client.is_empty(), "{}", scenario.name);
        }
    }
}
