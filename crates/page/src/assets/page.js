// Keeps a page up to date: fetches the same page and replaces the elements with an id that differ.
// If there are other elements than before, replaces all of the content, unless somebody works in it.
// Stops while the page is hidden. Never touches a form in which somebody works.
"use strict";
{
  const EVERY_MS = 5000;
  const SUMMARY_EVERY_MS = 10000;
  let timer = 0;
  let summaryAt = 0;

  const busy = (element) => {
    const active = document.activeElement;
    return active !== document.body && element.contains(active);
  };

  const ids = (page) => [...page.querySelectorAll("main [id]")].map((element) => element.id).join(" ");

  // Returns whether a field that changes something differs from what was loaded.
  const edited = () => [...document.querySelectorAll("main form[method=post] :is(input, select)")].some((field) =>
    field.type === "radio" ? field.checked !== field.defaultChecked
      : field.options ? [...field.options].some((option) => option.selected !== option.defaultSelected)
        : field.value !== field.defaultValue);

  // Returns whether the page shows what the server has.
  const replace = (next) => {
    const now = Date.now();
    if (ids(document) !== ids(next)) {
      const main = document.querySelector("main");
      if (busy(main) || edited()) return false;
      main.replaceChildren(...next.querySelector("main").childNodes);
      return true;
    }
    for (const element of document.querySelectorAll("main [id]")) {
      const other = next.getElementById(element.id);
      // An element with parts that have an id is brought up to date by these parts.
      if (!other || element.querySelector("[id], form") || element.closest("form, svg")) continue;
      const details = element.querySelectorAll("details");
      other.querySelectorAll("details").forEach((each, index) => { each.open = details[index]?.open; });
      if (element.isEqualNode(other) || busy(element)) continue;
      if (element.getAttribute("role") === "status") {
        if (now - summaryAt < SUMMARY_EVERY_MS) continue;
        summaryAt = now;
        element.replaceChildren(...other.childNodes);
      } else {
        const boxes = [...element.querySelectorAll(".wide")].map((box) => box.scrollLeft);
        element.replaceWith(other);
        other.querySelectorAll(".wide").forEach((box, index) => { box.scrollLeft = boxes[index] || 0; });
      }
    }
    return true;
  };

  const update = async () => {
    const mark = document.getElementById("fresh");
    try {
      const answer = await fetch(location.href, { credentials: "same-origin", redirect: "error" });
      const next = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (!answer.ok) {
        mark.textContent = ", not up to date: the server answers “" + next.querySelector("h1").textContent + "”";
      } else if (replace(next)) {
        mark.textContent = ", as of " + new Date().toISOString().slice(11, 19) + "Z";
      } else {
        mark.textContent = ", not up to date: load the page again to see what is new";
      }
    } catch (error) {
      mark.textContent = ", not up to date: the server does not answer";
    }
    mark.hidden = false;
  };

  const schedule = () => {
    clearTimeout(timer);
    if (!document.hidden) timer = setTimeout(() => update().finally(schedule), EVERY_MS);
  };

  document.addEventListener("visibilitychange", schedule);
  schedule();
}
