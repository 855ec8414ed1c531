// The gallery: photographs in pieces, searched and ordered; words of a caption move the map over their photograph.

const PIECE = 24;
const SVG = "http://www.w3.org/2000/svg";

class Gallery {
  constructor(section, data) {
    this.section = section.querySelector(".gallery");
    this.data = data;
    this.pictures = parsed(section, "pictures");
    this.number = section.id.slice("set-".length);
    this.read = new Map(); // maps that were looked at
    this.hidden = new Set();
    this.cards = this.section.querySelector(".cards");
    this.blank = this.section.querySelector("template").content.firstElementChild;
    this.tools = this.section.querySelector("form");
    this.texts = data.images.map(({ id, references, answers }) =>
      [id, ...references, ...answers.map((answer) => answer?.caption ?? "")].join(" ").toLowerCase());
    this.tools.addEventListener("submit", (event) => event.preventDefault());
    this.tools.addEventListener("input", (event) => {
      if (!["map", "trail"].includes(event.target.name)) this.arrange();
    });
    const more = this.section.querySelector(".more");
    more.querySelector("button").addEventListener("click", () => this.append());
    new IntersectionObserver((seen) => { if (seen.some((each) => each.isIntersecting)) this.append(); },
      { rootMargin: "1200px" }).observe(more);
    this.more = more;
    this.setUpWords();
    this.arrange();
  }

  score(image, system, metric) {
    return image.answers[system]?.scores[metric] ?? NaN;
  }

  // What photographs are ordered by, the least first; NaN: last.
  key(image, { order, one, other, metric }) {
    const score = (system) => this.score(image, system, metric);
    const sign = this.data.least[metric] ? -1 : 1; // of some scores the least is the best
    switch (order) {
      case "worst": return sign * score(one);
      case "best": return -sign * score(one);
      case "difference": return score(other) - score(one);
      case "disagreement": {
        const scores = image.answers.map((_, system) => score(system)).filter((each, system) => !Number.isNaN(each) && !this.hidden.has(system));
        return scores.length > 1 ? Math.min(...scores) - Math.max(...scores) : NaN;
      }
      default: return 0;
    }
  }

  // Whether the first system's caption has what is asked for, and the second's has not.
  alone(image, { one, other, word = "", object = "" }) {
    const [first, second] = [one, other].map((system) => image.answers[system]);
    const parted = (sought, terms) => !sought || (terms(first).includes(sought) && !terms(second).includes(sought));
    return parted(word.trim().toLowerCase(), wordsOf) && parted(object, (answer) => answer?.hallucinated ?? []);
  }

  arrange() {
    const { order, words } = this.tools.elements;
    const ofTwo = order.value === "difference";
    for (const name of ["other", "word", "object"]) {
      if (this.tools.elements[name]) this.tools.elements[name].parentElement.hidden = !ofTwo;
    }
    this.tools.elements.one.parentElement.hidden = ["tested", "disagreement"].includes(order.value);
    const sought = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    const chosen = Object.fromEntries(new FormData(this.tools));
    const found = [];
    this.data.images.forEach((image, place) => {
      if (sought.every((word) => hasWord(this.texts[place], word)) && (!ofTwo || this.alone(image, chosen))) found.push({ place, key: this.key(image, chosen) });
    });
    found.sort((a, b) => Number.isNaN(a.key) - Number.isNaN(b.key) || a.key - b.key || a.place - b.place);
    this.found = found;
    this.tools.elements.count.value = `${found.length.toLocaleString("en")} of ${this.data.images.length.toLocaleString("en")} images`;
    this.cards.replaceChildren();
    this.append();
  }

  append() {
    const start = this.cards.childElementCount;
    const piece = this.found.slice(start, start + PIECE).map(({ place }) => this.card(place));
    this.cards.append(...piece);
    this.more.hidden = this.cards.childElementCount >= this.found.length;
  }

