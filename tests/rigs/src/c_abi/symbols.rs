//! The table of symbols, made again from Debian's libraries and headers.

use super::packages::Packages;
use crate::outcome::Outcome;
use crate::process::quiet_output;
use bareverbs_bundle::{Bundle, Kind, Returns, Symbol};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The libraries, and what their functions return on errors where the header says `int`: what most of them do.
const LIBRARIES: &[(&str, Returns)] = &[
    ("libibverbs.so.1", Returns::Errno),
    ("librdmacm.so.1", Returns::MinusOne),
    ("libmlx5.so.1", Returns::Errno),
    ("libefa.so.1", Returns::Errno),
];

const HEADERS: &[&str] = &[
    "infiniband/verbs.h",
    "infiniband/mlx5dv.h",
    "infiniband/efadv.h",
    "rdma/rdma_cma.h",
    "rdma/rdma_verbs.h",
    "rdma/rsocket.h",
];

/// Functions with an `int` or `ssize_t` of another kind than most of their library, by their man pages.
const OTHERWISE: &[(&str, Returns)] = &[
    ("_ibv_query_gid_table", Returns::NegativeErrno),
    ("efadv_get_max_rq_depth", Returns::NegativeErrno),
    ("efadv_get_max_sq_depth", Returns::NegativeErrno),
    ("ibv_close_device", Returns::MinusOne),
    ("ibv_dm_export_dmabuf_fd", Returns::MinusOne),
    ("ibv_export_buf_dmabuf_fd", Returns::MinusOne),
    ("ibv_get_async_event", Returns::MinusOne),
    ("ibv_get_cq_event", Returns::MinusOne),
    ("ibv_get_pkey_index", Returns::MinusOne),
    ("ibv_init_ah_from_wc", Returns::MinusOne),
    ("ibv_query_gid", Returns::MinusOne),
    ("ibv_query_pkey", Returns::MinusOne),
    ("ibv_rate_to_mbps", Returns::MinusOne),
    ("ibv_rate_to_mult", Returns::MinusOne),
    ("ibv_resolve_eth_l2_from_gid", Returns::MinusOne),
    ("mlx5dv_devx_uar_export_dmabuf_fd", Returns::MinusOne),
    // Of librdmacm.
    ("repoll_ctl", Returns::Errno),
];

/// Functions that no installed header declares. The others of them, such as `ibv_cmd_post_send`, are between
/// rdma-core's own libraries, and return an error number.
const UNDECLARED: &[(&str, Returns)] = &[
    ("__ioctl_final_num_attrs", Returns::Zero),
    ("__verbs_log", Returns::Nothing),
    ("_verbs_init_and_alloc_context", Returns::Null),
    ("ibv_copy_ah_attr_from_kern", Returns::Nothing),
    ("ibv_copy_path_rec_from_kern", Returns::Nothing),
    ("ibv_copy_path_rec_to_kern", Returns::Nothing),
    ("ibv_copy_qp_attr_from_kern", Returns::Nothing),
    ("ibv_get_sysfs_path", Returns::Null),
    ("ibv_query_gid_type", Returns::MinusOne),
    ("ibv_read_ibdev_sysfs_file", Returns::MinusOne),
    ("ibv_read_sysfs_file", Returns::MinusOne),
    ("ibv_register_driver", Returns::Nothing),
    ("verbs_init_cq", Returns::Nothing),
    ("verbs_open_device", Returns::Null),
    ("verbs_register_driver_34", Returns::Nothing),
    ("verbs_set_ops", Returns::Nothing),
    ("verbs_uninit_context", Returns::Nothing),
];

/// The version of the functions between rdma-core's own libraries in the releases up to 56.
const PRIVATE: &str = "IBVERBS_PRIVATE_34";

/// The table as Debian's packages have it: what any of the releases exports.
pub(super) fn table(directory: &Path, packages: &Packages) -> Result<Vec<Symbol>, String> {
    let mut symbols: BTreeMap<_, Symbol> = BTreeMap::new();
    for release in &packages.libraries {
        let declarations = declarations(directory, &release.include)?;
        for (order, (library, usual)) in LIBRARIES.iter().enumerate() {
            for (name, version, kind) in exported(&release.folder.join(library))? {
                // Each release of rdma-core since 57 has a version of its own here, by which its libraries find each other.
                if version.starts_with("IBVERBS_PRIVATE_") && version != PRIVATE {
                    continue;
                }
                let key = (order, name.clone(), version.clone());
                let earlier = symbols
                    .get(&key)
                    .filter(|_| type_of(&declarations, &name).is_none());
                let returns = match earlier {
                    // Only the headers of an earlier release declare it.
                    Some(Symbol { returns, .. }) => *returns,
                    None => returns(&declarations, &name, *usual)?,
                };
                let symbol = Symbol {
                    library: (*library).to_owned(),
                    name,
                    version,
                    kind,
                    returns,
                };
                let old = symbols.insert(key, symbol.clone());
                if let Some(old) = old.filter(|old| *old != symbol) {
                    return Err(format!("the releases differ: {old}, {symbol}"));
                }
            }
        }
    }
    Ok(symbols.into_values().collect())
}

