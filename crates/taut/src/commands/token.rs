//! `taut token`.

use clap::{Args, Subcommand, ValueEnum};
use taut_api::calendar::Utc;
use taut_api::role::Role;
use taut_api::route::DaemonInfo;
use taut_api::statistics::Period;
use taut_api::token::{CreateToken, CreatedToken, RemoteInfo, TokenInfo};
use taut_api::{Name, path};

use crate::client::Client;
use crate::output::{self, Outcome, Output};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create a token for access over TCP (tautd --listen). Its secret is shown only once
    Create(CreateArgs),
    /// List tokens: role, creation, expiry, last use
    List,
    /// Delete a token. Its sessions and open connections end at once
    Delete {
        /// Name of the token
        name: Name,
    },
}

#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// Name, which the audit record has of each change that is made with the token
    name: Name,
    /// Role: what its holder may do
    #[arg(long, value_enum)]
    role: RoleWord,
    /// Time for which it is valid, such as 12h or 30d; at most 366d
    #[arg(long, value_name = "TIME", default_value = "30d")]
    expires: Period,
}

/// A role on the command line.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum RoleWord {
    /// Reads everything but the audit record, tokens and the frames of ports
    View,
    /// Starts and stops VMs as well
    Operate,
    /// Writes VMs and networks as well
    Define,
    /// Does everything
    Admin,
}

impl From<RoleWord> for Role {
    fn from(word: RoleWord) -> Self {
        match word {
            RoleWord::View => Self::View,
            RoleWord::Operate => Self::Operate,
            RoleWord::Define => Self::Define,
            RoleWord::Admin => Self::Admin,
        }
    }
}

pub(crate) fn run(command: Command, client: &Client, out: Output) -> Outcome {
    match command {
        Command::Create(CreateArgs { name, role, expires }) => {
            let body = CreateToken { name, role: role.into(), valid_s: expires.ms() / 1000 };
            let created: CreatedToken = client.post(path::TOKENS, &body)?;
            // The secret is the result, which --quiet does not hide.
            output::print(out.format, &created, created_text);
        }
        Command::List => {
            let all: Vec<TokenInfo> = client.get(path::TOKENS)?;
            let daemon: DaemonInfo = client.get(path::DAEMON)?;
            output::print(out.format, &all, |all| table(all) + "\n" + &place(daemon.remote.as_ref()));
        }
        Command::Delete { name } => {
            client.delete(&path::TOKEN.of(&name))?;
            out.deleted("token", &name, "deleted; its sessions and connections have ended");
        }
    }
    Ok(())
}

fn created_text(created: &CreatedToken) -> String {
    let CreatedToken { token, secret, remote } = created;
    let fields = output::fields(&[
        ("name", token.name.to_string()),
        ("role", token.role.to_string()),
        ("expires", Utc::from_ms(token.expires_ms).to_string()),
        ("token", secret.clone()),
    ]);
    format!("{fields}\n{}", place(remote.as_ref()))
}

/// Says where a token can be shown.
pub(super) fn place(remote: Option<&RemoteInfo>) -> String {
    let Some(RemoteInfo { address, fingerprint, self_signed }) = remote else {
        return "tautd does not listen on TCP: start it with --listen ADDR:PORT\n".to_owned();
    };
    let own = if *self_signed { "self-signed by tautd; clients have to pin it" } else { "from --tls-cert" };
    output::fields(&[
        ("address", format!("https://{address}")),
        ("certificate", own.to_owned()),
        ("sha256", fingerprint.clone()),
    ])
}

fn table(all: &[TokenInfo]) -> String {
    let row = |token: &TokenInfo| {
        let expires = Utc::from_ms(token.expires_ms).to_string();
        [
            token.name.to_string(),
            token.role.to_string(),
            Utc::from_ms(token.created_ms).to_string(),
            if token.expired { format!("{expires}, over") } else { expires },
            token.used_ms.map_or("not by this tautd".to_owned(), |ms| Utc::from_ms(ms).to_string()),
        ]
    };
    output::table(
        ["NAME", "ROLE", "CREATED", "EXPIRES", "LAST USED"],
        &all.iter().map(row).collect::<Vec<_>>(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(name: &str, used_ms: Option<u64>) -> TokenInfo {
        TokenInfo {
            name: name.parse().unwrap(),
            role: Role::Operate,
            created_ms: 1_709_210_096_789,
            expires_ms: 1_711_802_096_789,
            expired: used_ms.is_none(),
            used_ms,
        }
    }

    #[test]
    fn a_new_token_is_printed_with_its_place() {
        let remote = RemoteInfo {
            address: "192.0.2.7:8443".parse().unwrap(),
            fingerprint: "AB:CD".to_owned(),
            self_signed: true,
        };
        let mut created =
            CreatedToken { token: token("ci", Some(0)), secret: "taut_00".to_owned(), remote: Some(remote) };
        insta::assert_snapshot!(created_text(&created), @r"
        name     ci
        role     operate
        expires  2024-03-30 12:34:56Z
        token    taut_00

        address      https://192.0.2.7:8443
        certificate  self-signed by tautd; clients have to pin it
        sha256       AB:CD
        ");
        created.remote = None;
        assert!(created_text(&created).ends_with("start it with --listen ADDR:PORT\n"));
    }

    #[test]
    fn tokens_are_listed_with_their_end_and_last_use() {
        let all = [token("ci", Some(1_709_210_100_000)), token("old", None)];
        insta::assert_snapshot!(table(&all), @r"
        NAME  ROLE     CREATED               EXPIRES                     LAST USED
        ci    operate  2024-02-29 12:34:56Z  2024-03-30 12:34:56Z        2024-02-29 12:35:00Z
        old   operate  2024-02-29 12:34:56Z  2024-03-30 12:34:56Z, over  not by this tautd
        ");
    }
}
