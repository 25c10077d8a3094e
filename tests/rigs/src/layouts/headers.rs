//! Field positions out of C headers: the bit structures of `mlx5_ifc.h`, where every array element is one bit, and the
//! plain structures of `device.h` and `qp.h`, with C's own alignment.

use std::collections::HashMap;
use std::path::Path;

/// A field, or (with an empty name) the size of a structure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) structure: String,
    pub(super) field: String,
    pub(super) offset: u64,
    pub(super) width: u64,
    pub(super) nested: String,
}

const BITS_HEADERS: [&str; 2] = ["linux/mlx5/mlx5_ifc_fpga.h", "linux/mlx5/mlx5_ifc.h"];
const C_HEADERS: [&str; 3] = ["linux/mlx5/device.h", "linux/mlx5/qp.h", "rdma/ib_verbs.h"];

/// Reads all structures of the headers: `qpc` for `struct mlx5_ifc_qpc_bits`, `struct mlx5_cqe64` for itself.
pub(super) fn read(include: &Path) -> Result<Vec<Row>, String> {
    let load = |names: &[&str]| -> Result<String, String> {
        let mut text = String::new();
        for name in names {
            let path = include.join(name);
            text +=
                &std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        }
        Ok(text)
    };
    let mut rows = parse(&load(&BITS_HEADERS)?, Dialect::Bits);
    rows.extend(parse(&load(&C_HEADERS)?, Dialect::C));
    Ok(rows)
}

/// Reads the bit structures of one header.
pub(super) fn read_bits(path: &Path) -> Result<Vec<Row>, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(parse(&text, Dialect::Bits))
}

/// Reads bit structures.
#[cfg(test)]
pub(super) fn parse_bits(source: &str) -> Vec<Row> {
    parse(source, Dialect::Bits)
}

/// Reads the structures that only libibverbs' header of the device has.
pub(super) fn read_verbs(include: &Path, known: &[Row]) -> Result<Vec<Row>, String> {
    let path = include.join("infiniband/mlx5dv.h");
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let mut rows = parse(&text, Dialect::C);
    rows.retain(|row| known.iter().all(|known| known.structure != row.structure));
    Ok(rows)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Dialect {
    Bits,
    C,
}

#[derive(Debug, Clone)]
enum Type {
    /// Width in bits; also the alignment.
    Plain(u64),
    /// A bit field of so many bits.
    BitField(u64),
    Named(String),
    Inline(Aggregate),
}

#[derive(Debug, Clone)]
struct Member {
    name: Option<String>,
    ty: Type,
    /// Dimensions; 0 for an open one.
    dims: Vec<u64>,
}

#[derive(Debug, Clone)]
struct Aggregate {
    union: bool,
    packed: bool,
    members: Vec<Member>,
}

fn parse(source: &str, dialect: Dialect) -> Vec<Row> {
    let source = without_comments(source);
    let tokens = tokens(&source);
    let constants = constants(&source);
    let mut parser = Parser {
        tokens: &tokens,
        at: 0,
        constants: &constants,
    };
    let mut aggregates = HashMap::new();
    let mut order = Vec::new();
    while parser.at + 3 < tokens.len() {
        let [kind, name, brace] = [0, 1, 2].map(|i| tokens[parser.at + i].as_str());
        let definition = matches!(kind, "struct" | "union") && brace == "{" && is_word(name);
        if !definition {
            parser.at += 1;
            continue;
        }
        let (start, union) = (parser.at, kind == "union");
        let name = name.to_owned();
        parser.at += 3;
        match parser.body(union) {
            Ok(aggregate) => {
                let key = format!("{kind} {name}");
                order.push(key.clone());
                aggregates.insert(key, aggregate);
            }
            // The C headers are full of structures of the kernel's own, with function pointers and the like, and a few
            // bit structures have dimensions from elsewhere. A structure that needs one of these is reported as
            // missing.
            Err(_) => parser.at = start + 1,
        }
    }

    let layout = Layout {
        aggregates: &aggregates,
        dialect,
    };
    let mut rows = Vec::new();
    for key in &order {
        let structure = match dialect {
            Dialect::C => key.clone(),
            Dialect::Bits => {
                let name = key.split(' ').nth(1).unwrap_or_default();
                let Some(name) = name
                    .strip_prefix("mlx5_ifc_")
                    .and_then(|name| name.strip_suffix("_bits"))
                else {
                    continue;
                };
                name.to_owned()
            }
        };
        // A structure with members of unknown types has no layout that could be said.
        let Some((width, _)) = layout.size(&aggregates[key]) else {
            continue;
        };
        rows.push(Row {
            structure: structure.clone(),
            field: String::new(),
            offset: 0,
            width,
            nested: String::new(),
        });
        layout.rows(&structure, "", &aggregates[key], 0, &mut rows);
    }
    rows
}

struct Parser<'a> {
    tokens: &'a [String],
    at: usize,
    constants: &'a HashMap<String, u64>,
}

