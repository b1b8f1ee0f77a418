//! Shaping of a card, changed by the keyboard alone, and the rate that follows.

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::Outcome;
use crate::driver::{Browser, DOWN, ENTER, Script, TAB};
use crate::host::Host;

/// The limit, in Mbit/s, and how far the rate may be from it.
const LIMIT: f64 = 20.0;
const NEAR: f64 = 0.1;
/// Time over which a rate is measured, and time between two measurements.
const WINDOW: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(50);
/// Time within which the rate must follow for the program to see it.
const LONGEST: Duration = Duration::from_secs(30);
/// Time for which the rate must stay near the limit.
const STAYS: Duration = Duration::from_secs(3);
/// Keys that are pressed at most to reach a field.
const MOST_KEYS: u32 = 200;
/// Size of the window for pictures, in CSS pixels.
const PICTURE: (u32, u32) = (1280, 1500);

/// Saves pictures in `folder`.
pub(crate) fn run(folder: &Path) -> Outcome<Value> {
    std::fs::create_dir_all(folder)?;
    let host = Host::start()?;
    let _stream = host.stream(600);
    let browser = Browser::start(Script::On)?;
    browser.resize(PICTURE.0, PICTURE.1)?;
    browser.go(&format!("{}/ports/vm/m2/nic0?period=1m", host.page))?;
    let before = rate_over(&host, Duration::from_secs(3))?;

    let mut keys = 0;
    let mut reach = |browser: &Browser, name: &str| -> Outcome<()> {
        let at = format!(
            "const at = document.activeElement; return at.name === '{name}' || at.textContent === '{name}';"
        );
        for _ in 0..MOST_KEYS {
            if browser.look(&at)? == json!(true) {
                return Ok(());
            }
            browser.press([TAB])?;
            keys += 1;
        }
        Err(format!("`{name}` cannot be reached by the keyboard").into())
    };
    reach(&browser, "receive_mode")?;
    browser.press([DOWN, DOWN])?;
    reach(&browser, "receive_average")?;
    browser.press(LIMIT.to_string().chars())?;
    reach(&browser, "receive_average_unit")?;
    browser.press("Mbps".chars())?;
    reach(&browser, "receive_burst")?;
    browser.press("64".chars())?;
    reach(&browser, "receive_burst_unit")?;
    browser.press("KiB".chars())?;
    reach(&browser, "Apply shaping")?;
    let pressed = Instant::now();
    browser.press([ENTER])?;
    let followed = follow(&host, pressed)?;

    let said = browser.look("return document.querySelector('.done')?.textContent ?? '';")?;
    if !said.as_str().unwrap_or_default().contains("stored") {
        return Err(format!("the page does not say that the change is stored: {said}").into());
    }
    // The chart shows both rates.
    sleep(Duration::from_secs(15));
    for scheme in ["light", "dark"] {
        browser.colours(scheme)?;
        for (name, address) in
            [("port", "/ports/vm/m2/nic0?period=1m"), ("networks", "/networks"), ("host", "/host")]
        {
            browser.go(&format!("{}{address}", host.page))?;
            browser.picture(&folder.join(format!("{name}-{scheme}.png")))?;
        }
    }
    Ok(json!({
        "before_mbit_per_s": before,
        "limit_mbit_per_s": LIMIT,
        "after_mbit_per_s": rate_over(&host, Duration::from_secs(5))?,
        "seconds": followed.as_secs_f64(),
        "tabs": keys,
        "console": browser.console()?,
    }))
}

/// Returns the rate of the card in Mbit/s over a time that begins now.
fn rate_over(host: &Host, time: Duration) -> Outcome<f64> {
    let (before, begun) = (host.received()?, Instant::now());
    sleep(time);
    Ok(rate(before, begun, host.received()?, Instant::now()))
}

fn rate(before: u64, begun: Instant, after: u64, ended: Instant) -> f64 {
    (after - before) as f64 * 8.0 / 1e6 / (ended - begun).as_secs_f64()
}

/// Returns the time from a key until the begin of the first window from which on the rate is near
/// the limit, plus that window: when somebody could have seen it.
fn follow(host: &Host, pressed: Instant) -> Outcome<Duration> {
    let mut looks: Vec<(Instant, u64)> = Vec::new();
    let mut near_since: Option<Instant> = None;
    loop {
        let now = Instant::now();
        if now - pressed > LONGEST {
            return Err(format!("the rate does not follow within {} s", LONGEST.as_secs()).into());
        }
        looks.push((now, host.received()?));
        let first = looks.iter().rposition(|(at, _)| now - *at >= WINDOW);
        if let (Some(first), Some(last)) = (first, looks.last()) {
            let rate = rate(looks[first].1, looks[first].0, last.1, last.0);
            if (rate / LIMIT - 1.0).abs() > NEAR {
                near_since = None;
            } else {
                let since = *near_since.get_or_insert(now);
                if now - since >= STAYS {
                    return Ok(since - pressed);
                }
            }
        }
        sleep(LOOK);
    }
}
