//! Arrows against the order of a crate's folders, which is the one that `docs/architecture.md` draws.

use super::{Crate, Module};
use crate::outcome::Outcome;

/// The order of a crate's modules: each names itself and those after it.
struct Order {
    folder: &'static str,
    /// Paths from the crate's root; a file belongs to the longest one that it lies in. The root itself is in no order.
    modules: &'static [&'static str],
    /// The most arrows from one file to another that go back. The number only falls.
    back: usize,
}

const ORDERS: &[Order] = &[
    Order {
        folder: "core/src",
        modules: &[
            "conformance",
            "ethernet",
            "verbs",
            "device",
            "firmware",
            "memory",
            "types",
            "platform",
            "barrier",
        ],
        // One of types::error; the others are tests' (memory::ring_tests, memory::loom_tests).
        back: 5,
    },
    Order {
        folder: "cm/src",
        modules: &[
            "ipoib",
            "rdma",
            "rdma::tasks",
            "rdma::calls",
            "rdma::conn",
            "rdma::manager",
            "rdma::storage",
            "rdma::route",
            "rdma::id",
            "rdma::verbs",
            "rdma::resolver",
            "rdma::port",
            "rdma::types",
            "engine",
            "sa",
            "mad",
            "ip",
        ],
        back: 0,
    },
];

/// Checks a crate that has an order.
pub(super) fn check(folder: &str, krate: &Crate, outcome: &mut Outcome) {
    let Some(order) = ORDERS.iter().find(|order| order.folder == folder) else {
        return;
    };
    let (back, unordered) = krate.against(order.modules);
    println!(
        "{folder}: arrows against the order of its folders: {}",
        back.len()
    );
    for (from, to) in &back {
        println!("  {} names {}", from.join("::"), to.join("::"));
    }
    for module in &unordered {
        println!("  {} has no place in the order", module.join("::"));
    }
    outcome.check(unordered.is_empty(), || {
        format!(
            "{folder}: {} files without a place in the order",
            unordered.len()
        )
    });
    outcome.check(back.len() <= order.back, || {
        let (count, most) = (back.len(), order.back);
        format!("{folder}: {count} arrows against the order of its folders, {most} at most")
    });
}

impl Crate {
    /// The arrows against an order of modules, and the files that have no place in it.
    fn against(&self, order: &[&str]) -> (Vec<(&Module, &Module)>, Vec<&Module>) {
        let place = |module: &Module| {
            let path = module.join("::");
            let within = |of: &str| {
                let rest = path.strip_prefix(of);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
            };
            let found = order.iter().enumerate().filter(|(_, of)| within(of));
            found.max_by_key(|(_, of)| of.len()).map(|(place, _)| place)
        };
        let ordered = || self.files.keys().filter(|module| !module.is_empty());
        let back = ordered()
            .flat_map(|from| self.arrows(from).into_iter().map(move |to| (from, to)))
            .filter(|(from, to)| matches!((place(from), place(to)), (Some(from), Some(to)) if to < from));
        (
            back.collect(),
            ordered().filter(|module| place(module).is_none()).collect(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::read;
    use super::*;

    #[test]
    fn an_arrow_against_the_order_is_found_and_a_file_without_a_place_too() {
        let krate = read(
            "order",
            &[
                ("lib.rs", "mod a; mod ab; mod b; pub use b::inner::Inner;"),
                ("a/mod.rs", "pub mod low; use crate::b::B; pub struct A(B);"),
                (
                    "a/low.rs",
                    "use crate::Inner; use super::A; pub struct Low(Inner, A);",
                ),
                ("ab.rs", "use crate::a::A;"),
                ("b/mod.rs", "pub mod inner; pub struct B;"),
                ("b/inner.rs", "use crate::a::low::Low; pub struct Inner;"),
            ],
        );
        let (back, unordered) = krate.against(&["a", "b", "a::low"]);
        let names = |(from, to): &(&Module, &Module)| [from.join("::"), to.join("::")];
        let back: Vec<[String; 2]> = back.iter().map(names).collect();
        assert_eq!(back, [["a::low", "a"], ["a::low", "b::inner"]]);
        assert_eq!(unordered, [&["ab".to_owned()]]);
    }
}
