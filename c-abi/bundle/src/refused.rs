//! The functions that refuse, as a C file.

use std::fmt::Write;

use crate::symbols::{Kind, Returns, Symbol};

/// A C file with a definition of each of these symbols.
pub(crate) fn source<'a>(symbols: impl IntoIterator<Item = &'a Symbol>) -> String {
    let mut text = "/* Made by the bundle program: functions that bareverbs-c does not have. */\n\
         #include <errno.h>\n"
        .to_owned();
    for (number, symbol) in symbols.into_iter().enumerate() {
        // A String takes everything.
        let _ = define(&mut text, number, symbol);
    }
    text
}

fn define(text: &mut String, number: usize, symbol: &Symbol) -> std::fmt::Result {
    let (name, version) = (&symbol.name, &symbol.version);
    if let Kind::Data(size) = symbol.kind {
        return writeln!(text, "char {name}[{size}];");
    }
    // A function of an old version has a name of its own here; the assembler gives it the version.
    let function = match symbol.kind {
        Kind::Old => {
            writeln!(
                text,
                "__asm__(\".symver refused_{number}, {name}@{version}\");"
            )?;
            format!("refused_{number}")
        }
        Kind::Current | Kind::Data(_) => name.clone(),
    };
    let (kind, value) = match symbol.returns {
        Returns::Errno => ("int", "EOPNOTSUPP"),
        Returns::NegativeErrno => ("long", "-EOPNOTSUPP"),
        Returns::MinusOne => ("long", "-1"),
        Returns::Null => ("void *", "(void *)0"),
        Returns::Zero => ("long", "0"),
        Returns::Nothing => return writeln!(text, "void {function}(void) {{}}"),
    };
    writeln!(
        text,
        "{kind} {function}(void) {{ errno = EOPNOTSUPP; return {value}; }}"
    )
}