impl Parser<'_> {
    fn peek(&self) -> &str {
        self.tokens.get(self.at).map_or("", String::as_str)
    }

    fn next(&mut self) -> String {
        let token = self.peek().to_owned();
        self.at += 1;
        token
    }

    fn expect(&mut self, token: &str) -> Result<(), String> {
        let found = self.next();
        if found == token {
            Ok(())
        } else {
            Err(format!("{token:?} expected, {found:?} found"))
        }
    }

    /// From behind `{` to behind `}` and the `__packed` that may follow it.
    fn body(&mut self, union: bool) -> Result<Aggregate, String> {
        let mut members = Vec::new();
        let mut groups = 0;
        loop {
            match self.next().as_str() {
                "}" => break,
                // struct_group(name, members);
                "struct_group" => {
                    self.expect("(")?;
                    self.next();
                    self.expect(",")?;
                    groups += 1;
                }
                ")" if groups > 0 => {
                    groups -= 1;
                    self.expect(";")?;
                }
                "DECLARE_FLEX_ARRAY" => {
                    self.expect("(")?;
                    let ty = match self.next().as_str() {
                        kind @ ("struct" | "union") => {
                            Type::Named(format!("{kind} {}", self.next()))
                        }
                        word => Type::Plain(plain(word).ok_or("unknown element type")?),
                    };
                    self.expect(",")?;
                    let name = Some(self.next());
                    self.expect(")")?;
                    self.expect(";")?;
                    members.push(Member {
                        name,
                        ty,
                        dims: vec![0],
                    });
                }
                kind @ ("struct" | "union") if self.peek() == "{" || self.tag_then_brace() => {
                    if self.peek() != "{" {
                        self.next();
                    }
                    self.expect("{")?;
                    let inner = self.body(kind == "union")?;
                    let name = (self.peek() != ";").then(|| self.next());
                    let dims = self.dimensions()?;
                    self.expect(";")?;
                    members.push(Member {
                        name,
                        ty: Type::Inline(inner),
                        dims,
                    });
                }
                kind @ ("struct" | "union") => {
                    let ty = Type::Named(format!("{kind} {}", self.next()));
                    self.declarators(&ty, &mut members)?;
                }
                word => {
                    let ty = Type::Plain(plain(word).ok_or_else(|| format!("type {word:?}"))?);
                    self.declarators(&ty, &mut members)?;
                }
            }
        }
        let packed = self.peek() == "__packed";
        if packed {
            self.at += 1;
        }
        Ok(Aggregate {
            union,
            packed,
            members,
        })
    }

    fn tag_then_brace(&self) -> bool {
        self.tokens.get(self.at + 1).is_some_and(|t| t == "{")
    }

    fn declarators(&mut self, ty: &Type, members: &mut Vec<Member>) -> Result<(), String> {
        let name = self.next();
        if !is_word(&name) {
            return Err(format!("member {name:?}"));
        }
        let mut ty = ty.clone();
        if self.peek() == ":" {
            self.at += 1;
            ty = Type::BitField(self.number()?);
        }
        let dims = self.dimensions()?;
        self.expect(";")?;
        members.push(Member {
            name: Some(name),
            ty,
            dims,
        });
        Ok(())
    }

    fn dimensions(&mut self) -> Result<Vec<u64>, String> {
        let mut dims = Vec::new();
        while self.peek() == "[" {
            self.at += 1;
            if self.peek() == "]" {
                dims.push(0);
            } else {
                dims.push(self.number()?);
            }
            self.expect("]")?;
        }
        Ok(dims)
    }

    fn number(&mut self) -> Result<u64, String> {
        let token = self.next();
        number(&token)
            .or_else(|| self.constants.get(&token).copied())
            .ok_or_else(|| format!("{token:?} is no number"))
    }
}

