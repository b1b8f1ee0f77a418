//! A browser, by the WebDriver protocol of `chromedriver` and the DevTools protocol through it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::Outcome;

/// The key codes of WebDriver.
pub(crate) const TAB: char = '\u{e004}';
pub(crate) const ENTER: char = '\u{e007}';
pub(crate) const DOWN: char = '\u{e015}';

/// A browser with one window. Dropping it ends both programs.
pub(crate) struct Browser {
    driver: Child,
    /// Address of the session, to which the names of commands are added.
    session: String,
}

/// Permission of pages to run script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Script {
    On,
    Off,
}

impl Browser {
    pub(crate) fn start(script: Script) -> Outcome<Self> {
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let said = BufReader::new(driver.stdout.take().ok_or("chromedriver has no output")?);
        let port = said.lines().map_while(Result::ok).find_map(|line| {
            line.split_once("successfully on port ").map(|(_, port)| port.trim_end_matches('.').to_owned())
        });
        let mut browser = Self { driver, session: String::new() };
        let port = port.ok_or("chromedriver did not start")?;
        let address = format!("http://127.0.0.1:{port}/session");
        let allowed = if script == Script::On { 1 } else { 2 };
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "goog:chromeOptions": {
                "args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1280,900"],
                "prefs": { "profile.managed_default_content_settings.javascript": allowed },
            },
            "goog:loggingPrefs": { "browser": "ALL" },
        } } });
        let made = ask("POST", &address, Some(&wanted))?;
        let id = made["sessionId"].as_str().ok_or_else(|| format!("no session: {made}"))?;
        browser.session = format!("{address}/{id}");
        Ok(browser)
    }

    fn command(&self, name: &str, parameters: &Value) -> Outcome<Value> {
        ask("POST", &format!("{}/{name}", self.session), Some(parameters))
    }

    /// Loads a page and waits for it.
    pub(crate) fn go(&self, address: &str) -> Outcome<()> {
        self.command("url", &json!({ "url": address })).map(drop)
    }

    /// Evaluates the body of a function in the page, for what the driver has to see. The policy of
    /// the page and a browser without script do not concern it.
    pub(crate) fn look(&self, body: &str) -> Outcome<Value> {
        self.command("execute/sync", &json!({ "script": body, "args": [] }))
    }

    /// Presses keys one after the other.
    pub(crate) fn press(&self, keys: impl IntoIterator<Item = char>) -> Outcome<()> {
        let each =
            |key: char| ["keyDown", "keyUp"].map(|kind| json!({ "type": kind, "value": key.to_string() }));
        let strokes: Vec<Value> = keys.into_iter().flat_map(each).collect();
        let keyboard = json!({ "type": "key", "id": "keyboard", "actions": strokes });
        self.command("actions", &json!({ "actions": [keyboard] })).map(drop)
    }

    /// Sends a command of the DevTools protocol.
    pub(crate) fn tool(&self, command: &str, parameters: &Value) -> Outcome<Value> {
        self.command("goog/cdp/execute", &json!({ "cmd": command, "params": parameters }))
    }

    /// Gives the window so many CSS pixels.
    pub(crate) fn resize(&self, width: u32, height: u32) -> Outcome<()> {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.tool("Emulation.setDeviceMetricsOverride", &size).map(drop)
    }

    /// Lets pages have light or dark colours.
    pub(crate) fn colours(&self, scheme: &str) -> Outcome<()> {
        let feature = json!({ "name": "prefers-color-scheme", "value": scheme });
        self.tool("Emulation.setEmulatedMedia", &json!({ "features": [feature] })).map(drop)
    }

    /// Saves a picture of the whole page as PNG.
    pub(crate) fn picture(&self, path: &Path) -> Outcome<()> {
        let whole = json!({ "format": "png", "captureBeyondViewport": true });
        let taken = self.tool("Page.captureScreenshot", &whole)?;
        let text = taken["data"].as_str().ok_or("no picture")?;
        let mut decoder = Command::new("base64")
            .arg("-d")
            .stdin(Stdio::piped())
            .stdout(std::fs::File::create(path)?)
            .spawn()?;
        decoder.stdin.take().ok_or("no input")?.write_all(text.as_bytes())?;
        if decoder.wait()?.success() { Ok(()) } else { Err("a picture that is no base64".into()) }
    }

    /// Returns the messages of the console since the last call, which have those of the policy.
    pub(crate) fn console(&self) -> Outcome<Vec<String>> {
        let log = self.command("se/log", &json!({ "type": "browser" }))?;
        let lines = log.as_array().into_iter().flatten();
        Ok(lines.map(|line| line["message"].as_str().unwrap_or_default().to_owned()).collect())
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() {
            let _ = ask("DELETE", &self.session, None);
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// Sends a request, and returns the value of the answer.
fn ask(method: &str, address: &str, body: Option<&Value>) -> Outcome<Value> {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--max-time", "120", "--request", method, address]);
    if body.is_some() {
        curl.args(["--header", "content-type: application/json", "--data-binary", "@-"]);
    }
    let mut curl = curl.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut input = curl.stdin.take().ok_or("no input")?;
    input.write_all(body.map(Value::to_string).unwrap_or_default().as_bytes())?;
    drop(input);
    let output = curl.wait_with_output()?;
    if !output.status.success() {
        return Err(format!("{method} {address}: no answer").into());
    }
    let answer: Value = serde_json::from_slice(&output.stdout)?;
    match answer["value"].get("error") {
        Some(error) => Err(format!("{method} {address}: {error}: {}", answer["value"]["message"]).into()),
        None => Ok(answer["value"].clone()),
    }
}
