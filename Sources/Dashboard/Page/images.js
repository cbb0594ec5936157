// Paints ThumbHashes, and fetches the images of visible cards.

/**
 * Paints a ThumbHash (https://evanw.github.io/thumbhash/), which stores a few cosine waves of brightness, two colors
 * and opacity.
 * @returns {boolean} whether the text is a ThumbHash.
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
 * The path of a job's image with the given query. For a job without its original: the smallest variant of at least that
 * width, else the largest one.
 */
function imagePath({ id, image }, width = Infinity, query = '') {
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
    // Each byte stores the heights of two waves, the lower half first.
    this.heights = [...bytes.subarray(this.hasAlpha ? 6 : 5)].flatMap((byte) => [byte & 15, byte >> 4]);
    this.lightness = this.waves(across, down, (colours & 63) / 63, ((colours >> 18) & 31) / 31);
    // The factor compensates for the loss of color by rounding.
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
      // The sums of the waves in this row, by their horizontal frequency.
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
        // The array clamps values to 0 to 255.
        data[at] = 255 * red;
        data[at + 1] = 255 * (red - q);
        data[at + 2] = 255 * blue;
        data[at + 3] = alpha ? 255 * value(alpha) : 255;
        at += 4;
      }
    }
  }
}

/** Fetches images as blobs, few at the same time so that other requests do not wait, and caches some. */
class ImageLoader {
  static atOnce = 3;
  static maxCached = 240;

  constructor() {
    this.waiting = [];
    this.running = 0;
    /** Object URLs by key, the most recently used last. */
    this.urls = new Map();
  }

  /** Returns the image's URL if it is cached. */
  cached(key) {
    const url = this.urls.get(key);
    if (url) {
      this.urls.delete(key);
      this.urls.set(key, url);
    }
    return url;
  }

  /**
   * Fetches an image.
   * @param key the key in the cache; null: not cached, and the receiver revokes the URL.
   * @param onDone called later with an object URL, with null if there is no image, or with a Problem.
   * @returns {function} cancels the request.
   */
  request(path, key, onDone) {
    const task = { path, key, onDone, abort: new AbortController() };
    this.waiting.push(task);
    queueMicrotask(() => this.next());
    return () => {
      task.onDone = null;
      task.abort.abort();
      this.waiting = this.waiting.filter((other) => other !== task);
    };
  }

  async next() {
    if (this.running >= ImageLoader.atOnce || this.waiting.length === 0) return;
    const task = this.waiting.shift();
    this.running += 1;
    let result;
    try {
      result = await this.load(task);
    } catch (problem) {
      result = problem;
    }
    this.running -= 1;
    // If the request was cancelled meanwhile, the URL is revoked here.
    if (task.onDone) task.onDone(result);
    else if (task.key === null && typeof result === 'string') URL.revokeObjectURL(result);
    this.next();
  }

  async load({ path, key, abort }) {
    const headers = { Accept: 'image/webp,image/*;q=0.9' };
    const response = await request(path, { headers, signal: abort.signal });
    if (response.status !== 200) return null;
    const url = URL.createObjectURL(await response.blob());
    if (key !== null) this.store(key, url);
    return url;
  }

  store(key, url) {
    this.revoke(key);
    this.urls.set(key, url);
    for (const oldest of this.urls.keys()) {
      if (this.urls.size <= ImageLoader.maxCached) break;
      this.revoke(oldest);
    }
  }

  revoke(key) {
    const url = this.urls.get(key);
    if (url) URL.revokeObjectURL(url);
    this.urls.delete(key);
  }
}