  card(place) {
    const [image, card, metric] = [this.data.images[place], this.blank.cloneNode(true), this.tools.elements.metric.value];
    const pick = (selector) => card.querySelector(selector);
    card.dataset.image = place;
    pick(".id").textContent = image.id;
    if (this.pictures[place]) {
      const photograph = pick("img");
      [photograph.width, photograph.height] = image.size;
      photograph.alt = `Image ${image.id}`;
      photograph.src = this.pictures[place];
      photograph.hidden = false;
    }
    const kept = this.data.systems.some((system) => system.attention === "kept");
    pick(".picture").classList.toggle("bare", !this.pictures[place]); // maps are shown without a photograph too
    pick(".seen").hidden = !this.pictures[place] && !kept;
    const said = (number, system) => `${this.data.metrics[system]} ${number.toFixed(1)}`;
    image.answers.forEach((answer, system) => {
      const row = pick(`li[data-system="${system}"]`);
      row.hidden = !answer || this.hidden.has(system);
      if (!answer) return;
      const score = this.score(image, system, metric);
      row.querySelector(".score").value = Number.isNaN(score) ? "" : said(score, metric);
      const caption = row.querySelector(".caption");
      if (this.data.systems[system].attention === "kept") {
        caption.append(...inWords(answer.caption, answer.words ?? answer.caption.split(" ")));
        caption.tabIndex = 0;
        caption.setAttribute("role", "group");
        caption.setAttribute("aria-label", `${answer.caption}. Caption of ${this.data.systems[system].label}, arrow keys move over its words`);
      } else {
        caption.textContent = answer.caption;
      }
      if (answer.hallucinated?.length) caption.after(element("small", `hallucinated: ${answer.hallucinated.join(", ")}`));
      const scores = answer.scores.flatMap((number, i) => (number === null ? [] : [said(number, i)]));
      pick(".scores").append(element("li", `${this.data.systems[system].label}: ${scores.join(" · ")}`));
    });
    pick(".references").append(...image.references.map((text) => element("li", text, { dir: "auto" })));
    return card;
  }

  show(system, shown) {
    this.hidden[shown ? "delete" : "add"](system);
    if (this.tools.elements.order.value === "disagreement") {
      this.arrange();
      return;
    }
    for (const card of this.cards.children) {
      const answer = this.data.images[card.dataset.image].answers[system];
      card.querySelector(`li[data-system="${system}"]`).hidden = !answer || !shown;
    }
  }

  setUpWords() {
    this.words = new Words(this.cards, {
      look: (caption, number) => this.look(caption, number),
      leave: (caption) => this.leave(caption.closest(".card")),
      turn: (step) => {
        const choice = this.tools.elements.map;
        choice.selectedIndex = (choice.selectedIndex + step + choice.length) % choice.length;
        this.words.again();
      },
    });
    for (const tool of ["map", "trail"]) this.tools.elements[tool]?.addEventListener("input", () => this.words.again());
  }

  mapsOf(system, place) {
    const id = `map-${this.number}-${system}-${place}`;
    if (!this.read.has(id)) {
      const kept = document.getElementById(id);
      this.read.set(id, kept && new Maps(JSON.parse(kept.textContent)));
    }
    return this.read.get(id);
  }

  leave(card) {
    card.querySelector("canvas").hidden = true;
    card.querySelector(".marks").replaceChildren();
    card.querySelector(".readout").textContent = "";
  }

