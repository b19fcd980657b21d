// Fetches the live part of the page every two seconds while the page is visible and no detail is open.
(() => {
  "use strict";
  const PERIOD = 2000;
  const UPDATES = `updates every ${PERIOD / 1000} s`;
  const ids = ["live", "refresh", "state", "pause", "said", "icon"];
  const [live, bar, state, pause, said, icon] = ids.map((id) => document.getElementById(id));
  let paused = false;
  let timer = 0;
  let health = "";

  const header = () => live.querySelector("[data-health]")?.dataset ?? {};
  const health_now = () => header().health ?? "";

  // Returns why the page must not change now, or an empty text if it may.
  const why_not = () => {
    if (paused) return "paused";
    if (document.hidden) return "paused while hidden";
    if (live.querySelector("button:active")) return "paused while a button is pressed";
    if (live.querySelector("details[open]")) return "paused while a detail is open";
    const selection = getSelection();
    if (selection && !selection.isCollapsed && live.contains(selection.anchorNode)) return "paused while text is selected";
    return "";
  };

  const show = (text, stale) => {
    if (state.textContent !== text) state.textContent = text;
    document.body.classList.toggle("stale", stale);
  };

  // Returns a name by which the focused element can be found again.
  const focus_name = (element) =>
    element?.getAttribute("href") ?? element?.closest("form")?.getAttribute("action") ?? element?.closest("[data-id]")?.dataset.id;

  const replace = (html) => {
    const name = live.contains(document.activeElement) ? focus_name(document.activeElement) : undefined;
    live.innerHTML = html;
    const { title, icon: image } = header();
    if (title && document.title !== title) document.title = title;
    if (image && icon.getAttribute("href") !== image) icon.href = image;
    if (name !== undefined) {
      const same = [...live.querySelectorAll("a, summary, button")].find((element) => focus_name(element) === name);
      same?.focus({ preventScroll: true });
    }
    const now = health_now();
    if (now !== health) {
      health = now;
      said.textContent = now;
    }
  };

  const refresh = async () => {
    clearTimeout(timer);
    const why = why_not();
    if (why) {
      show(why, false);
    } else {
      try {
        const query = new URLSearchParams(location.search);
        query.set("live", "1");
        const reply = await fetch(`${location.pathname}?${query}`, { cache: "no-store", signal: AbortSignal.timeout(10000) });
        if (!reply.ok) throw new Error(reply.statusText);
        const html = await reply.text();
        if (!why_not()) {
          replace(html);
          show(UPDATES, false);
        }
      } catch {
        const since = live.querySelector(".facts time:last-of-type")?.textContent ?? "";
        show("no answer since " + since, true);
      }
    }
    clearTimeout(timer);
    timer = setTimeout(refresh, PERIOD);
  };

  pause.addEventListener("click", () => {
    paused = !paused;
    pause.textContent = paused ? "Continue" : "Pause";
    refresh();
  });
  document.addEventListener("visibilitychange", refresh);
  health = health_now();
  show(UPDATES, false);
  bar.hidden = false;
  timer = setTimeout(refresh, PERIOD);
})();
