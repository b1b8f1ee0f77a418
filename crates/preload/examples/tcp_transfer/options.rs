//! Options of the client.

use std::path::PathBuf;

use crate::pattern::{SECRET, Secret};
use crate::ways::Way;

/// What a client does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) address: String,
    /// Bytes in each direction of a connection.
    pub(crate) bytes: u64,
    pub(crate) connections: u64,
    pub(crate) seed: u64,
    pub(crate) way: Way,
    pub(crate) peer_way: Way,
    pub(crate) secret: Option<Secret>,
    pub(crate) hold: Option<PathBuf>,
    pub(crate) until: Option<PathBuf>,
}

impl Options {
    /// Reads the address and the options behind it.
    pub(crate) fn parse(words: &[String]) -> Result<Self, String> {
        let (address, rest) = words.split_first().ok_or("no address")?;
        let mut options = Self {
            address: address.clone(),
            bytes: 1 << 20,
            connections: 1,
            seed: 1,
            way: Way::Stay,
            peer_way: Way::Stay,
            secret: None,
            hold: None,
            until: None,
        };
        for pair in rest.chunks(2) {
            let [name, value] = pair else { return Err(format!("{} has no value", pair[0])) };
            let number = || value.parse().map_err(|_| format!("{name}: {value} is no number"));
            match name.as_str() {
                "--bytes" => options.bytes = number()?,
                "--connections" => options.connections = number()?,
                "--seed" => options.seed = number()?,
                "--way" => options.way = value.parse()?,
                "--peer-way" => options.peer_way = value.parse()?,
                "--secret" => options.secret = Some(secret(value)?),
                "--hold" => options.hold = Some(value.into()),
                "--until" => options.until = Some(value.into()),
                _ => return Err(format!("unknown option {name}")),
            }
        }
        Ok(options)
    }
}

/// Reads a secret. It is repeated or cut so that it has its length.
pub(crate) fn secret(text: &str) -> Result<Secret, String> {
    let mut bytes = text.bytes().cycle();
    let mut secret = [0; SECRET];
    for byte in &mut secret {
        *byte = bytes.next().ok_or("the secret is empty")?;
    }
    Ok(secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Result<Options, String> {
        Options::parse(&words.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn options_are_read_or_refused() {
        let options = parse("h:1 --bytes 5 --way exec --secret ab --hold /tmp/x").unwrap();
        assert_eq!((options.bytes, options.way), (5, Way::Exec));
        assert_eq!(options.secret.unwrap()[..4], *b"abab");
        for wrong in ["h:1 --bytes", "h:1 --bytes x", "h:1 --way fly", "h:1 --color red"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
