//! The tests that run under the sanitizers.

/// Tests of one package.
pub(super) struct Program {
    pub(super) package: &'static str,
    /// Cargo's arguments that choose features and programs.
    pub(super) targets: &'static [&'static str],
    /// Parts of the tests' names, and other arguments of the programs; without, all tests.
    pub(super) tests: &'static [&'static str],
}

impl Program {
    /// A name for its files.
    pub(super) fn name(&self) -> String {
        let target = match self.targets {
            [.., "--test", name] => format!("-{name}"),
            _ => String::new(),
        };
        format!("{}{target}", self.package)
    }
}

const NODE: Program = Program {
    package: "bareverbs-node",
    targets: &["--features", "model", "--lib"],
    tests: &[],
};

/// All tests that need no device.
pub(super) const FULL: &[Program] = &[
    Program {
        package: "bareverbs-in-process",
        targets: &["--lib", "--tests"],
        // One thread, a virtual clock, ten thousand connections: too long here.
        tests: &["--skip", "held_open_and_taken_down"],
    },
    NODE,
    Program {
        package: "bareverbs-vfio",
        targets: &["--lib"],
        tests: &[],
    },
    Program {
        package: "bareverbs-core",
        targets: &["--lib", "--tests"],
        tests: &[],
    },
];

/// The threaded tests: two threads of a program call the driver, or the device has its own.
pub(super) const QUICK: &[Program] = &[
    Program {
        package: "bareverbs-in-process",
        targets: &["--test", "bring_up"],
        tests: &["threads::"],
    },
    Program {
        package: "bareverbs-in-process",
        targets: &["--test", "verbs"],
        tests: &["threads::"],
    },
    Program {
        package: "bareverbs-in-process",
        targets: &["--test", "cm"],
        tests: &["synchronous_"],
    },
    Program {
        package: "bareverbs-in-process",
        targets: &["--test", "interrupt_waits"],
        tests: &["no_thread_takes"],
    },
    Program {
        package: "bareverbs-in-process",
        targets: &["--test", "conformance"],
        tests: &["passes::threaded"],
    },
    NODE,
    Program {
        package: "bareverbs-vfio",
        targets: &["--lib"],
        tests: &["interrupts::"],
    },
];
