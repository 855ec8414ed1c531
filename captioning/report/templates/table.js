// The table: sorted by a heading, columns by groups, what a row differs in, and any two systems compared.

function element(name, text, attributes = {}) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function setUpTable(section, data) {
  const body = section.querySelector("tbody");
  const headings = [...section.querySelectorAll("thead th")];
  for (const heading of headings) {
    heading.querySelector("button")?.addEventListener("click", () => sortRows(body, headings, heading));
  }
  for (const box of section.querySelectorAll("[data-group]")) {
    const shown = () => {
      for (const cell of section.querySelectorAll("[data-in]")) {
        if (cell.dataset.in === box.dataset.group) cell.hidden = !box.checked;
      }
    };
    box.addEventListener("change", shown);
    shown();
  }
  const scroll = section.querySelector(".scroll");
  new ResizeObserver(() => {
    section.querySelector(".wide").hidden = scroll.scrollWidth <= scroll.clientWidth;
  }).observe(scroll.querySelector("table"));
  for (const row of body.querySelectorAll("tr[data-system]")) {
    for (const kind of ["pointerenter", "focusin"]) row.addEventListener(kind, () => showDifferences(section, row, data));
  }
  body.addEventListener("change", (event) => compareChosen(section, body, event.target, data));
}

function setUpPairs(section, data) {
  const tables = [...section.querySelectorAll("table")];
  const choice = section.querySelector("select");
  const shown = () => tables.forEach((table, place) => { table.hidden = String(place) !== choice.value; });
  choice.addEventListener("change", shown);
  shown(); // a browser may have kept the choice
  section.querySelector(".scroll").addEventListener("click", ({ target }) => {
    if (target.dataset.pair) showPair(section, section.querySelector(".compared"), data, ...target.dataset.pair.split("-"));
  });
}

function sortRows(body, headings, heading) {
  const place = headings.indexOf(heading);
  const number = (row) => Number.parseFloat(row.cells[place].dataset.number ?? "NaN");
  const text = (row) => (row.cells[place].querySelector("a") ?? row.cells[place]).textContent.trim();
  const byName = heading.classList.contains("name");
  // Of numbers the largest come first, of names the first in the alphabet.
  const first = byName ? "ascending" : "descending";
  const sort = heading.getAttribute("aria-sort") === first ? (byName ? "descending" : "ascending") : first;
  const sign = sort === "ascending" ? 1 : -1;
  const rows = [...body.rows].sort((a, b) => {
    if (byName) return sign * text(a).localeCompare(text(b));
    const [x, y] = [number(a), number(b)];
    return Number.isNaN(x) - Number.isNaN(y) || sign * (x - y) || 0; // what has no number comes last
  });
  for (const each of headings) each.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", sort);
  body.append(...rows);
}

function showDifferences(section, row, data) {
  let above = row.previousElementSibling;
  while (above && above.dataset.system === undefined) above = above.previousElementSibling;
  const panel = section.querySelector(".differs");
  panel.hidden = false;
  const mine = data.systems[row.dataset.system];
  if (!above) {
    panel.replaceChildren(element("p", `${mine.label} is the first: no system is above it.`));
    return;
  }
  const other = data.systems[above.dataset.system];
  const keys = [...new Set([...Object.keys(other.settings), ...Object.keys(mine.settings)])].sort();
  const differ = keys.filter((key) => mine.settings[key] !== other.settings[key]);
  // What one of two different parts alone has to be told is a part of that difference.
  const differing = differ.filter((key) => (key in mine.settings && key in other.settings)
    || !differ.some((part) => key.startsWith(`${part}.`)));
  const list = element("dl");
  for (const key of differing) {
    const pair = element("div");
    pair.append(element("dt", key), element("dd", `${other.settings[key] ?? "–"} → ${mine.settings[key] ?? "–"}`));
    list.append(pair);
  }
  const number = `${differing.length} setting${differing.length === 1 ? "" : "s"}`;
  panel.replaceChildren(element("p", `From ${other.label} to ${mine.label}: ${number}.`), list);
}

function compareChosen(section, body, changed, data) {
  const boxes = [...body.querySelectorAll("input:checked")];
  if (boxes.length > 2) boxes.find((box) => box !== changed).checked = false;
  const chosen = boxes.filter((box) => box.checked).map((box) => Number(box.closest("tr").dataset.system));
  const panel = section.querySelector(".compared");
  panel.hidden = chosen.length === 0;
  if (chosen.length < 2) {
    panel.replaceChildren(element("p", chosen.length ? `${data.systems[chosen[0]].label}, and which other?` : ""));
    return;
  }
  showPair(section.parentElement.querySelector(".pairs"), panel, data, Math.min(...chosen), Math.max(...chosen));
}

// The cells of a pair, of the tables of all scores.
function showPair(pairs, panel, data, one, other) {
  panel.hidden = false;
  const title = element("p", `${data.systems[one].label} minus ${data.systems[other].label}:`);
  const cells = pairs ? [...pairs.querySelectorAll(`[data-pair="${one}-${other}"]`)] : [];
  if (!cells.length) {
    panel.replaceChildren(title, element("p", "not compared: they were not tested on the same images with scores of each."));
    return;
  }
  const table = element("table");
  const head = table.createTHead().insertRow();
  for (const name of ["score", "difference", "95 % interval", "p", "corrected p"]) head.append(element("th", name, { scope: "col" }));
  const rows = table.createTBody();
  const notes = new Set();
  for (const cell of cells) {
    const row = rows.insertRow();
    if (!cell.className) {
      row.className = "within";
      notes.add("Grey: p is 0.05 or more after Holm's correction for all pairs by this score.");
    }
    row.append(element("th", cell.closest("table").caption.textContent, { scope: "row" }));
    for (const text of [cell.textContent, ...cell.dataset.values.split("|")]) row.append(element("td", text));
    if (cell.dataset.training) notes.add(`95 % intervals, ${cell.dataset.training}.`);
  }
  panel.replaceChildren(title, table, ...[...notes].map((note) => element("p", note)));
}
