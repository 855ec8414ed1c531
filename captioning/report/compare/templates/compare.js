// Two systems: their captions side by side, the words and objects of one alone, and their differences as a histogram.

const ROWS = 20;
const BARS = 40;

class Pair extends Gallery {
  arrange() {
    super.arrange();
    drawHistogram(this.section.parentElement.querySelector(".histogram"), this);
  }

  // What the other caption has not is marked.
  card(place) {
    const card = super.card(place);
    const { answers } = this.data.images[place];
    const { metric, one, other } = Object.fromEntries(new FormData(this.tools));
    const difference = this.score(this.data.images[place], one, metric) - this.score(this.data.images[place], other, metric);
    card.querySelector("h4").append(` · ${signed(difference, 1)}`);
    answers.forEach((answer, system) => {
      const theirs = new Set(wordsOf(answers[1 - system]));
      const caption = card.querySelector(`li[data-system="${system}"] .caption`);
      const word = (part) => part.textContent?.toLowerCase().replaceAll("\u2019", "'");
      caption.replaceChildren(...inWords(answer.caption, wordsOf(answer)).map((part) =>
        word(part) && !theirs.has(word(part)) ? element("mark", part.textContent) : part));
    });
    return card;
  }

  // The images where one system's caption has a term alone.
  showAlone(field, term, system) {
    const { one, other, order, word, object } = this.tools.elements;
    for (const each of [word, object]) if (each) each.value = "";
    [one.value, other.value, order.value] = [String(system), String(1 - system), "difference"];
    this.tools.elements[field].value = term;
    this.arrange();
    this.section.scrollIntoView();
  }
}

function setUpTerms(home, terms, show) {
  const [choice, body, more] = ["select", "tbody", ".more"].map((part) => home.querySelector(part));
  let chosen = [];
  const append = () => {
    for (const [term, ours, theirs, low, high] of chosen.slice(body.rows.length, body.rows.length + ROWS)) {
      const row = body.insertRow();
      if (low <= 0 && high >= 0) row.className = "within";
      const button = element("button", term, { type: "button" });
      button.addEventListener("click", () => show(term, Number(choice.value.split(" ")[1])));
      const head = element("th", undefined, { scope: "row" });
      head.append(button);
      row.append(head, ...[ours, theirs, signed(ours - theirs), `[${signed(low)}, ${signed(high)}]`].map((text) => element("td", text)));
    }
    more.hidden = body.rows.length >= chosen.length;
  };
  const begin = () => {
    const [kind, side] = choice.value.split(" ");
    chosen = terms.filter(([, ...counts]) => (kind === "only" ? counts[1 - side] === 0 : counts[side] > counts[1 - side]));
    home.querySelector("output").value = chosen.length.toLocaleString("en");
    body.replaceChildren();
    append();
  };
  choice.addEventListener("change", begin);
  more.querySelector("button").addEventListener("click", append);
  begin();
}

function drawHistogram(home, gallery) {
  const metric = gallery.tools.elements.metric;
  const all = gallery.found.map(({ place }) => gallery.data.images[place])
    .map((image) => gallery.score(image, 0, metric.value) - gallery.score(image, 1, metric.value)).filter((each) => !Number.isNaN(each));
  const differing = all.filter((each) => each !== 0);
  const sizes = differing.map(Math.abs).sort((a, b) => a - b);
  const limit = sizes[Math.floor(0.98 * sizes.length)] ?? 1; // what lies beyond is in the first and the last bar
  const counts = new Array(BARS).fill(0);
  for (const each of differing) {
    const bar = Math.floor(((each / limit + 1) / 2) * BARS);
    counts[Math.min(BARS - 1, Math.max(0, bar))] += 1;
  }
  const most = Math.max(1, ...counts);
  const svg = home.querySelector("svg");
  const shape = (name, attributes) => {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  };
  svg.replaceChildren(
    ...counts.map((count, bar) => shape("rect", { class: bar < BARS / 2 ? "c1" : "c0", x: 10 * bar + 0.5, y: 118 * (1 - count / most), width: 9, height: 118 * (count / most) })),
    shape("line", { x1: 0, x2: 400, y1: 118.5, y2: 118.5 }),
  );
  const [left, , right] = home.querySelectorAll("figcaption span");
  [left.textContent, right.textContent] = [`${signed(-limit, 1)} and less`, `${signed(limit, 1)} and more`];
  const [ours, theirs] = gallery.data.systems.map(({ label }) => label);
  const higher = differing.filter((each) => each > 0).length;
  home.querySelector(".hint").textContent = `${metric.selectedOptions[0]?.text}, ${ours} minus ${theirs}, of the images below: `
    + `${ours} is higher on ${higher}, ${theirs} on ${differing.length - higher}; without difference are ${all.length - differing.length}, which are not drawn.`;
}

function signed(value, digits = 0) {
  const text = Math.abs(value).toFixed(digits);
  return Number(text) === 0 ? text : (value < 0 ? "−" : "+") + text;
}

for (const part of document.querySelectorAll("[data-script]")) part.hidden = false;
const page = document.querySelector(".data-set");
const data = parsed(page, "data");
const gallery = new Pair(page, data);
data.terms.forEach((terms, place) => {
  setUpTerms(page.querySelector(`#terms-${place}`), terms, (term, system) => gallery.showAlone(["word", "object"][place], term, system));
});
