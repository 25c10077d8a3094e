//! The table of symbols.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

const TABLE: &str = include_str!("../../symbols/symbols.tsv");

/// A symbol of one of Debian's libraries.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Symbol {
    /// The library's file name.
    pub library: String,
    /// The symbol's name in C.
    pub name: String,
    /// Its version, as in `IBVERBS_1.1`.
    pub version: String,
    /// The kind of symbol.
    pub kind: Kind,
    /// The return value that says that it does nothing.
    pub returns: Returns,
}

/// The kind of a symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A function, in the version that programs are linked with today.
    Current,
    /// A function in a version for programs that were linked long ago, when its structures were different.
    Old,
    /// A variable of so many bytes.
    Data(usize),
}

/// The report of an error by a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Returns {
    /// By its value: an error number. Most functions of libibverbs, mlx5dv and efadv.
    Errno,
    /// By its value: a negative error number.
    NegativeErrno,
    /// By -1, and the number in `errno`. Most functions of librdmacm.
    MinusOne,
    /// By a null pointer, and the number in `errno`.
    Null,
    /// By `false` or zero, and the number in `errno`.
    Zero,
    /// Not at all.
    Nothing,
}

const RETURNS: [(Returns, &str); 6] = [
    (Returns::Errno, "errno"),
    (Returns::NegativeErrno, "-errno"),
    (Returns::MinusOne, "-1"),
    (Returns::Null, "null"),
    (Returns::Zero, "zero"),
    (Returns::Nothing, "void"),
];

impl fmt::Display for Returns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = RETURNS.iter().find(|(returns, _)| returns == self);
        f.write_str(word.map_or("", |(_, word)| word))
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Current => f.write_str("current"),
            Self::Old => f.write_str("old"),
            Self::Data(size) => write!(f, "data:{size}"),
        }
    }
}

/// A line of the table.
impl fmt::Display for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            library,
            name,
            version,
            kind,
            returns,
        } = self;
        write!(f, "{library}\t{name}\t{version}\t{kind}\t{returns}")
    }
}

impl FromStr for Symbol {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let wrong = || format!("not a line of the table of symbols: {line:?}");
        let columns: Vec<&str> = line.split('\t').collect();
        let [library, name, version, kind, returns] = columns[..] else {
            return Err(wrong());
        };
        let kind = match kind.split_once(':') {
            None if kind == "current" => Kind::Current,
            None if kind == "old" => Kind::Old,
            Some(("data", size)) => Kind::Data(size.parse().map_err(|_| wrong())?),
            _ => return Err(wrong()),
        };
        let returns = RETURNS.iter().find(|(_, word)| *word == returns);
        Ok(Self {
            library: library.into(),
            name: name.into(),
            version: version.into(),
            kind,
            returns: returns.ok_or_else(wrong)?.0,
        })
    }
}

/// All symbols, as `c-abi/symbols/symbols.tsv` has them.
pub fn symbols() -> Result<Vec<Symbol>, String> {
    parse(TABLE)
}

fn parse(table: &str) -> Result<Vec<Symbol>, String> {
    let lines = table.lines().filter(|line| !line.starts_with('#'));
    let symbols: Vec<Symbol> = lines.map(str::parse).collect::<Result<_, _>>()?;
    let mut seen = BTreeSet::new();
    for symbol in &symbols {
        // One file has all of them: two libraries must not have different functions of one name.
        let key = (&symbol.name, matches!(symbol.kind, Kind::Old));
        if !seen.insert(key) {
            return Err(format!("{} is there twice", symbol.name));
        }
    }
    Ok(symbols)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_read_and_written_alike() {
        let symbols = symbols().expect("the table");
        assert!(symbols.len() > 300, "{}", symbols.len());
        let written: Vec<String> = symbols.iter().map(ToString::to_string).collect();
        let lines: Vec<&str> = TABLE
            .lines()
            .filter(|line| !line.starts_with('#'))
            .collect();
        assert_eq!(written, lines);
    }

    #[test]
    fn wrong_lines_are_errors() {
        let line = "libibverbs.so.1\tibv_x\tIBVERBS_1.1\tcurrent\terrno";
        assert!(parse(line).is_ok());
        for (from, to) in [
            ("current", "curent"),
            ("errno", "void*"),
            ("\terrno", ""),
            ("current", "data:x"),
        ] {
            assert!(parse(&line.replace(from, to)).is_err(), "{from} {to}");
        }
        assert!(parse(&format!("{line}\n{line}")).is_err());
        let old = line.replace("current", "old");
        assert!(parse(&format!("{line}\n{old}")).is_ok());
    }
}
