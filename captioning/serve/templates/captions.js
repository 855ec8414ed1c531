// A photograph goes to the server, and the captions come back column by column; their words are shown in turn.

const PACE = 120; // milliseconds from word to word
const still = matchMedia("(prefers-reduced-motion: reduce)");

class Column {
  constructor(element) {
    this.element = element;
    this.title = element.querySelector("h2").textContent;
    this.answers = element.querySelector(".answers");
    this.picture = element.querySelector("img");
    this.which = element.querySelector(".which");
    this.words = new Words(element, {
      look: (caption, number) => this.look(caption, number),
      leave: () => this.leave(),
      turn: (step) => {
        const choice = this.which.querySelector("select");
        choice.selectedIndex = (choice.selectedIndex + step + choice.length) % choice.length;
        this.words.again();
      },
    });
    this.which.addEventListener("input", () => this.words.again());
  }

  // Nothing is left of another photograph.
  clear() {
    this.words.leave();
    clearInterval(this.timer);
    this.element.querySelector(".seen").hidden = true;
    this.answers.replaceChildren();
    this.element.removeAttribute("aria-busy");
  }

  begin({ photograph, size }) {
    this.clear();
    this.maps = new Map(); // of each caption
    this.size = size;
    [this.picture.width, this.picture.height] = size;
    this.picture.src = photograph;
    this.picture.parentElement.style.setProperty("--ratio", size[0] / size[1]);
    this.element.querySelector(".seen").hidden = false;
    this.which.hidden = true;
    this.element.setAttribute("aria-busy", "true");
  }

  show({ captions, seconds }) {
    this.element.removeAttribute("aria-busy");
    this.answers.append(...captions.map((caption) => this.row(caption)));
    this.answers.title = `${seconds} s`;
    const names = [...this.maps.values()][0]?.names ?? [];
    this.which.hidden = names.length < 2;
    this.which.querySelector("select").replaceChildren(...names.map((name) => new Option(name === "mean" ? "mean of all" : name, name)));
    const first = this.answers.querySelector(".caption");
    if (!still.matches && first) this.tell(first);
  }

  row({ caption: text, words, score, confidence, maps }) {
    const [row, caption, number] = ["li", "p", "output"].map((name) => document.createElement(name));
    caption.className = "caption";
    caption.dir = "auto";
    caption.append(...inWords(text, words));
    if (maps) {
      this.maps.set(caption, new Maps(maps));
      caption.tabIndex = 0;
      caption.setAttribute("role", "group");
      caption.setAttribute("aria-label", `${text}. Caption of ${this.title}, arrow keys move over its words`);
    } else if (!words.length) caption.textContent = "(no words)";
    number.className = "score";
    number.title = `score ${score.toFixed(2)}`;
    number.value = confidence === null ? number.title : `confidence ${confidence.toFixed(2)}`;
    row.append(caption, number);
    return row;
  }

  // One word after the other, each with its map, unless somebody looks at another one meanwhile.
  tell(caption) {
    const words = [...caption.children];
    for (const word of words) word.classList.add("coming");
    let next = 0;
    this.timer = setInterval(() => {
      if (next < words.length) {
        words[next].classList.remove("coming");
        if (this.maps.has(caption) && !this.words.active) this.look(caption, next);
        next += 1;
        return;
      }
      clearInterval(this.timer);
      if (!this.words.active) this.leave();
    }, PACE);
  }

  leave() {
    this.element.querySelector("canvas").hidden = true;
    this.element.querySelector(".readout").textContent = "";
  }

  look(caption, number) {
    const [maps, [width, height]] = [this.maps.get(caption), this.size];
    const { name } = maps.of(number, this.which.querySelector("select").value);
    const canvas = this.element.querySelector("canvas");
    maps.draw(canvas, number, name, width, height);
    if (maps.path) this.mark(canvas, maps.frame, maps, maps.middle(maps.path[number]));
    const readout = this.element.querySelector(".readout");
    readout.setAttribute("aria-live", this.words.active ? "polite" : "off"); // not while words appear by themselves
    readout.textContent = [
      `“${caption.children[number].textContent}”`, ...(name === "mean" ? [] : [name]),
      maps.told(number, name),
      ...(maps.path ? [`took the frame, weight ${maps.share(number).toFixed(2)}`] : []),
    ].join(" · ");
  }

  // The cell that hard attention took.
  mark(canvas, [left, top, right, bottom], maps, [x, y]) {
    const context = canvas.getContext("2d");
    const [across, down] = [(right - left) * canvas.width, (bottom - top) * canvas.height];
    const [width, height] = [across / maps.width, down / maps.height];
    context.strokeStyle = "#ffd21f";
    context.strokeRect(left * canvas.width + x * across - width / 2, top * canvas.height + y * down - height / 2, width, height);
  }
}