/// The text of the table.
pub(super) fn render(packages: &Packages, symbols: &[Symbol]) -> String {
    let mut text = format!(
        "# The symbols of Debian's RDMA libraries, with their versions, and how each function reports an error.\n\
         {}\n\
         # Made by `cargo rig c-abi --write`.\n\
         # Columns: library, name, version, kind, how an error is reported.\n",
        from(packages)
    );
    for symbol in symbols {
        text += &format!("{symbol}\n");
    }
    text
}

/// The line of the table that says what it was made from.
pub(super) fn from(packages: &Packages) -> String {
    let packages = packages.libraries.iter();
    let packages = packages.flat_map(|release| &release.versions);
    let libraries = packages.filter(|package| package.starts_with("libibverbs1 "));
    let versions: Vec<&str> = libraries.map(String::as_str).collect();
    format!("# From {}.", versions.join(", "))
}

/// Compares the table with the packages. Where Debian has newer ones than the table was made from, their new symbols are
/// named and are no failure: the sources here have not changed.
pub(super) fn compare(checked_in: &[Symbol], fresh: &[Symbol], is_of_these: bool) -> Outcome {
    let mut outcome = Outcome::default();
    let [old, new] = [checked_in, fresh].map(|list| list.iter().collect::<BTreeSet<_>>());
    for symbol in &new {
        let is_there = old.contains(symbol);
        if !is_there && !is_of_these {
            println!("newer than the table: {symbol}");
            continue;
        }
        outcome.check(is_there, || format!("only in the packages: {symbol}"));
    }
    for symbol in old.difference(&new) {
        outcome.check(false, || format!("only in the checkout: {symbol}"));
    }
    outcome
}

/// Compares what our library exports with the table: all of it, and nothing else.
pub(super) fn compare_exports(bundle: &Bundle, symbols: &[Symbol]) -> Result<Outcome, String> {
    let exported = exported(&bundle.folder.join(bareverbs_bundle::LIBRARY))?;
    let wanted: BTreeSet<_> = symbols
        .iter()
        .map(|symbol| (symbol.name.clone(), symbol.version.clone(), symbol.kind))
        .collect();
    let mut outcome = Outcome::default();
    for symbol in &wanted {
        outcome.check(exported.contains(symbol), || {
            format!("not exported: {symbol:?}")
        });
    }
    let (private, version) = bareverbs_bundle::PRIVATE;
    let own =
        |symbol: &&(String, String, Kind)| private.contains(&&*symbol.0) && symbol.1 == version;
    for symbol in exported.difference(&wanted).filter(|symbol| !own(symbol)) {
        outcome.check(false, || {
            format!("exported, but not in the table: {symbol:?}")
        });
    }
    for library in symbols
        .iter()
        .map(|symbol| symbol.library.as_str())
        .collect::<BTreeSet<_>>()
    {
        outcome.check(bundle.folder.join(library).exists(), || {
            format!("there is no {library}")
        });
    }
    Ok(outcome)
}

/// The definitions of a shared object: names, versions, kinds, sorted by name.
fn exported(library: &Path) -> Result<BTreeSet<(String, String, Kind)>, String> {
    let text = quiet_output(
        Command::new("objdump")
            .arg("-T")
            .arg(library)
            .env("LC_ALL", "C"),
    )?;
    let found = text
        .lines()
        .filter_map(dynamic_symbol)
        .collect::<Result<BTreeSet<_>, _>>()?;
    if found.is_empty() {
        return Err(format!("{}: exports nothing", library.display()));
    }
    Ok(found)
}

/// A line of `objdump -T`: address, flags, section, size, version (in parentheses if it is not the default), name.
fn dynamic_symbol(line: &str) -> Option<Result<(String, String, Kind), String>> {
    let (_, rest) = line.split_once(|c: char| c.is_whitespace())?;
    // The flags are seven characters, some of them spaces, after one space.
    let (flags, rest) = rest.split_at_checked(7)?;
    let words: Vec<&str> = rest.split_whitespace().collect();
    // The versions themselves are absolute symbols.
    let [section, size, version, name] = words[..] else {
        return None;
    };
    if section == "*UND*" || section == "*ABS*" || !flags.contains(['F', 'O']) {
        return None;
    }
    let old = version
        .strip_prefix('(')
        .and_then(|version| version.strip_suffix(')'));
    let kind = if flags.contains('O') {
        match usize::from_str_radix(size, 16) {
            Ok(size) => Kind::Data(size),
            Err(error) => return Some(Err(format!("{line:?}: {error}"))),
        }
    } else if old.is_some() {
        Kind::Old
    } else {
        Kind::Current
    };
    Some(Ok((
        name.to_owned(),
        old.unwrap_or(version).to_owned(),
        kind,
    )))
}

