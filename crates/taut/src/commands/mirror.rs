//! Options for port mirroring of a vSwitch.

use std::collections::BTreeMap;
use std::str::FromStr;

use clap::Args;
use taut_api::Name;
use taut_api::mirror::Mirror;
use taut_api::word::removes;

/// Options for port mirroring. Sessions that are not named stay as they are.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct MirrorArgs {
    /// Copy the frames of some ports to another one (ESX: Port mirroring): a name for the session,
    /// from=PORT, once for each port, to=PORT, and direction=tx or rx if not both, such as
    /// ids:from=vm/web1/nic0,to=netns/ids; NAME:off ends a session. May be repeated
    #[arg(long, value_name = "NAME:SESSION")]
    mirror: Vec<Session>,
}

/// A session with its name; `None` ends it.
#[derive(Debug, Clone)]
struct Session(Name, Option<Mirror>);

impl FromStr for Session {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, session) =
            text.split_once(':').ok_or("write NAME:from=PORT,to=PORT, or NAME:off to end a session")?;
        let name = name.parse::<Name>().map_err(|error| error.to_string())?;
        if removes(session) {
            return Ok(Self(name, None));
        }
        let mirror = session.parse::<Mirror>().map_err(|error| error.to_string())?;
        Ok(Self(name, Some(mirror)))
    }
}

impl MirrorArgs {
    /// Changes what is given.
    pub(crate) fn change(&self, mirrors: &mut BTreeMap<Name, Mirror>) {
        for Session(name, mirror) in &self.mirror {
            match mirror {
                Some(mirror) => _ = mirrors.insert(name.clone(), mirror.clone()),
                None => _ = mirrors.remove(name),
            }
        }
    }
}

/// Renders all sessions in one line; empty without a session.
pub(crate) fn line(mirrors: &BTreeMap<Name, Mirror>) -> String {
    let each: Vec<_> = mirrors.iter().map(|(name, mirror)| format!("{name}:{mirror}")).collect();
    each.join(" ")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: MirrorArgs,
    }

    fn change(mirrors: &mut BTreeMap<Name, Mirror>, words: &str) -> String {
        let line = Line::try_parse_from(["taut"].into_iter().chain(words.split_whitespace())).unwrap();
        line.args.change(mirrors);
        super::line(mirrors)
    }

    #[test]
    fn sessions_begin_change_and_end_by_name() {
        let mut now = BTreeMap::new();
        assert_eq!(change(&mut now, ""), "");
        let both = "ids:from=vm/a/nic0,to=netns/ids log:from=netns/b,from=netns/c,to=netns/log";
        let words =
            both.split(' ').map(|session| format!("--mirror {session}")).collect::<Vec<_>>().join(" ");
        assert_eq!(change(&mut now, &words), both);
        assert_eq!(
            change(&mut now, "--mirror ids:from=vm/a/nic1,to=netns/ids,direction=tx --mirror log:off"),
            "ids:from=vm/a/nic1,to=netns/ids,direction=tx"
        );
        assert_eq!(change(&mut now, "--mirror ids:none --mirror nothing:off"), "");
        for wrong in ["ids", "ids:", "i/s:off", "ids:from=a,to=netns/b", "ids:from=netns/a"] {
            assert!(Line::try_parse_from(["taut", "--mirror", wrong]).is_err(), "{wrong}");
        }
    }
}
