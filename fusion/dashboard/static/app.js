// The dashboard's own script: themes, times, ticks, keys, confirmations before actions. Without it all pages still work.
(() => {
  const root = document.documentElement, kept = window.localStorage;
  const find = (selector) => document.querySelector(selector), all = (selector) => [...document.querySelectorAll(selector)];
  const theme = (name) => { if (name) root.dataset.theme = name; else delete root.dataset.theme; };
  theme(kept.fusionTheme);
  root.dataset.script = "";

  const UNITS = [[86400, "d"], [3600, "h"], [60, "m"], [1, "s"]];
  const ago = (seconds) => {
    const [size, unit] = UNITS.find(([size]) => Math.abs(seconds) >= size) || [1, "s"];
    const count = Math.floor(Math.abs(seconds) / size) + (unit === "s" ? " s" : unit);
    return seconds < 0 ? "in " + count : count + " ago";
  };
  const times = () => all("time").forEach((time) => {
    const at = new Date(time.dateTime);
    time.title = at.toLocaleString("sv") + " (" + at.toISOString().slice(0, 19).replace("T", " ") + " UTC)";
    time.textContent = "ago" in time.dataset ? ago((Date.now() - at) / 1000) : at.toLocaleString("sv");
  });

  // On a phone a row is a card: each cell says under which head it stands.
  const labels = () => all(".wide table").forEach((table) => {
    const heads = [...table.querySelectorAll("thead th")].map((head) => head.innerText.trim());
    for (const cell of table.querySelectorAll("tbody td")) {
      if (cell.colSpan > 1) cell.dataset.whole = ""; else cell.dataset.label = heads[cell.cellIndex] || "";
    }
  });

  // A log that is read at its end stays there while lines come.
  const tails = () => all(".log:not([data-up])").forEach((log) => { log.scrollTop = log.scrollHeight; });

  let paused = kept.fusionPaused === "1", last = Date.now(), at = -1;
  const busy = () => find("dialog[open]") || document.hidden || (document.activeElement || {}).form && find("main").contains(document.activeElement)
    && document.activeElement.matches("input:not([type=checkbox]), textarea, select");
  const tick = () => { last = Date.now(); find("#main").dispatchEvent(new Event("tick")); };
  const rows = () => all("main tr[data-row]");
  const move = (step) => {
    const found = rows();
    if (!found.length) return;
    at = Math.max(0, Math.min(found.length - 1, at + step));
    found.forEach((row, n) => row.classList.toggle("at", n === at));
    const link = found[at].querySelector("a") || found[at].querySelector("button, input");
    if (link) link.focus();
  };
  const turn = () => { const next = { "": "dark", dark: "light", light: "" }[root.dataset.theme || ""]; kept.fusionTheme = next; theme(next); };
  const hold = () => { paused = !paused; kept.fusionPaused = paused ? "1" : ""; show(); };
  const show = () => {
    document.body.classList.toggle("paused", paused);
    find("#pause").setAttribute("aria-pressed", String(paused));
    find("#pause").textContent = paused ? "Paused" : "Pause";
  };
  const keys = {
    "/": () => (find("[data-search]") || find("[data-everything]")).focus(),
    "?": () => find("#help").showModal(), j: () => move(1), k: () => move(-1), r: tick, t: turn, p: hold,
    x: () => { rows()[at]?.querySelector("input[type=checkbox]")?.click(); },
  };

  document.addEventListener("DOMContentLoaded", () => {
    times(); labels(); tails();
    if (!find("#pause")) return;
    const here = find("nav [aria-current]"), nav = here?.closest("nav");  // not by scrollIntoView: Tab would begin behind it
    if (nav) nav.scrollLeft = here.offsetLeft - nav.offsetLeft - (nav.clientWidth - here.offsetWidth) / 2;
    if (nav) nav.closest("header").scrollTop = here.offsetTop - innerHeight / 2;
    const rate = find("#rate");
    find(".tools").hidden = false;
    rate.value = kept.fusionRate || "2";
    rate.onchange = () => { kept.fusionRate = rate.value; };
    find("#pause").onclick = hold; find("#theme").onclick = turn; find("#keys").onclick = keys["?"];
    show();
    setInterval(() => { times(); if (!paused && !busy() && Date.now() - last >= rate.value * 1000) tick(); }, 1000);
    document.addEventListener("htmx:after:swap", () => { times(); labels(); tails(); });
    document.addEventListener("scroll", ({ target }) => {
      if (target.matches?.(".log")) target.toggleAttribute("data-up", target.scrollTop + target.clientHeight < target.scrollHeight - 8);
    }, true);
    document.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input:not([type=checkbox]), textarea, select") || find("dialog[open]")) return;
      if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
    });
    const toast = find(".toast:not(.wrong)"), over = () => toast.matches(":hover") || toast.contains(document.activeElement) && document.activeElement.matches("button");
    const fade = () => { if (over()) setTimeout(fade, 3000); else toast.hidden = true; };
    if (toast) setTimeout(fade, 10_000);
    document.addEventListener("change", (event) => {
      if (event.target.matches("[data-all]")) all("main input[name=id]").forEach((box) => { box.checked = event.target.checked; });
    });
    document.addEventListener("input", ({ target }) => { // completes the last word
      for (const one of target.list?.options || []) one.value = target.value.replace(/\S*$/, "") + (one.dataset.term ||= one.value);
    });
    window.addEventListener("pagehide", () => all("[data-revealed]").forEach((part) => part.remove())); // a browser may keep the page
    document.addEventListener("submit", (event) => {
      const form = event.target, button = event.submitter, text = button?.dataset.confirm || form.dataset.confirm;
      const dialog = find("#confirm"), chosen = form.elements.id ? all("main input[name=id]:checked").length : "{n}";
      if (!text || form.dataset.sure || !chosen && text.includes("{n}")) return;
      event.preventDefault();
      find("#confirm-text").textContent = text.replace("{n}", chosen);
      dialog.returnValue = "no";
      dialog.onclose = () => { if (dialog.returnValue === "yes") { form.dataset.sure = "1"; form.requestSubmit(button); delete form.dataset.sure; } };
      dialog.showModal();
    });
    document.addEventListener("click", (event) => {
      const copy = event.target.closest("[data-copy]");
      if (!copy) return;
      const area = document.createElement("textarea"); // navigator.clipboard is not there on plain HTTP
      area.value = copy.dataset.copy; document.body.append(area); area.select(); document.execCommand("copy"); area.remove();
      const icon = copy.matches(".copy"), before = copy.textContent;
      copy.textContent = icon ? "✓" : "Copied";
      setTimeout(() => { copy.textContent = before; }, 2000);
    });
  });
})();