/// The headers without comments and macros.
fn declarations(directory: &Path, include: &Path) -> Result<String, String> {
    let file = directory.join("headers.c");
    let text: String = HEADERS
        .iter()
        .map(|name| format!("#include <{name}>\n"))
        .collect();
    fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
    quiet_output(
        Command::new("cc")
            .args(["-E", "-P", "-D__attribute__(x)=", "-I"])
            .arg(include)
            .arg(&file),
    )
}

/// The way in which a function reports errors, by the type that its declaration gives it.
fn returns(declarations: &str, name: &str, usual: Returns) -> Result<Returns, String> {
    let listed = |list: &[(&str, Returns)]| {
        let found = list.iter().find(|(listed, _)| *listed == name);
        found.map(|(_, returns)| *returns)
    };
    let Some(kind) = type_of(declarations, name) else {
        return Ok(listed(UNDECLARED).unwrap_or(usual));
    };
    if kind.contains('*') {
        return Ok(Returns::Null);
    }
    let words: Vec<&str> = kind
        .split_whitespace()
        .filter(|word| *word != "extern")
        .collect();
    match words[..] {
        ["void"] => Ok(Returns::Nothing),
        ["int" | "ssize_t" | "size_t" | "off_t"] => Ok(listed(OTHERWISE).unwrap_or(usual)),
        // Structures would be returned in another way.
        ["enum", _] | ["_Bool" | "__be16" | "__be64" | "uint16_t" | "uint32_t" | "uint64_t"] => {
            Ok(Returns::Zero)
        }
        _ => Err(format!("{name} returns {kind:?}")),
    }
}

/// The type before a function's name.
fn type_of<'a>(declarations: &'a str, name: &str) -> Option<&'a str> {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    for (at, _) in declarations.match_indices(name) {
        let (before, after) = (&declarations[..at], &declarations[at + name.len()..]);
        if before.ends_with(word) || !after.trim_start().starts_with('(') {
            continue;
        }
        let start = before
            .rfind([';', '}', '{', ')', '(', ','])
            .map_or(0, |at| at + 1);
        let kind = before[start..].trim();
        // A call has no type before it.
        if !kind.is_empty() && kind != "return" && !kind.contains('=') {
            return Some(kind);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declarations_say_how_errors_are_returned() {
        let text = "struct a *ibv_a(int b);\n_Bool is_a(void);\nvoid c(struct a *x);\nint ibv_d(void (*f)(void)); \
                    static inline int g(void) { return ibv_a(1), ibv_d (0); } extern int ibv_get_cq_event(int);";
        let of = |name| returns(text, name, Returns::Errno);
        assert_eq!(of("ibv_a"), Ok(Returns::Null));
        assert_eq!(of("is_a"), Ok(Returns::Zero));
        assert_eq!(of("c"), Ok(Returns::Nothing));
        assert_eq!(of("ibv_d"), Ok(Returns::Errno));
        assert_eq!(of("ibv_get_cq_event"), Ok(Returns::MinusOne));
        assert_eq!(of("ibv_get_sysfs_path"), Ok(Returns::Null));
        assert_eq!(of("ibv_cmd_x"), Ok(Returns::Errno));
        assert!(returns("struct a s(void);", "s", Returns::Errno).is_err());
    }

    #[test]
    fn lines_of_objdump_are_read() {
        let read = |line| dynamic_symbol(line).transpose().unwrap();
        let symbol = |name: &str, kind| Some((name.to_owned(), "IBVERBS_1.1".to_owned(), kind));
        assert_eq!(
            read("00000000000184d0 g    DF .text\t00000000000002d2  IBVERBS_1.1 ibv_x"),
            symbol("ibv_x", Kind::Current)
        );
        assert_eq!(
            read("00000000000184d0 g    DF .text\t00000000000002d2 (IBVERBS_1.1) ibv_x"),
            symbol("ibv_x", Kind::Old)
        );
        assert_eq!(
            read("0000000000020281 g    DO .bss\t0000000000000010  IBVERBS_1.1 data"),
            symbol("data", Kind::Data(16))
        );
        for other in [
            "0000000000000000      DO *UND*\t0000000000000000 (GLIBC_2.2.5) stderr",
            "0000000000000000 g    DO *ABS*\t0000000000000000  IBVERBS_1.1 IBVERBS_1.1",
            "DYNAMIC SYMBOL TABLE:",
            "",
        ] {
            assert_eq!(read(other), None, "{other}");
        }
    }
}