struct Layout<'a> {
    aggregates: &'a HashMap<String, Aggregate>,
    dialect: Dialect,
}

impl Layout<'_> {
    /// Width and alignment of one element, in bits.
    fn element(&self, member: &Member) -> Option<(u64, u64)> {
        match &member.ty {
            Type::Plain(_) if self.dialect == Dialect::Bits => Some((1, 1)),
            Type::Plain(width) => Some((*width, *width)),
            Type::BitField(width) => Some((*width, 1)),
            Type::Named(name) => self.size(self.aggregates.get(name)?),
            Type::Inline(inner) => self.size(inner),
        }
    }

    fn size(&self, aggregate: &Aggregate) -> Option<(u64, u64)> {
        let (mut end, mut align) = (0, 1);
        for member in &aggregate.members {
            let (offset, width, member_align) = self.place(aggregate, end, member)?;
            end = end.max(offset + width);
            align = align.max(member_align);
        }
        Some((end.next_multiple_of(align), align))
    }

    /// Offset, width and alignment of the next member when the previous one ended at `end`.
    fn place(&self, aggregate: &Aggregate, end: u64, member: &Member) -> Option<(u64, u64, u64)> {
        let (element, align) = self.element(member)?;
        let align = if aggregate.packed || self.dialect == Dialect::Bits {
            1
        } else {
            align
        };
        let offset = if aggregate.union {
            0
        } else {
            end.next_multiple_of(align)
        };
        let width = member.dims.iter().fold(element, |width, dim| width * dim);
        Some((offset, width, align))
    }

    fn rows(&self, structure: &str, prefix: &str, of: &Aggregate, base: u64, rows: &mut Vec<Row>) {
        let mut end = 0;
        for member in &of.members {
            let Some((offset, width, _)) = self.place(of, end, member) else {
                return;
            };
            end = end.max(offset + width);
            let name = member.name.as_deref().unwrap_or_default();
            let reserved = name.starts_with("reserved") || name.starts_with("rsvd");
            if !name.is_empty() && !reserved {
                // Of an open array, the width of an element: its last dimension, or what it holds.
                let width = match member.dims.iter().position(|&dim| dim == 0) {
                    None => width,
                    Some(open) => {
                        let element = self.element(member).map_or(0, |(width, _)| width);
                        let rest = member.dims[open + 1..].iter();
                        rest.fold(element, |width, dim| width * dim)
                    }
                };
                let nested = match (&member.ty, self.dialect) {
                    (Type::Named(name), Dialect::C) => name.clone(),
                    (Type::Named(name), Dialect::Bits) => {
                        let name = name.split(' ').nth(1).unwrap_or_default();
                        let name = name.strip_prefix("mlx5_ifc_").unwrap_or(name);
                        name.strip_suffix("_bits").unwrap_or(name).to_owned()
                    }
                    _ => String::new(),
                };
                rows.push(Row {
                    structure: structure.to_owned(),
                    field: format!("{prefix}{name}"),
                    offset: base + offset,
                    width,
                    nested,
                });
            }
            if let Type::Inline(inner) = &member.ty {
                let prefix = match &member.name {
                    Some(name) => format!("{prefix}{name}."),
                    None => prefix.to_owned(),
                };
                self.rows(structure, &prefix, inner, base + offset, rows);
            }
        }
    }
}

fn plain(word: &str) -> Option<u64> {
    Some(match word {
        "u8" | "__u8" | "char" => 8,
        "u16" | "__be16" | "__u16" => 16,
        "u32" | "__be32" | "__u32" => 32,
        "u64" | "__be64" | "__u64" => 64,
        _ => return None,
    })
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
}

fn number(token: &str) -> Option<u64> {
    match token
        .strip_prefix("0x")
        .or_else(|| token.strip_prefix("0X"))
    {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => token.parse().ok(),
    }
}

fn without_comments(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find('/') {
        out.push_str(&rest[..start]);
        let comment = &rest[start..];
        let end = if comment.starts_with("/*") {
            comment.find("*/").map_or(comment.len(), |end| end + 2)
        } else if comment.starts_with("//") {
            comment.find('\n').unwrap_or(comment.len())
        } else {
            out.push('/');
            1
        };
        rest = &comment[end..];
        out.push(' ');
    }
    out + rest
}

