// Pictures: the placeholder of one, and fetching those that are seen.

/**
 * Paints a ThumbHash (https://evanw.github.io/thumbhash/): a few cosines of brightness, two colours and opacity.
 * @returns {boolean} whether the text was one.
 */
function paintThumbHash(canvas, base64, aspect) {
  let bytes;
  try {
    bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  } catch {
    return false;
  }
  if (bytes.length < 5 || bytes.length > 30) return false;
  canvas.width = aspect >= 1 ? 32 : Math.max(1, Math.round(32 * aspect));
  canvas.height = aspect >= 1 ? Math.max(1, Math.round(32 / aspect)) : 32;
  const image = new ImageData(canvas.width, canvas.height);
  new ThumbHash(bytes).render(image);
  canvas.getContext('2d').putImageData(image, 0, 0);
  return true;
}

/**
 * Where a job's picture is, at the size that the query says; of an image that was dropped, the variant that is nearest to
 * that width from above.
 */
function picturePath({ id, image }, width = Infinity, query = '') {
  if (image?.original !== 'drop') return `jobs/${id}/image${query && `?${query}`}`;
  const variants = [...image.variants].sort((a, b) => a.width - b.width);
  return `jobs/${id}/image?variant=${(variants.find((one) => one.width >= width) ?? variants.at(-1)).name}`;
}

class ThumbHash {
  constructor(bytes) {
    const colours = bytes[0] | (bytes[1] << 8) | (bytes[2] << 16);
    const rest = bytes[3] | (bytes[4] << 8);
    this.hasAlpha = colours >> 23 === 1;
    const long = this.hasAlpha ? 5 : 7;
    const short = Math.max(3, rest & 7);
    const [across, down] = rest >> 15 === 1 ? [long, short] : [short, long];
    // Half a byte for each wave, the lower one first.
    this.heights = [...bytes.subarray(this.hasAlpha ? 6 : 5)].flatMap((byte) => [byte & 15, byte >> 4]);
    this.lightness = this.waves(across, down, (colours & 63) / 63, ((colours >> 18) & 31) / 31);
    // The factor makes up for what colours lose by the rounding.
    this.yellowBlue = this.waves(3, 3, ((colours >> 6) & 63) / 31.5 - 1, (((rest >> 3) & 63) / 63) * 1.25);
    this.redGreen = this.waves(3, 3, ((colours >> 12) & 63) / 31.5 - 1, (((rest >> 9) & 63) / 63) * 1.25);
    this.alpha = this.hasAlpha ? this.waves(5, 5, (bytes[5] & 15) / 15, (bytes[5] >> 4) / 15) : null;
  }

  waves(across, down, mean, range) {
    const waves = [{ u: 0, v: 0, height: mean }];
    for (let v = 0; v < down; v += 1) {
      for (let u = v ? 0 : 1; u * down < across * (down - v); u += 1) {
        waves.push({ u, v, height: ((this.heights.shift() ?? 7.5) / 7.5 - 1) * range * 2 });
      }
    }
    return waves;
  }

  render({ data, width, height }) {
    const cosines = (length) => Array.from({ length: 7 }, (_, n) => Float32Array.from(
      { length }, (__, i) => Math.cos((Math.PI * n * (i + 0.5)) / length)));
    const [xs, ys] = [cosines(width), cosines(height)];
    let at = 0;
    for (let y = 0; y < height; y += 1) {
      // What the waves come to in this row, by how often they go up and down across it.
      const row = (waves) => waves.reduce((sums, { u, v, height: h }) => {
        sums[u] += h * ys[v][y];
        return sums;
      }, new Float32Array(7));
      const [lightness, yellowBlue, redGreen] = [row(this.lightness), row(this.yellowBlue), row(this.redGreen)];
      const alpha = this.alpha && row(this.alpha);
      for (let x = 0; x < width; x += 1) {
        const value = (sums) => {
          let sum = 0;
          for (let u = 0; u < 7; u += 1) sum += sums[u] * xs[u][x];
          return sum;
        };
        const [l, q] = [value(lightness), value(redGreen)];
        const blue = l - (2 / 3) * value(yellowBlue);
        const red = (3 * l - blue + q) / 2;
        // The array clamps.
        data[at] = 255 * red;
        data[at + 1] = 255 * (red - q);
        data[at + 2] = 255 * blue;
        data[at + 3] = alpha ? 255 * value(alpha) : 255;
        at += 4;
      }
    }
  }
}

/** Fetches pictures as blobs, few at a time so that requests of people never wait behind them, and holds some. */
class Pictures {
  static atOnce = 3;
  static held = 240;

  constructor() {
    this.waiting = [];
    this.running = 0;
    /** Object URLs by what they show, the last used one last. */
    this.urls = new Map();
  }

  /** The picture at once, if it is held. */
  held(key) {
    const url = this.urls.get(key);
    if (url) {
      this.urls.delete(key);
      this.urls.set(key, url);
    }
    return url;
  }

  /**
   * Fetches a picture.
   * @param key what to hold it under; null: it is not held, and whoever gets it revokes it.
   * @param onDone called with an object URL, with null where there is no picture, or with a Problem; never at once.
   * @returns {function} takes the wish back.
   */
  want(path, key, onDone) {
    const wish = { path, key, onDone, abort: new AbortController() };
    this.waiting.push(wish);
    queueMicrotask(() => this.next());
    return () => {
      wish.onDone = null;
      wish.abort.abort();
      this.waiting = this.waiting.filter((other) => other !== wish);
    };
  }

  async next() {
    if (this.running >= Pictures.atOnce || this.waiting.length === 0) return;
    const wish = this.waiting.shift();
    this.running += 1;
    let result;
    try {
      result = await this.load(wish);
    } catch (problem) {
      result = problem;
    }
    this.running -= 1;
    // Whoever takes it back meanwhile leaves nobody to revoke it.
    if (wish.onDone) wish.onDone(result);
    else if (wish.key === null && typeof result === 'string') URL.revokeObjectURL(result);
    this.next();
  }

  async load({ path, key, abort }) {
    const headers = { Accept: 'image/webp,image/*;q=0.9' };
    const response = await ask(path, { headers, signal: abort.signal });
    if (response.status !== 200) return null;
    const url = URL.createObjectURL(await response.blob());
    if (key !== null) this.hold(key, url);
    return url;
  }

  hold(key, url) {
    this.revoke(key);
    this.urls.set(key, url);
    for (const oldest of this.urls.keys()) {
      if (this.urls.size <= Pictures.held) break;
      this.revoke(oldest);
    }
  }

  revoke(key) {
    const url = this.urls.get(key);
    if (url) URL.revokeObjectURL(url);
    this.urls.delete(key);
  }
}
