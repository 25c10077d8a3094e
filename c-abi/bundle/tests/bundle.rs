//! A bundle of a small static library, loaded by a small program.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use bareverbs_bundle::{
    Bundle, INSTALLED, LIBRARY, RUNNER, SOCKETS_LIBRARY, Sources, Symbol, bundle, package, symbols,
};

/// The source of a library with one function.
const HAS: &str =
    "int ibv_fork_init(void) { return 7; }\nint not_in_the_table(void) { return 1; }\n";

/// Calls a function that is there, and one of each kind that refuses.
const PROGRAM: &str = r#"
#include <errno.h>
#include <stdio.h>
int ibv_fork_init(void);
int ibv_query_device(void *, void *);
long _ibv_query_gid_table(void *, void *, size_t, unsigned);
void *ibv_open_device(void *);
int rdma_listen(void *, int);
_Bool mlx5dv_is_supported(void *);
void rdma_freeaddrinfo(void *);
void *old_list(int *);
__asm__(".symver old_list, ibv_get_device_list@IBVERBS_1.0");
int main(void)
{
    printf("%d ", ibv_fork_init());
    errno = 0;
    printf("%d ", ibv_query_device(0, 0) == EOPNOTSUPP);
    printf("%d ", _ibv_query_gid_table(0, 0, 0, 0) == -EOPNOTSUPP);
    errno = 0;
    printf("%d ", ibv_open_device(0) == 0 && errno == EOPNOTSUPP);
    errno = 0;
    printf("%d ", rdma_listen(0, 0) == -1 && errno == EOPNOTSUPP);
    printf("%d ", mlx5dv_is_supported(0) == 0);
    rdma_freeaddrinfo(0);
    printf("%d\n", old_list(0) == 0);
    return 0;
}
"#;

fn run(command: &mut Command) -> String {
    let done = command.output().expect("a program of the C compiler's");
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{command:?}: {errors}");
    String::from_utf8_lossy(&done.stdout).into_owned()
}

fn compile(folder: &Path, name: &str, source: &str, arguments: &[&str]) -> PathBuf {
    let file = folder.join(name).with_extension("c");
    let out = folder.join(name);
    fs::write(&file, source).unwrap();
    run(Command::new("cc")
        .arg("-o")
        .arg(&out)
        .arg(&file)
        .args(arguments));
    out
}

/// The folder with the parts, and the bundle in it.
fn made(name: &str, symbols: &[Symbol]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder).unwrap();
    let object = compile(&folder, "has.o", HAS, &["-c", "-fPIC", "-g"]);
    let archive = folder.join("libhas.a");
    run(Command::new("ar").arg("rcs").arg(&archive).arg(object));
    let sources = Sources {
        archive: &archive,
        // Without the functions of the C library in it, no program would run.
        paths: None,
        sockets: None,
        uverbs: None,
        keeps_symbols: false,
        runner: Path::new(env!("CARGO_BIN_EXE_bareverbs-run")),
        symbols,
    };
    let bundle = bundle(&sources, &folder.join("bundle")).expect("a bundle");
    assert!(
        bundle.defined.iter().eq(["ibv_fork_init"]),
        "{:?}",
        bundle.defined
    );
    folder
}

#[test]
fn a_program_gets_what_is_there_and_refusals_of_the_rest() {
    let symbols = symbols().unwrap();
    let folder = made("program", &symbols);
    let bundle = folder.join("bundle");
    let library = bundle.join(LIBRARY);
    let names = [
        "libibverbs.so.1",
        "librdmacm.so.1",
        "libmlx5.so.1",
        "libefa.so.1",
    ];
    for name in names {
        assert_eq!(
            bundle.join(name).canonicalize().unwrap(),
            library.canonicalize().unwrap()
        );
    }
    let linked = names.map(|name| format!("-l:{name}"));
    let folder_of_libraries = format!("-L{}", bundle.display());
    let mut arguments = vec![folder_of_libraries.as_str(), "-Wl,-z,now"];
    arguments.extend(linked.iter().map(String::as_str));
    let program = compile(&folder, "program", PROGRAM, &arguments);
    let run_with = |runner: &mut Command| run(runner.arg(&program));
    assert_eq!(
        run_with(&mut Command::new(bundle.join(RUNNER))),
        "7 1 1 1 1 1 1\n"
    );

    // Each symbol has its version, and what is not in the table is not exported.
    let exported = run(Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(&library));
    let exported: Vec<&str> = exported
        .lines()
        .filter_map(|line| line.split(' ').nth(2))
        .collect();
    for has in [
        "ibv_fork_init@@IBVERBS_1.1",
        "rdma_listen@@RDMACM_1.0",
        "ibv_get_device_list@IBVERBS_1.0",
    ] {
        assert!(exported.contains(&has), "{has}");
    }
    assert!(
        !exported
            .iter()
            .any(|name| name.starts_with("not_in_the_table"))
    );
}

