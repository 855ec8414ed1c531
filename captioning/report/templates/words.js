// Captions whose words the pointer or arrow keys move over: one word of one caption at a time.

// The words of a caption as elements, and what is written between them: blanks, in Chinese nothing.
function inWords(caption, words) {
  const letters = caption.toLowerCase().replaceAll("\u2019", "'"); // as words have them
  let end = 0;
  const parts = words.flatMap((word) => {
    const start = letters.indexOf(word.toLowerCase(), end);
    if (start < 0) return [];
    const [between, span] = [caption.slice(end, start), document.createElement("span")];
    end = start + word.length;
    span.textContent = caption.slice(start, end);
    return between ? [between, span] : [span];
  });
  return end < caption.length ? [...parts, caption.slice(end)] : parts;
}

class Words {
  // `look(caption, number)` shows a word, `leave(caption)` takes that away, `turn(step)` goes to another map.
  constructor(home, { look, leave, turn }) {
    [this.shows, this.hides, this.turn] = [look, leave, turn];
    this.active = null; // { caption, word }
    home.addEventListener("pointerover", (event) => {
      const word = event.target.closest(".caption[tabindex] span");
      if (word) this.look(word.parentElement, [...word.parentElement.children].indexOf(word));
    });
    home.addEventListener("pointerout", (event) => {
      const caption = event.target.closest(".caption[tabindex]");
      if (caption && !caption.contains(event.relatedTarget) && document.activeElement !== caption && event.pointerType === "mouse") this.leave();
    });
    home.addEventListener("focusin", (event) => {
      if (event.target.matches(".caption[tabindex]") && this.active?.caption !== event.target) this.look(event.target, 0);
    });
    home.addEventListener("focusout", (event) => {
      if (event.target.matches(".caption[tabindex]")) this.leave();
    });
    home.addEventListener("keydown", (event) => this.press(event));
  }

  press(event) {
    const caption = event.target.closest?.(".caption[tabindex]");
    if (!caption || !this.active || event.ctrlKey || event.altKey || event.metaKey) return;
    const last = caption.children.length - 1;
    const word = Math.max(0, this.active.word);
    const words = { ArrowRight: Math.min(last, word + 1), ArrowLeft: Math.max(0, word - 1), Home: 0, End: last };
    if (event.key in words) this.look(caption, words[event.key]);
    else if (event.key === "Escape") this.leave();
    else if (event.key === "ArrowDown") this.turn(1);
    else if (event.key === "ArrowUp") this.turn(-1);
    else return;
    event.preventDefault();
  }

  look(caption, number) {
    if (this.active && this.active.caption !== caption) this.leave();
    this.active?.caption.children[this.active.word]?.classList.remove("now");
    this.active = { caption, word: number };
    caption.children[number].classList.add("now");
    this.shows(caption, number);
  }

  again() {
    if (this.active) this.look(this.active.caption, this.active.word);
  }

  leave() {
    if (!this.active) return;
    const { caption, word } = this.active;
    caption.children[word]?.classList.remove("now");
    this.active = null;
    this.hides(caption);
  }
}
