//! The definition of enums whose variants are numbers of the device.
//!
//! A number stands once, beside its variant and its text, and both directions of the conversion follow from it.

/// The line of a variant's documentation that its number and text make: `code` for a name as C sources have it, `plain`
/// for a name that is read as it stands, `words` for a text that says what the number means.
macro_rules! variant_doc {
    (code, $text:literal, $value:literal) => {
        concat!(" `", $text, "`, ", stringify!($value), ".")
    };
    (plain, $text:literal, $value:literal) => {
        concat!(" ", $text, ", ", stringify!($value), ".")
    };
    (words, $text:literal, $value:literal) => {
        concat!(" ", stringify!($value), ": ", $text, ".")
    };
}
pub(crate) use variant_doc;

/// The text at this position, of those that lie behind one another. An address and a length for each, or code that
/// returns them, would be several times as large as the lengths alone.
#[must_use]
pub(crate) const fn nth_text(texts: &'static str, lens: &[u8], nth: usize) -> &'static str {
    let mut rest = texts;
    let mut at = 0;
    while at < lens.len() {
        let Some((text, behind)) = rest.split_at_checked(lens[at] as usize) else {
            break;
        };
        if at == nth {
            return text;
        }
        (rest, at) = (behind, at + 1);
    }
    ""
}

/// The length of a text, where it is compiled.
pub(crate) const fn len(text: &str) -> u8 {
    assert!(text.len() < 256);
    text.len() as u8
}

/// Defines an enum, `ALL` of its variants, `from_number`, the text, and `number` where it is asked for.
///
/// Without more, `from_number` gives `None` for a number that has no variant. With `_ = Unknown, "text";` behind the
/// variants the enum is open: it keeps such a number as `Unknown`, so that a report can still say it.
macro_rules! numbered {
    (
        $(#[$meta:meta])*
        pub enum $Name:ident: $T:ident, $style:ident {
            $( $(#[$variant_meta:meta])* $Variant:ident = $value:literal, $text:literal; )*
        }
        $(#[$all_meta:meta])* const ALL;
        $(#[$from_meta:meta])* fn from_number;
        $(#[$text_meta:meta])* fn $as_text:ident;
        $( $(#[$number_meta:meta])* fn number; )?
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr($T)]
        pub enum $Name {
            $( $(#[$variant_meta])* #[doc = $crate::numbered::variant_doc!($style, $text, $value)] $Variant = $value, )*
        }

        impl $Name {
            $(#[$all_meta])*
            pub const ALL: &'static [Self] = &[$(Self::$Variant),*];

            $(#[$from_meta])*
            #[must_use]
            pub const fn from_number(number: $T) -> Option<Self> {
                match number {
                    $($value => Some(Self::$Variant),)*
                    _ => None,
                }
            }

            $(
                $(#[$number_meta])*
                #[must_use]
                pub const fn number(self) -> $T {
                    self as $T
                }
            )?

            $(#[$text_meta])*
            #[must_use]
            pub const fn $as_text(self) -> &'static str {
                const LENS: &[u8] = &[$($crate::numbered::len($text)),*];
                let mut nth = 0;
                while nth < LENS.len() && Self::ALL[nth] as $T != self as $T {
                    nth += 1;
                }
                $crate::numbered::nth_text(concat!($($text),*), LENS, nth)
            }
        }
    };
    (
        $(#[$meta:meta])*
        pub enum $Name:ident: $T:ident, $style:ident {
            $( $(#[$variant_meta:meta])* $Variant:ident = $value:literal, $text:literal; )*
            _ = Unknown, $unknown:literal;
        }
        $(#[$all_meta:meta])* const ALL;
        $(#[$from_meta:meta])* fn from_number;
        $(#[$text_meta:meta])* fn $as_text:ident;
        $(#[$number_meta:meta])* fn number;
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $Name {
            $( $(#[$variant_meta])* #[doc = $crate::numbered::variant_doc!($style, $text, $value)] $Variant, )*
            /// A number that this crate has no name for.
            Unknown($T),
        }

        // A second set of names would say no more.
        impl core::fmt::Debug for $Name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                core::fmt::Display::fmt(self, f)
            }
        }

        impl $Name {
            $(#[$all_meta])*
            pub const ALL: &'static [Self] = &[$(Self::$Variant),*];

            $(#[$from_meta])*
            #[must_use]
            pub const fn from_number(number: $T) -> Self {
                match number {
                    $($value => Self::$Variant,)*
                    other => Self::Unknown(other),
                }
            }

            $(#[$number_meta])*
            #[must_use]
            pub const fn number(self) -> $T {
                match self {
                    $(Self::$Variant => $value,)*
                    Self::Unknown(number) => number,
                }
            }

            $(#[$text_meta])*
            #[must_use]
            pub const fn $as_text(self) -> &'static str {
                const NUMBERS: &[$T] = &[$($value),*];
                const LENS: &[u8] = &[$($crate::numbered::len($text)),* , $crate::numbered::len($unknown)];
                let number = self.number();
                let mut nth = 0;
                while nth < NUMBERS.len() && NUMBERS[nth] != number {
                    nth += 1;
                }
                $crate::numbered::nth_text(concat!($($text,)* $unknown), LENS, nth)
            }
        }
    };
}
pub(crate) use numbered;

#[cfg(test)]
mod tests {
    use super::nth_text;

    #[test]
    fn texts_lie_behind_one_another() {
        let (texts, lens) = ("onetwothree", [3, 3, 0, 5]);
        let all = [0, 1, 2, 3].map(|nth| nth_text(texts, &lens, nth));
        assert_eq!(all, ["one", "two", "", "three"]);
        assert_eq!(nth_text(texts, &lens, 4), "");
        assert_eq!(nth_text(texts, &[3, 9], 1), "");
    }
}