#[test]
fn the_runner_sets_the_environment() {
    let folder = made("runner", &symbols().unwrap());
    let runner = folder.join("bundle").join(RUNNER);
    let environment = |arguments: &[&str]| {
        run(Command::new(&runner)
            .args(arguments)
            .arg("env")
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("LD_LIBRARY_PATH", "/elsewhere")
            .env("BAREVERBS_LINK", "udp:a:1,b:2"))
    };
    let path = format!(
        "LD_LIBRARY_PATH={}:/elsewhere",
        folder.join("bundle").canonicalize().unwrap().display()
    );
    let plain = environment(&[]);
    assert!(plain.lines().any(|line| line == path), "{plain}");
    assert!(plain.contains("BAREVERBS_LINK=udp:a:1,b:2\n"), "{plain}");
    assert!(!plain.contains("BAREVERBS_UNIT"), "{plain}");
    let wired = environment(&["--wire", "/w", "--unit", "2", "--fault", "loss=0.1"]);
    assert!(wired.contains("BAREVERBS_LINK=unix:/w.2,/w.1\n"), "{wired}");
    assert!(
        wired.contains("BAREVERBS_UNIT=2\n") && wired.contains("BAREVERBS_FAULT=loss=0.1\n"),
        "{wired}"
    );
    // There is no such library in this bundle.
    let sockets = Command::new(&runner)
        .args(["--sockets", "env"])
        .output()
        .unwrap();
    assert_eq!(sockets.status.code(), Some(127));
    fs::write(folder.join("bundle").join(SOCKETS_LIBRARY), "").unwrap();
    let preloaded = environment(&["--sockets"]);
    let list = format!(
        "LD_PRELOAD={}\n",
        folder
            .join("bundle")
            .canonicalize()
            .unwrap()
            .join(SOCKETS_LIBRARY)
            .display()
    );
    fs::remove_file(folder.join("bundle").join(SOCKETS_LIBRARY)).unwrap();
    assert!(preloaded.contains(&list), "{preloaded}");
    assert!(!plain.contains("LD_PRELOAD"), "{plain}");
    let third = Command::new(&runner)
        .args(["--wire", "/w", "--unit", "3", "env"])
        .output()
        .unwrap();
    assert_eq!(third.status.code(), Some(127));
    let missing = Command::new(&runner)
        .arg("/no/such/program")
        .output()
        .unwrap();
    assert_eq!(missing.status.code(), Some(127));
}

/// Says what the function of a library returns: of the one that it is linked to, and of the one that a module is linked to,
/// as modules of Python are loaded, and with a scope of its own.
const BRINGS_ITS_OWN: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
int ibv_fork_init(void);
static int of_module(const char *name, int flags)
{
    void *module = dlopen(name, RTLD_NOW | RTLD_LOCAL | flags);
    int (*function)(void) = module ? (int (*)(void))dlsym(module, "call") : 0;
    return function ? function() : -1;
}
int main(int argc, char **argv)
{
    printf("%d ", ibv_fork_init());
    printf("%d ", of_module(argv[1], 0));
    printf("%d\n", of_module(argv[2], RTLD_DEEPBIND));
    return argc != 3;
}
"#;

