//! Port mirroring of a vSwitch.

use taut_api::network::VSwitchSpec;
use taut_api::{ApiError, Name};

use super::refusal::invalid;

/// Admits the mirroring sessions of a vSwitch.
///
/// # Errors
/// When there are too many, or one can never do what it says.
pub fn admit_mirrors(name: &Name, spec: &VSwitchSpec) -> Result<(), ApiError> {
    let (count, most) = (spec.mirrors.len(), VSwitchSpec::MOST_MIRRORS);
    if count > most {
        return Err(invalid(
            format!("{count} mirroring sessions of vSwitch `{name}` are more than {most}"),
            format!("remove one: taut vswitch set {name} --mirror NAME:off"),
        ));
    }
    for (session, mirror) in &spec.mirrors {
        mirror.check().map_err(|bad| {
            invalid(
                format!("the mirroring session `{session}` of vSwitch `{name}`: {bad}"),
                "`taut port list` shows the owners of ports",
            )
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_checked_and_limited() {
        let name: Name = "prod".parse().unwrap();
        let with = |count: usize, text: &str| {
            let session = |number: usize| (format!("m{number}").parse().unwrap(), text.parse().unwrap());
            VSwitchSpec { mirrors: (0..count).map(session).collect(), ..VSwitchSpec::default() }
        };
        assert_eq!(admit_mirrors(&name, &with(16, "from=netns/a,to=netns/b")), Ok(()));
        let refused = admit_mirrors(&name, &with(17, "from=netns/a,to=netns/b")).unwrap_err().to_string();
        assert!(
            refused.contains("17 mirroring sessions of vSwitch `prod` are more than 16\nhint: "),
            "{refused}"
        );
        let mut wrong = with(1, "from=netns/a,to=netns/b");
        wrong.mirrors.values_mut().for_each(|mirror| mirror.sources.clear());
        let refused = admit_mirrors(&name, &wrong).unwrap_err().to_string();
        assert!(refused.contains("session `m0` of vSwitch `prod`: 0 sources"), "{refused}");
    }
}
