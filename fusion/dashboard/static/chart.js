// The charts' own script: the numbers of the minute under the pointer, from the table that each chart has, and times in the viewer's zone.
(() => {
  const two = (number) => String(number).padStart(2, "0");
  const clock = (at) => `${two(at.getHours())}:${two(at.getMinutes())}`;
  const day = (at) => at.toLocaleDateString("en", { month: "short", day: "numeric" });
  // Axes and tables come with times in UTC.
  const local = () => document.querySelectorAll("[data-step] [data-at]").forEach((one) => {
    const at = new Date(one.dataset.at * 1000), utc = at.toISOString().slice(0, 16).replace("T", " ") + " UTC";
    const dated = one.closest("[data-step]").dataset.step >= 900;
    one.textContent = "day" in one.dataset ? day(at) : dated && one.matches("th") ? `${day(at)} ${clock(at)}` : clock(at);
    if (one.matches("th")) one.title = utc;
  });

  // Outside of what is refreshed.
  let tip, cursor, under = null;
  const made = (name) => {
    const one = document.createElement("div");
    one.className = name; one.hidden = true; one.setAttribute("aria-hidden", "true");
    document.body.append(one);
    return one;
  };
  const hide = () => { tip.hidden = cursor.hidden = true; under = null; };
  const show = (svg, x) => {
    const figure = svg.closest("[data-chart]"), rows = figure.querySelectorAll("tbody tr"), box = svg.getBoundingClientRect();
    if (!rows.length) return hide();
    const nth = Math.max(0, Math.min(rows.length - 1, Math.round((x - box.left) / box.width * (rows.length - 1))));
    const [time, ...values] = rows[nth].children, heads = figure.querySelectorAll("thead th"), legend = figure.querySelectorAll("figcaption li");
    tip.replaceChildren(...[time, ...values].map((cell, place) => {
      const line = document.createElement("div");
      line.className = place ? legend[place - 1].className : "when";
      line.textContent = place ? `${heads[place].textContent}  ${cell.textContent}` : `${cell.textContent}  (${cell.title})`;
      return line;
    }));
    tip.hidden = cursor.hidden = false;
    const at = box.left + box.width * nth / Math.max(1, rows.length - 1), wide = tip.offsetWidth;
    cursor.style.left = `${at}px`; cursor.style.top = `${box.top}px`; cursor.style.height = `${box.height}px`;
    tip.style.left = `${Math.max(4, Math.min(innerWidth - wide - 4, at + (at + wide + 16 > innerWidth ? -wide - 12 : 12)))}px`;
    tip.style.top = `${Math.max(4, box.top + 4)}px`;
    under = { label: svg.getAttribute("aria-label"), x };
  };
  const again = () => {
    if (!under) return;
    const svg = [...document.querySelectorAll(".plot .lines")].find((one) => one.getAttribute("aria-label") === under.label);
    if (svg) show(svg, under.x); else hide();
  };

  document.addEventListener("DOMContentLoaded", () => {
    local();
    tip = made("tip"); cursor = made("cursor");
    const point = (event) => {
      const svg = event.target.closest?.(".plot")?.querySelector(".lines");
      if (svg) show(svg, event.clientX); else if (under) hide();
    };
    document.addEventListener("pointermove", point);
    document.addEventListener("pointerdown", point);
    document.addEventListener("pointerleave", hide);
    addEventListener("scroll", hide, { passive: true });
    document.addEventListener("htmx:after:swap", () => { local(); again(); });
  });
})();
