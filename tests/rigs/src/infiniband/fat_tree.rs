//! A fat tree: leaves with adapters below and as many cables to spines above, one to each.

use std::fmt::Write as _;

/// Adapters at each leaf, and so many spines.
const WIDTH: usize = 18;
/// A process of the model serves 255 functions at most. With the switches' there are a thousand ports.
pub(super) const ADAPTERS: usize = 250;

/// The topology of so many adapters, as the model reads it.
pub(super) fn topology() -> String {
    let leaves = ADAPTERS.div_ceil(WIDTH);
    let mut text = String::new();
    // Writing to a string cannot fail.
    for leaf in 0..leaves {
        let _ = writeln!(text, "switch leaf{leaf} {}", 2 * WIDTH);
    }
    for spine in 0..WIDTH {
        let _ = writeln!(text, "switch spine{spine} {leaves}");
    }
    for adapter in 0..ADAPTERS {
        let (leaf, port) = (adapter / WIDTH, adapter % WIDTH + 1);
        let _ = writeln!(text, "adapter {adapter} leaf{leaf}:{port}");
    }
    for leaf in 0..leaves {
        for spine in 0..WIDTH {
            let (up, down) = (WIDTH + spine + 1, leaf + 1);
            let _ = writeln!(text, "cable leaf{leaf}:{up} spine{spine}:{down}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use connectx_model::link::subnet::Topology;

    #[test]
    fn the_model_reads_it() {
        let topology: Topology = topology().parse().unwrap();
        assert_eq!(topology.adapters(), ADAPTERS);
    }
}