  look(caption, number) {
    const [card, span] = [caption.closest(".card"), caption.children[number]];
    const [system, place] = [Number(caption.closest("li").dataset.system), Number(card.dataset.image)];
    const { label } = this.data.systems[system];
    const [image, readout] = [this.data.images[place], card.querySelector(".readout")];
    const maps = this.mapsOf(system, place);
    if (!maps) {
      readout.textContent = `${label}: no map of this image was kept`;
      return;
    }
    const chosen = this.tools.elements.map.value;
    const { name } = maps.of(number, chosen);
    const [width, height] = image.size ?? [1, 1];
    const { frame } = maps;
    const placeless = maps.height === 1;
    if (placeless) maps.drawBars(card.querySelector("canvas"), number, name);
    else maps.draw(card.querySelector("canvas"), number, name, width, height);
    const word = span.textContent;
    const boxes = (!placeless && image.boxes?.[word]) || [];
    const [x, y] = onPhotograph(maps.peak(number, name), frame);
    const hit = boxes.some(([left, top, right, bottom]) => left <= x && x <= right && top <= y && y <= bottom);
    const trail = placeless ? [] : maps.path || this.tools.elements.trail.checked
      ? Array.from({ length: number + 1 }, (_, i) => onPhotograph(maps.path ? maps.middle(maps.path[i]) : maps.peak(i, name), frame)) : [];
    const cell = !placeless && maps.path && [(frame[2] - frame[0]) / maps.width, (frame[3] - frame[1]) / maps.height];
    this.mark(card, boxes, trail, cell, width, height);
    readout.textContent = [
      `${label}: “${word}”`, ...(name === "mean" ? [] : [name]),
      maps.told(number, name),
      ...(placeless && !maps.looksAlike(number, name) ? [`most on ${maps.labels[maps.peakCell(number, name)]}`] : []),
      ...(cell ? [`took the frame, weight ${maps.share(number).toFixed(2)}`] : []),
      ...(boxes.length && !maps.looksAlike(number, name) ? [hit ? "points into its box" : "points beside its box"] : []),
      ...(name !== chosen ? [`no map ${chosen} here`] : []),
    ].join(" · ");
  }

  // Boxes of what the word names, the trail up to it, and around its end the cell of hard attention.
  mark(card, boxes, trail, cell, width, height) {
    const marks = card.querySelector(".marks");
    const scale = 320 / Math.max(width, height); // strokes are as wide on every photograph
    const [across, down] = [width * scale, height * scale];
    marks.setAttribute("viewBox", `0 0 ${across} ${down}`);
    const shape = (name, attributes) => {
      const made = document.createElementNS(SVG, name);
      for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
      return made;
    };
    const rectangle = ([left, top, right, bottom], kind) => shape("rect",
      { class: kind, x: left * across, y: top * down, width: (right - left) * across, height: (bottom - top) * down });
    const points = trail.map(([x, y]) => [x * across, y * down]);
    const around = ([x, y], [wide, high]) => [x - wide / 2, y - high / 2, x + wide / 2, y + high / 2];
    marks.replaceChildren(
      ...boxes.map((box) => rectangle(box, "box")),
      ...(points.length ? [shape("polyline", { points: points.map((point) => point.join(",")).join(" ") })] : []),
      ...points.map(([x, y], i) => shape("circle", { cx: x, cy: y, r: i === points.length - 1 && !cell ? 7 : 3.5 })),
      ...(cell ? [rectangle(around(trail.at(-1), cell), "taken")] : []),
    );
  }
}

function onPhotograph([x, y], [left, top, right, bottom]) {
  return [left + x * (right - left), top + y * (bottom - top)];
}

function wordsOf(answer) {
  return (answer?.words ?? answer?.caption?.split(" ") ?? []).map((word) => word.toLowerCase());
}

// Of scripts without blanks between words, where any character may begin one.
const UNSPACED = /^[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}]/u;

// Whether a word of the text begins so.
function hasWord(text, word) {
  for (let at = text.indexOf(word); at >= 0; at = text.indexOf(word, at + 1)) {
    if (at === 0 || [word, text[at - 1]].some((each) => UNSPACED.test(each)) || !/[\p{L}\p{N}]/u.test(text[at - 1])) return true;
  }
  return false;
}

function parsed(section, name) {
  return JSON.parse(section.querySelector(`script.${name}`).textContent);
}

function setUpLegend(section, gallery) {
  for (const box of section.querySelectorAll("[data-show]")) {
    const show = () => gallery.show(Number(box.dataset.show), box.checked);
    box.addEventListener("change", show);
    if (!box.checked) show(); // a browser keeps what was chosen before the page was opened anew
  }
}
