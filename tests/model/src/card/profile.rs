//! A card that is read when the program runs: one of those that are built in, or a file of the same form.

use super::{Card, UnknownCard, Value, parse};
use crate::config::Config;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The size of the largest file that is read as a card.
const LONGEST: u64 = 1 << 20;

/// The description of a card, read from its text: of a [`Card`] that is built in, or of a file ([form](super)).
///
/// On command lines it is the name of a card, or the path of a file: `connectx-7`, `./mine.txt`.
#[derive(Debug, Clone)]
pub struct Profile {
    name: String,
    /// The configuration of the card as it is, and the one without what the model does not do.
    configs: [Config; 2],
    values: Vec<Value>,
}

impl Profile {
    /// Reads a card's text. Its name is for messages.
    ///
    /// # Errors
    /// If a line cannot be read, or says what the model cannot be.
    pub fn parse(name: impl Into<String>, text: &str) -> Result<Self, ProfileError> {
        let name = name.into();
        let read = |modelled| parse::parse(text, modelled);
        let parsed = read(false).and_then(|(plain, values)| Ok((plain, values, read(true)?.0)));
        match parsed {
            Ok((plain, values, modelled)) => Ok(Self {
                name,
                configs: [plain, modelled],
                values,
            }),
            Err(parse::Error { line, what }) => Err(ProfileError::Line { name, line, what }),
        }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read, or as [`parse`](Self::parse).
    pub fn read(path: impl AsRef<Path>) -> Result<Self, ProfileError> {
        let path = path.as_ref();
        let failed = |why: String| ProfileError::File {
            path: path.to_owned(),
            why,
        };
        let size = std::fs::metadata(path).map_err(|error| failed(error.to_string()))?;
        if size.len() > LONGEST {
            return Err(failed(format!("longer than {LONGEST} bytes")));
        }
        let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
        Self::parse(path.display().to_string(), &text)
    }

    /// The card's name, or the file's path.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A card of this kind whose addresses are all derived from `unit`, so that two cards on one cable differ.
    #[must_use]
    pub fn config(&self, unit: u8) -> Config {
        self.configs[0].clone().with_unit(unit.into())
    }

    /// The same without what the card offers and the model does not do ([`Config::modelled`]).
    #[must_use]
    pub fn modelled(&self, unit: u8) -> Config {
        self.configs[1].clone().with_unit(unit.into())
    }

    /// The card's configuration, with addresses of all zeros.
    pub(super) fn plain(&self) -> &Config {
        &self.configs[0]
    }

    /// Every value, with its source.
    #[must_use]
    pub fn values(&self) -> &[Value] {
        &self.values
    }
}

impl Default for Profile {
    /// The model's own card.
    fn default() -> Self {
        Self::from(Card::ConnectX5)
    }
}

impl From<Card> for Profile {
    fn from(card: Card) -> Self {
        card.profile().clone()
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl FromStr for Profile {
    type Err = ProfileError;

    /// The name of a card, or the path of a file.
    fn from_str(text: &str) -> Result<Self, ProfileError> {
        match text.parse::<Card>() {
            Ok(card) => Ok(card.into()),
            Err(unknown) if !text.contains(['/', '.']) && !Path::new(text).exists() => {
                Err(ProfileError::Unknown(unknown))
            }
            Err(_) => Self::read(text),
        }
    }
}

/// An error in a [`Profile`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// The text is neither the name of a card nor the path of a file.
    #[error("{0}; nor is there a file of that name")]
    Unknown(UnknownCard),
    /// The file cannot be read.
    #[error("{}: {why}", .path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// A line of it cannot be read, or says what the model cannot be.
    #[error("{name}, line {line}: {what}")]
    Line {
        /// The file's path, or the card's name.
        name: String,
        /// The line's number, from 1; the last one's, if no single line is wrong.
        line: usize,
        /// The error in the line.
        what: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Host, IommuFault, Model};
    use std::time::Duration;

    #[test]
    fn a_name_is_a_card_and_a_path_is_a_file() {
        let folder = std::env::temp_dir().join(format!("bareverbs-profile-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("mine.txt");
        std::fs::write(&path, Card::ConnectX7.text()).expect("a file");
        let name = path.display().to_string();
        let mine: Profile = name.parse().expect("a file");
        assert_eq!(mine.name(), name);
        let built_in: Profile = "connectx-7".parse().expect("a card");
        for (is, was) in [
            (mine.config(3), Config::card(Card::ConnectX7, 3)),
            (mine.modelled(3), Config::modelled(Card::ConnectX7, 3)),
            (built_in.config(3), Config::card(Card::ConnectX7, 3)),
        ] {
            assert_eq!(format!("{is:?}"), format!("{was:?}"));
        }
        std::fs::write(&path, "[function]\nbar_size = 3 (a)\n").expect("a file");
        let error = name.parse::<Profile>().unwrap_err().to_string();
        assert!(error.starts_with(&format!("{name}, line 2: ")), "{error}");
        std::fs::remove_dir_all(&folder).expect("it is ours");
        let error = name.parse::<Profile>().unwrap_err();
        assert!(matches!(error, ProfileError::File { .. }), "{error}");
        let error = "connectx-3".parse::<Profile>().unwrap_err();
        assert!(matches!(error, ProfileError::Unknown(_)), "{error}");
    }

    struct Nothing;

    impl Host for Nothing {
        fn dma_read(&mut self, iova: u64, data: &mut [u8]) -> Result<(), IommuFault> {
            let len = data.len();
            let write = false;
            Err(IommuFault { iova, len, write })
        }

        fn dma_write(&mut self, iova: u64, data: &[u8]) -> Result<(), IommuFault> {
            let len = data.len();
            let write = true;
            Err(IommuFault { iova, len, write })
        }

        fn interrupt(&mut self, _: u16) {}

        fn transmit(&mut self, _: &[u8]) {}
    }

    /// Any file is either refused with the number of a line, or is a card that can start.
    #[test]
    fn any_text_is_refused_or_a_card_that_starts() {
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = |below: usize| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            (seed >> 8) as usize % below
        };
        let strange = [
            "0xffffffffffffffff",
            "63",
            "0",
            "-1",
            "(",
            " = ",
            "[",
            "hex (log)",
            "ffc:",
            "ffffffff",
            "0b1",
            "4294967296",
            "\u{e9}\u{e9}\u{e9}",
            "@0x44.32",
            "",
            "0x1000000",
        ];
        let (mut refused, mut started) = (0, 0);
        for round in 0..400 {
            let card = Card::ALL[random(Card::ALL.len())];
            let mut lines: Vec<String> = card.text().lines().map(str::to_owned).collect();
            let values = (0..lines.len()).filter(|&at| lines[at].contains(" = "));
            let values: Vec<usize> = values.collect();
            for _ in 0..=random(2) {
                let bits = random(5);
                let number = random(1 << bits);
                let at = values[random(values.len())];
                let mut words: Vec<&str> = lines[at].split(' ').collect();
                let number = number.to_string();
                if round % 2 == 0 {
                    words[2] = &number;
                } else {
                    let word = random(words.len());
                    words[word] = strange[random(strange.len())];
                }
                lines[at] = words.join(" ");
            }
            match Profile::parse("drawn", &lines.join("\n")) {
                Err(error) => {
                    assert!(
                        matches!(error, ProfileError::Line { .. }),
                        "round {round}: {error}"
                    );
                    refused += 1;
                }
                Ok(profile) => {
                    let mut model = Model::new(profile.config(1));
                    model.config_write(&mut Nothing, 4, &[6, 0]);
                    model.advance(&mut Nothing, Duration::from_secs(1));
                    model.bar_read(&mut Nothing, 0, &mut [0; 4]);
                    started += 1;
                }
            }
        }
        assert!(
            refused > 50 && started > 30,
            "{refused} refused, {started} started"
        );
    }
}
