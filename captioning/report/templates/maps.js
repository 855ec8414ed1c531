// Maps of attention as light on a photograph, as captioning/report/panels.py draws them.

const SMOOTH = 0.6; // standard deviation of the Gaussian that spreads a map's weights, in cells of its grid
const SHADE = 0.3; // the share of the photograph's light that is left where a map is zero
const GLOW = 0.4; // the share of white at a map's peak
const BAR = "#ffd21f"; // on a dark ground, of vectors without a place
const LABEL = 22; // pixels of a label beneath a bar, on a canvas with two for each of the page
const SIDE = 72; // pixels of the canvas' longer side, which the browser scales smoothly

class Maps {
  constructor(kept) {
    [this.height, this.width] = kept.grid;
    this.names = kept.names;
    this.frame = kept.frame; // left, top, right, bottom of the square that the network saw, in fractions of the photograph
    this.places = kept.places; // cells on the photograph
    this.even = kept.even; // of each map the words at which it looks everywhere alike
    this.labels = kept.labels ?? Array.from({ length: this.width }, (_, i) => String(i + 1)); // of a single row
    this.path = kept.path; // of hard attention: the cell that it took at each word
    this.bytes = Uint8Array.from(atob(kept.maps), (letter) => letter.charCodeAt(0));
    this.words = this.bytes.length / (this.names.length * this.height * this.width);
  }

  // The weights of a word, and the name of the map that they are of: the mean, where there is none of that name.
  of(word, name) {
    const map = Math.max(0, this.names.indexOf(name));
    const cells = this.height * this.width;
    const start = (map * this.words + word) * cells;
    return { weights: this.bytes.subarray(start, start + cells), name: this.names[map] };
  }

  peak(word, name) {
    return this.middle(this.peakCell(word, name));
  }

  peakCell(word, name) {
    const { weights } = this.of(word, name);
    return weights.indexOf(Math.max(...weights));
  }

  // Of a cell, in fractions of the grid.
  middle(cell) {
    return [((cell % this.width) + 0.5) / this.width, (Math.floor(cell / this.width) + 0.5) / this.height];
  }

  // Of the cell that was taken at a word, in the mean of all maps.
  share(word) {
    const { weights } = this.of(word, "mean");
    return weights[this.path[word]] / weights.reduce((a, b) => a + b, 0);
  }

  looksAlike(word, name) {
    return this.even[Math.max(0, this.names.indexOf(name))].includes(word);
  }

  // In nats; even weights have the logarithm of the number of places.
  entropy(word, name) {
    const { weights } = this.of(word, name);
    const sum = weights.reduce((a, b) => a + b, 0);
    return weights.reduce((found, weight) => (weight ? found - (weight / sum) * Math.log(weight / sum) : found), 0);
  }

  // What is said of a word's map.
  told(word, name) {
    const entropy = `entropy ${this.entropy(word, name).toFixed(1)} of ${Math.log(this.places).toFixed(1)} nats`;
    return this.looksAlike(word, name) ? `looked everywhere alike, ${entropy}` : entropy;
  }

  // The weights of a single row, whose vectors have no place: bars with labels, as captioning/report/alignment.py draws them.
  drawBars(canvas, word, name) {
    canvas.hidden = false;
    [canvas.width, canvas.height] = [2 * canvas.clientWidth, 2 * canvas.clientHeight];
    const { weights } = this.of(word, name);
    const context = canvas.getContext("2d");
    context.fillStyle = "#202020";
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.font = `${LABEL}px sans-serif`;
    context.textBaseline = "middle";
    const lower = canvas.height - 12 - Math.min(canvas.height / 2, Math.max(...this.labels.map((label) => context.measureText(label).width)));
    const across = canvas.width / this.width;
    const every = Math.ceil(LABEL / across);
    context.fillStyle = BAR;
    weights.forEach((weight, i) => {
      const high = ((lower - 12) * weight) / 255;
      context.fillRect((i + 0.1) * across, lower - high, 0.8 * across, high);
    });
    context.rotate(-Math.PI / 2);
    context.textAlign = "right";
    context.fillStyle = "#fff";
    this.labels.forEach((label, i) => { if (i % every === 0) context.fillText(label, -lower - 6, (i + 0.5) * across); });
  }

  draw(canvas, word, name, width, height) {
    const [left, top, right, bottom] = this.frame;
    const found = this.of(word, name).weights;
    const weights = this.looksAlike(word, name) ? found.map(() => 255) : found; // or its own peak would be lit
    const scale = SIDE / Math.max(width, height);
    const [across, down] = [Math.max(1, Math.round(width * scale)), Math.max(1, Math.round(height * scale))];
    const columns = spread(across, this.width, left, right);
    const rows = spread(down, this.height, top, bottom);
    const strength = new Float32Array(across * down);
    const line = new Float32Array(this.width);
    let peak = 1e-9;
    for (let y = 0; y < down; y++) {
      if (!rows[y]) continue;
      line.fill(0);
      for (let i = 0; i < this.height; i++) {
        for (let j = 0; j < this.width; j++) line[j] += rows[y][i] * weights[i * this.width + j];
      }
      for (let x = 0; x < across; x++) {
        if (!columns[x]) continue;
        let value = 0;
        for (let j = 0; j < this.width; j++) value += columns[x][j] * line[j];
        strength[y * across + x] = value;
        peak = Math.max(peak, value);
      }
    }
    canvas.width = across;
    canvas.height = down;
    const context = canvas.getContext("2d");
    const picture = context.createImageData(across, down);
    for (let pixel = 0; pixel < strength.length; pixel++) {
      const light = strength[pixel] / peak;
      const seen = rows[Math.floor(pixel / across)] && columns[pixel % across];
      // photograph * (SHADE + (1 - SHADE - GLOW) * light) + GLOW * light, as one grey of one opacity
      const opacity = seen ? 1 - SHADE - (1 - SHADE - GLOW) * light : 0.9;
      const grey = (255 * (seen ? GLOW * light : 0)) / opacity;
      picture.data.set([grey, grey, grey, 255 * opacity], 4 * pixel);
    }
    context.putImageData(picture, 0, 0);
    canvas.hidden = false;
  }
}

// What each of a grid's cells counts for at each pixel of one side; null where the network saw nothing.
function spread(pixels, cells, start, end) {
  return Array.from({ length: pixels }, (_, pixel) => {
    const place = ((pixel + 0.5) / pixels - start) / (end - start);
    if (place < 0 || place > 1) return null;
    const shares = Array.from({ length: cells }, (_, cell) => {
      const onPhotograph = start + ((cell + 0.5) / cells) * (end - start);
      return onPhotograph < 0 || onPhotograph > 1 ? 0 : Math.exp(-((place * cells - 0.5 - cell) ** 2) / (2 * SMOOTH ** 2));
    });
    const sum = shares.reduce((a, b) => a + b, 0) || 1;
    return shares.map((share) => share / sum);
  });
}