const form = document.querySelector(".ask");
const place = document.querySelector(".columns");
const blank = place.cloneNode(true);
const told = document.querySelector(".told");
const columnsOf = (element) => [...element.querySelectorAll(".column")].map((column) => new Column(column));
let shown = [{ element: place, columns: columnsOf(place), file: null }]; // a row of columns for each photograph
let asked = new AbortController();

function valueOf(input) {
  if (input.type === "checkbox") return input.checked;
  if (input.dataset.kind === "array") return input.value.split(/\s+/).filter(Boolean);
  if (input.dataset.kind === "number") return input.value === "" ? null : Number(input.value);
  return input.value;
}

function settings() {
  const decoding = form.elements.decoding.value;
  const chosen = form.querySelector(`.settings[data-decoding="${decoding}"]`);
  const read = (part) => Object.fromEntries([...chosen.querySelectorAll(`${part} [name]`)].map((input) => [input.name, valueOf(input)]));
  return { decoding, ...read(".own"), filters: read(".filters") };
}

function say(sentence) {
  form.querySelector(".error").textContent = sentence;
}

function refuse({ file, columns }, sentence) {
  say(shown.length > 1 ? `${document.querySelector(".error").textContent} ${file.name}: ${sentence}` : sentence);
  for (const column of columns) column.clear();
  explain(document.querySelector(".seen:not([hidden])"));
}

// What the captions' words and numbers are, where there are some.
function explain(shown) {
  for (const hint of form.querySelectorAll(".how")) hint.hidden = !shown;
}

function take(line, columns) {
  if (line.error) throw new Error(line.error);
  if (line.photograph) {
    for (const column of columns) column.begin(line);
    explain(true);
    return;
  }
  const column = columns[line.column];
  column.show(line);
  const best = line.captions[0].caption || "no words";
  const sentence = document.createElement("span");
  sentence.textContent = `${column.title}: ${best}. `;
  told.append(sentence);
}

async function ask() {
  asked.abort();
  asked = new AbortController();
  const { signal } = asked;
  say("");
  told.textContent = "";
  form.setAttribute("aria-busy", "true");
  for (const row of shown) if (row.file && !signal.aborted) await caption(row, signal);
  if (!signal.aborted) form.removeAttribute("aria-busy");
}

async function caption(row, signal) {
  const { file } = row;
  if (file.size > form.dataset.megabytes * 1e6) {
    refuse(row, `The photograph has ${(file.size / 1e6).toFixed(1)} MB; allowed are ${form.dataset.megabytes}: scale it down.`);
    return;
  }
  try {
    const query = new URLSearchParams({ settings: JSON.stringify(settings()) });
    const answer = await fetch(`captions?${query}`, {
      method: "POST", body: file, signal,
    });
    if (!answer.ok) throw new Error(await answer.text());
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) take(JSON.parse(line), row.columns);
    }
  } catch (error) {
    if (!signal.aborted) refuse(row, error instanceof TypeError ? "The server does not answer." : error.message);
  }
}

function look(files) {
  if (!files?.length) return;
  for (const { element } of shown.splice(1)) element.remove();
  for (const file of [...files].slice(1)) {
    const element = blank.cloneNode(true);
    element.removeAttribute("id");
    for (const title of element.querySelectorAll("h2")) title.removeAttribute("id");
    for (const column of element.querySelectorAll(".column")) column.setAttribute("aria-label", file.name);
    shown.at(-1).element.after(element);
    shown.push({ element, columns: columnsOf(element), file });
  }
  [shown[0].file] = files;
  ask();
}

form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("change", ({ target }) => {
  if (target.name === "photograph") {
    look(target.files);
    return;
  }
  if (!target.name) return; // which map a column shows
  for (const part of form.querySelectorAll(".settings")) part.hidden = part.dataset.decoding !== form.elements.decoding.value;
  ask();
});
for (const example of form.querySelectorAll(".examples button")) {
  example.addEventListener("click", async () => look([await (await fetch(example.querySelector("img").src)).blob()]));
}
document.addEventListener("dragover", (event) => {
  event.preventDefault();
  form.classList.add("over");
});
document.addEventListener("dragleave", (event) => { if (!event.relatedTarget) form.classList.remove("over"); });
document.addEventListener("drop", (event) => {
  event.preventDefault();
  form.classList.remove("over");
  look(event.dataTransfer.files);
});
document.addEventListener("paste", (event) => look(event.clipboardData.files));
