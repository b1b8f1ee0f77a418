//! All pages, with and without script, at several widths.

use std::thread::sleep;
use std::time::Duration;

use serde_json::{Value, json};

use crate::Outcome;
use crate::crawl::each_page;
use crate::driver::{Browser, Script};
use crate::host::Host;

/// Widths of the window in CSS pixels: a small telephone to a large screen.
const WIDTHS: [u32; 5] = [320, 480, 768, 1280, 2560];
const HEIGHT: u32 = 900;
/// Roles of controls that need a name, as in the accessibility tree.
const CONTROLS: [&str; 13] = [
    "button",
    "checkbox",
    "combobox",
    "link",
    "listbox",
    "menuitem",
    "option",
    "radio",
    "searchbox",
    "slider",
    "spinbutton",
    "switch",
    "textbox",
];
/// Time in which a page that updates itself does so at least once.
const UPDATE: Duration = Duration::from_secs(7);

/// Parts of a page that are cut off: those that reach out of the window without a bar to scroll
/// by, and those whose content is hidden by their own edge.
const CUT_OFF: &str = "
  const found = [];
  const name = (each) => each.tagName.toLowerCase() + (each.id ? '#' + each.id : '') + ' ' + each.textContent.slice(0, 40);
  const root = document.documentElement;
  if (root.scrollWidth > innerWidth) found.push('page ' + root.scrollWidth);
  for (const each of document.querySelectorAll('body *')) {
    const style = getComputedStyle(each), box = each.getBoundingClientRect();
    if (!box.width || !box.height || each.closest('.skip, svg, option, noscript')) continue;
    let scrolls = false;
    for (let up = each.parentElement; up; up = up.parentElement)
      scrolls ||= ['auto', 'scroll'].includes(getComputedStyle(up).overflowX);
    if (!scrolls && box.right > innerWidth + 0.5) found.push('right ' + name(each));
    if (!scrolls && box.left < -0.5) found.push('left ' + name(each));
    if (style.overflowX === 'hidden' && each.scrollWidth > each.clientWidth + 1) found.push('hidden ' + name(each));
  }
  for (const drawing of document.querySelectorAll('svg')) {
    const box = drawing.getBoundingClientRect();
    for (const text of drawing.querySelectorAll('text')) {
      const part = text.getBoundingClientRect();
      if (part.right > box.right + 1 || part.left < box.left - 1) found.push('drawing ' + text.textContent);
    }
  }
  return found;";

pub(crate) fn run() -> Outcome<Value> {
    let host = Host::start()?;
    let _stream = host.stream(600);
    // Pages of events, refusals and several samples have something to show.
    host.taut.run(["vm", "create", "--name", "m1", "--kind", "micro"]);
    sleep(Duration::from_secs(5));
    let mut found = serde_json::Map::new();
    for (name, script) in [("with_script", Script::On), ("without_script", Script::Off)] {
        found.insert(name.to_owned(), look(&host, script)?);
    }
    Ok(Value::Object(found))
}

/// Visits all pages and sends one form.
fn look(host: &Host, script: Script) -> Outcome<Value> {
    let browser = Browser::start(script)?;
    let (mut controls, mut unnamed, mut cut_off, mut failed) = (0, Vec::new(), Vec::new(), Vec::new());
    let pages = each_page(&browser, &host.page, |address| {
        let state = browser.look("return [document.title, document.querySelectorAll('main h1').length];")?;
        if state[0].as_str().is_none_or(|title| !title.contains("taut")) || state[1] != 1 {
            failed.push(format!("{address}: {state}"));
        }
        let tree = browser.tool("Accessibility.getFullAXTree", &json!({}))?;
        for node in tree["nodes"].as_array().into_iter().flatten() {
            let role = node["role"]["value"].as_str().unwrap_or_default().to_lowercase();
            if node["ignored"] == true || !CONTROLS.contains(&role.as_str()) {
                continue;
            }
            controls += 1;
            if node["name"]["value"].as_str().unwrap_or_default().trim().is_empty() {
                unnamed.push(format!("{address}: {role}"));
            }
        }
        for width in WIDTHS {
            browser.resize(width, HEIGHT)?;
            for part in browser.look(CUT_OFF)?.as_array().into_iter().flatten() {
                cut_off.push(format!("{address} at {width}: {}", part.as_str().unwrap_or_default()));
            }
        }
        Ok(())
    })?;
    let form = send_form(host, &browser, script)?;
    let updates = updates(host, &browser)?;
    let messages = browser.console()?;
    let (policy, other): (Vec<_>, Vec<_>) =
        messages.into_iter().partition(|message| message.contains("Content Security Policy"));
    Ok(json!({
        "pages": pages,
        "failed": failed,
        "controls": controls,
        "unnamed": unnamed,
        "cut_off": cut_off,
        "policy": policy,
        "console": other,
        "form": form,
        "updates": updates,
    }))
}

/// Limits a card by the form, and returns whether the API has the limit and the page says so.
fn send_form(host: &Host, browser: &Browser, script: Script) -> Outcome<bool> {
    let average = if script == Script::On { "300" } else { "200" };
    browser.go(&format!("{}/ports/vm/m1/nic0", host.page))?;
    browser.look(&format!(
        "document.querySelector('[name=transmit_mode][value=limited]').checked = true;
         document.querySelector('[name=transmit_average]').value = '{average}';
         document.querySelector('form.shaping button').click();"
    ))?;
    sleep(Duration::from_secs(2));
    let said = browser.look("return document.querySelector('.done')?.textContent ?? '';")?;
    let ports = host.taut.json(["port", "list"]);
    let is_m1 = |port: &&Value| port["owner"] == "vm/m1/nic0";
    let port = ports.as_array().into_iter().flatten().find(is_m1).ok_or("m1 has no port")?;
    let stored = port["shaping"]["to_switch"]["shape"]["average"].as_str() == Some(&format!("{average}Mbit"));
    Ok(stored && said.as_str().is_some_and(|said| said.contains("stored")))
}

/// Returns whether a page changes by itself while it is shown.
fn updates(host: &Host, browser: &Browser) -> Outcome<bool> {
    browser.go(&format!("{}/ports/vm/m2/nic0?period=1m", host.page))?;
    let text = "return document.getElementById('averages-table')?.textContent ?? '';";
    let before = browser.look(text)?;
    sleep(UPDATE);
    Ok(browser.look(text)? != before)
}
