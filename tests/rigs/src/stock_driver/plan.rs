//! The steps that a script will run, so that one that never ran is missed.

use std::process::{Command, Stdio};

/// The script's functions, which here print their steps' names.
const FUNCTIONS: &str = include_str!("guest/plan.sh");
/// Those that call them.
const HELPERS: &str = include_str!("guest/helpers.sh");

/// The names of the steps of a machine, in order.
pub(super) fn steps(
    script: &str,
    machine: usize,
    machines: usize,
    boots: usize,
) -> Result<Vec<String>, String> {
    let mut steps = Vec::new();
    for boot in 1..=boots {
        let out = Command::new("sh")
            .args(["-eu", "-c"])
            .arg(format!("{HELPERS}{FUNCTIONS}{script}"))
            .env("me", machine.to_string())
            .env("peer", 1_usize.saturating_sub(machine).to_string())
            .env("machines", machines.to_string())
            .env("boot", boot.to_string())
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("sh: {error}"))?;
        if !out.status.success() {
            let why = String::from_utf8_lossy(&out.stderr);
            return Err(format!("a script cannot be planned: {why}"));
        }
        let text = String::from_utf8_lossy(&out.stdout);
        steps.extend(text.lines().map(str::to_string));
    }
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_in_order() {
        let script = "
for round in 1 2; do
    step 60 \"load $round\" 'modprobe mlx5_ib'
    client_server 60 \"traffic $round\" 'listening 1' 'server' 'client'
done
host link 0 down
barrier
case $me$boot in
01) step 60 'again' 'true'; restart ;;
esac
step 60 'end' 'true'
";
        let first = ["load 1", "traffic 1", "load 2", "traffic 2"];
        let twice = steps(script, 0, 2, 2).unwrap();
        assert_eq!(twice[..4], first);
        assert_eq!(twice[4], "again");
        assert_eq!(twice[5..9], first);
        assert_eq!(twice[9..], ["end"]);
        let other = steps(script, 1, 2, 1).unwrap();
        assert_eq!(other[..4], first);
        assert_eq!(other[4..], ["end"]);
        assert!(steps("nonsense", 0, 1, 1).is_err());
    }
}
