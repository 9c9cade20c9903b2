// The palette (Ctrl-K): whatever has a name, and the buttons of the page. It shows what the page `/find` finds; without a script that page does.
(() => {
  let asked = 0, waits = 0;
  const find = (selector) => document.querySelector(selector);
  const fill = (form, rows) => {
    const list = form.querySelector("ul");
    list.replaceChildren(...rows);
    mark(form, 0);
  };
  const mark = (form, nth) => {
    const rows = [...form.querySelectorAll("li")], at = Math.max(0, Math.min(rows.length - 1, nth));
    rows.forEach((row, place) => row.classList.toggle("at", place === at));
    rows[at]?.scrollIntoView({ block: "nearest" });
    form.dataset.at = at;
  };
  const row = (...parts) => {
    const item = document.createElement("li");
    item.append(...parts);
    return item;
  };
  const grey = (text) => { const one = document.createElement("span"); one.className = "quiet"; one.textContent = text + " "; return one; };
  // Buttons of this page; which of several alike is said by its row.
  const actions = (text) => [...document.querySelectorAll("main form button:not([type=button])")].map((button) => {
    const title = button.closest("tr, section")?.querySelector("a, h2")?.textContent.trim().replace(/\s+/g, " ").slice(0, 60) || "";
    const one = document.createElement("button");
    one.type = "button"; one.append(grey("do"), `${button.textContent.trim()} `, grey(title));
    one.onclick = () => { find("#palette").close(); button.click(); };
    return row(one);
  }).filter((one) => text && one.textContent.toLowerCase().includes(text.toLowerCase())).slice(0, 6);
  const ask = async (form) => {
    const text = form.elements.q.value.trim(), mine = ++asked;
    const answer = await fetch(`${form.getAttribute("action")}?q=${encodeURIComponent(text)}`, { headers: { "HX-Request": "true" } });
    if (!answer.ok || mine !== asked) return;
    const found = new DOMParser().parseFromString(await answer.text(), "text/html");
    const pages = text ? [] : [...document.querySelectorAll("nav a")].map((link) => row(link.cloneNode(true)));
    const hits = [...found.querySelectorAll(".hits li")].map((item) => document.importNode(item, true));
    fill(form, [...pages, ...hits.slice(0, -1), ...actions(text), ...hits.slice(-1)]);
  };

  document.addEventListener("DOMContentLoaded", () => {
    const dialog = find("#palette"), form = dialog?.querySelector("form");
    if (!form) return;
    const open = () => { form.elements.q.value = ""; dialog.showModal(); ask(form); };
    document.addEventListener("keydown", (event) => {
      const typing = event.target.matches("input:not([type=checkbox]), textarea, select");
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k" && !typing && !find("dialog[open]")) { event.preventDefault(); open(); }
    });
    form.addEventListener("input", () => { clearTimeout(waits); waits = setTimeout(() => ask(form), 120); });
    form.addEventListener("keydown", (event) => {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (step) { event.preventDefault(); mark(form, Number(form.dataset.at) + step); }
    });
    form.addEventListener("submit", (event) => {
      const chosen = form.querySelector("li.at > *");
      if (chosen) { event.preventDefault(); chosen.click(); }
    });
  });
})();