fn tokens(source: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut characters = source.chars().peekable();
    while let Some(&c) = characters.peek() {
        if c.is_ascii_alphanumeric() || c == '_' {
            let mut word = String::new();
            while let Some(&c) = characters.peek() {
                if !(c.is_ascii_alphanumeric() || c == '_') {
                    break;
                }
                word.push(c);
                characters.next();
            }
            tokens.push(word);
        } else {
            characters.next();
            if !c.is_whitespace() {
                tokens.push(c.to_string());
            }
        }
    }
    tokens
}

/// `#define NAME NUMBER` and `NAME = NUMBER` in enumerations.
fn constants(source: &str) -> HashMap<String, u64> {
    let mut constants = HashMap::new();
    for line in source.lines() {
        let mut words = line
            .split(|c: char| c.is_whitespace() || matches!(c, ',' | '(' | ')'))
            .filter(|word| !word.is_empty());
        let (Some(first), Some(second)) = (words.next(), words.next()) else {
            continue;
        };
        let (name, value) = match (first, second) {
            ("#define", name) => (name, words.next()),
            (name, "=") => (name, words.next()),
            _ => continue,
        };
        if let Some(value) = value.and_then(number) {
            constants.insert(name.to_owned(), value);
        }
    }
    constants
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(structure: &str, field: &str, offset: u64, width: u64, nested: &str) -> Row {
        Row {
            structure: structure.into(),
            field: field.into(),
            offset,
            width,
            nested: nested.into(),
        }
    }

    #[test]
    fn bit_structures() {
        let source = "
            #define LENGTH 0x2 /* elements */
            struct mlx5_ifc_inner_bits { u8 a[0x3]; u8 reserved_at_3[0xd]; u8 b[0x10]; };
            struct mlx5_ifc_outer_bits {
                u8 x[0x20]; // trailing
                struct mlx5_ifc_inner_bits entry[LENGTH];
                union { u8 y[0x8]; struct { u8 z[0x4]; u8 w[0x4]; } parts; };
                u8 reserved_at_68[0x18];
                u8 tail[][0x40];
            };";
        let expected = [
            row("inner", "", 0, 32, ""),
            row("inner", "a", 0, 3, ""),
            row("inner", "b", 16, 16, ""),
            row("outer", "", 0, 128, ""),
            row("outer", "x", 0, 32, ""),
            row("outer", "entry", 32, 64, "inner"),
            row("outer", "y", 96, 8, ""),
            row("outer", "parts", 96, 8, ""),
            row("outer", "parts.z", 96, 4, ""),
            row("outer", "parts.w", 100, 4, ""),
            row("outer", "tail", 128, 64, ""),
        ];
        assert_eq!(parse(source, Dialect::Bits), expected);
    }

    #[test]
    fn c_structures() {
        let source = "
            struct kernel_type { struct list_head list; void (*call)(int); };
            struct seg { u8 a; __be16 b; struct_group(trailer, u8 rsvd[2]; union { __be32 imm; __be32 key; }; ); };
            struct packed_one { u8 a; __be32 b; } __packed;
            struct bits { u8 match:1; u8 reserved1:7; u8 data[]; };";
        let expected = [
            row("struct seg", "", 0, 96, ""),
            row("struct seg", "a", 0, 8, ""),
            row("struct seg", "b", 16, 16, ""),
            row("struct seg", "imm", 64, 32, ""),
            row("struct seg", "key", 64, 32, ""),
            row("struct packed_one", "", 0, 40, ""),
            row("struct packed_one", "a", 0, 8, ""),
            row("struct packed_one", "b", 8, 32, ""),
            row("struct bits", "", 0, 8, ""),
            row("struct bits", "match", 0, 1, ""),
            row("struct bits", "data", 8, 8, ""),
        ];
        assert_eq!(parse(source, Dialect::C), expected);
    }

    #[test]
    fn a_structure_that_cannot_be_read_is_missing() {
        let source = "
            struct mlx5_ifc_x_bits { u8 y[UNKNOWN]; };
            struct mlx5_ifc_z_bits { u8 before[0x1]; struct mlx5_ifc_x_bits x; };
            struct mlx5_ifc_good_bits { u8 y[0x1]; };";
        let expected = [row("good", "", 0, 1, ""), row("good", "y", 0, 1, "")];
        assert_eq!(parse(source, Dialect::Bits), expected);
    }
}