#[test]
fn preloaded_libraries_come_before_those_that_a_program_brings() {
    let folder = made("preload", &symbols().unwrap());
    // As auditwheel has it: under another name, beside the program.
    let name = "libibverbs-0a1b2c3d.so.1.14.44.0";
    fs::write(folder.join("map"), "IBVERBS_1.1 { ibv_fork_init; };\n").unwrap();
    let own = "int ibv_fork_init(void) { return 3; }\n";
    let script = format!("-Wl,--version-script={}", folder.join("map").display());
    let soname = format!("-Wl,-soname,{name}");
    let shared = ["-shared", "-fPIC"];
    let library = compile(
        &folder,
        "own.so",
        own,
        &[&shared[..], &[&script, &soname]].concat(),
    );
    fs::rename(library, folder.join(name)).unwrap();
    let linked = format!("-L{}", folder.display());
    let linked = [linked.as_str(), &format!("-l:{name}"), "-Wl,-rpath,$ORIGIN"];
    let module = "int ibv_fork_init(void); int call(void) { return ibv_fork_init(); }\n";
    let module = compile(
        &folder,
        "module.so",
        module,
        &[&shared[..], &linked].concat(),
    );
    // The loader would give the same file the same scope.
    let deep = folder.join("deep.so");
    fs::copy(&module, &deep).unwrap();
    let program = compile(&folder, "brings", BRINGS_ITS_OWN, &linked);

    let runner = folder.join("bundle").join(RUNNER);
    let says = |options: &[&str]| {
        let mut command = Command::new(&runner);
        run(command.args(options).arg(&program).args([&module, &deep]))
    };
    assert_eq!(says(&[]), "3 3 3\n");
    assert_eq!(says(&["--preload"]), "7 7 3\n");

    let environment = run(Command::new(&runner)
        .args(["--preload", "env"])
        .env("LD_PRELOAD", "libm.so.6"));
    let preload = environment
        .lines()
        .find(|line| line.starts_with("LD_PRELOAD="));
    let bundle = folder.join("bundle").canonicalize().unwrap();
    let bundle = bundle.display();
    let expected = format!(
        "LD_PRELOAD={bundle}/libibverbs.so.1:{bundle}/librdmacm.so.1:{bundle}/libmlx5.so.1:libm.so.6"
    );
    assert_eq!(preload, Some(expected.as_str()));
}

#[test]
fn a_package_has_its_licences_and_leaves_its_debug_symbols_to_another() {
    let folder = made("package", &symbols().unwrap());
    let packages = package(&Bundle {
        folder: folder.join("bundle"),
        defined: [].into(),
    })
    .expect("two packages");
    let unpacked = folder.join("unpacked");
    for package in [&packages.programs, &packages.symbols] {
        run(Command::new("dpkg-deb")
            .arg("--extract")
            .args([package, &unpacked]));
    }
    let installed = unpacked.join(INSTALLED);

    // binutils read the line of the function from the file that the build id names, and find none in the library.
    let library = installed.join(LIBRARY);
    let addresses = run(Command::new("nm").arg("-D").arg(&library));
    let address = addresses
        .lines()
        .find_map(|line| line.strip_suffix(" T ibv_fork_init@@IBVERBS_1.1"))
        .expect("the function's address");
    let notes = run(Command::new("readelf").arg("--notes").arg(&library));
    let (_, id) = notes.split_once("Build ID: ").expect("a build id");
    let id = id.split_whitespace().next().unwrap();
    let by_id = format!("usr/lib/debug/.build-id/{}/{}.debug", &id[..2], &id[2..]);
    let line = |file: &Path| run(Command::new("addr2line").arg("-e").arg(file).arg(address));
    let without = line(&library);
    assert!(without.starts_with("??:"), "{without}");
    let with_symbols = line(&unpacked.join(by_id));
    assert!(with_symbols.contains("has.c:1"), "{with_symbols}");
    let named = run(Command::new("dpkg-deb")
        .arg("--field")
        .arg(&packages.symbols)
        .arg("Build-Ids"));
    assert!(named.contains(id), "{named}");

    let documents = unpacked.join("usr/share/doc/bareverbs");
    let read = |name| fs::read_to_string(documents.join(name)).unwrap();
    let copyright = read("copyright");
    for line in [
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/",
        "Copyright: 2026 The bareverbs authors",
        "License: Expat or Apache-2.0",
        " Permission is hereby granted, free of charge, to any person obtaining a copy",
        " .",
    ] {
        assert!(copyright.lines().any(|found| found == line), "{line}");
    }
    // Only fields begin a line.
    let fields = copyright.lines().filter(|line| !line.starts_with(' '));
    let odd: Vec<_> = fields
        .filter(|line| !line.is_empty() && !line.contains(": ") && !line.ends_with(':'))
        .collect();
    assert!(odd.is_empty(), "{odd:?}");
    // A licence that is to be in every copy; and neither our own crates nor what runs in the compiler.
    let others = read("third-party-licences");
    let (_, linked) = others
        .split_once("\nvmm-sys-util v")
        .expect("a crate of others");
    assert!(linked.contains("Redistributions in binary form must reproduce"));
    assert!(!others.contains("\nbareverbs") && !others.contains("\nthiserror-impl v"));
}
